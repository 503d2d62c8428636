"""What is given on the command line is taken at its word or refused."""

import json
import os
import resource
import unittest

from jobs import CONFIG, SANITIZER, JobTest, tandem


class CommandLine(JobTest):
    def test_empty_names_are_refused(self):
        text = self.written("a.txt", b"words")
        for arguments in (("plan", ""), ("train", ""), ("schedule", ""), ("check", ""),
                          ("bench", "gemm", ""), ("bench", "gemm", self.config, "--json", ""),
                          ("schedule", self.config, "--svg", ""), ("trace", ""),
                          ("trace", text, "--svg", ""), ("trace", text, "--around", ""),
                          ("tokenize", "", text), ("tokenize", "p", "")):
            self.refused(2, "empty name", *arguments)
        self.refused(2, "is a folder", "tokenize", self.folder + "/", text)

    def test_numbers_of_options_lie_in_a_range(self):
        text = self.written("a.txt", b"words")
        for option, value in (("--from", "nan"), ("--to", "inf"), ("--from", "-1"),
                              ("--from", "x"), ("--to", "1e300")):
            self.refused(2, f"{value} is no number in", "trace", text, option, value)
        for value in ("nan", "1e300", "0", "-1"):
            self.refused(2, f"{value} is no number in", "trace", text, "--around", "x", "--width",
                         value)
        for value in ("0", "-1", "5000", "1e30", "9" * 40):
            self.refused(2, "--ranks.*(outside|not an integer)", "train", self.config, "--ranks",
                         value)
        for value in ("abc", "4x", "2.5"):
            self.refused(2, f"--ranks.*{value} is not an integer", "check", self.config, "--ranks",
                         value)
            self.refused(2, f"--repeats.*{value} is not an integer", "bench", "gemm", "--repeats",
                         value)
        self.refused(2, "--stage.*x is not an integer", "schedule", self.config, "--stage", "x")

    def test_tokenize_says_which_file_cannot_be_used(self):
        text, empty = self.written("a.txt", b"words"), self.written("empty.txt", b"")
        self.refused(3, "cannot read /tmp: Is a directory", "tokenize", "p", text, "/tmp")
        self.refused(3, "cannot open no.txt: No such file", "tokenize", "p", text, "no.txt")
        self.refused(3, "empty.txt is empty", "tokenize", "p", text, empty)
        os.mkfifo(self.path("pipe"))
        for endless in ("/dev/zero", self.path("pipe")):
            self.refused(3, f"{endless} is not a regular file", "tokenize", "p", text, endless)
        self.assertFalse(os.path.exists(self.path("p.bin")))
        own = self.written("p.bin", b"words")
        self.refused(2, "PREFIX p.bin would overwrite .*p.bin", "tokenize", "p", text, own)
        with open(own, "rb") as file:
            self.assertEqual(file.read(), b"words")
        os.mkdir(self.path("r.idx"))
        self.refused(3, "r.idx is a folder", "tokenize", "r", text)
        self.refused(0, "2 documents, 10 tokens", "tokenize", "q", text, own)

    def trace(self, about="", **changes):
        """A trace of two spans of dispatch_fwd, the second changed."""
        first = {"ph": "X", "name": "dispatch_fwd", "cat": "F", "tid": 1, "ts": 0, "dur": 1,
                 "args": {"chunk": 0, "layer": 0, "microbatch": 0}}
        second = {**first, "ts": 2, "args": {"chunk": 0, "layer": 3, "microbatch": 1}, **changes}
        lane = {"ph": "M", "name": "thread_name", "tid": 1, "args": {"name": "ep"}}
        return self.written("t.json", json.dumps(
            {"distributedInfo": {"rank": 0}, "otherData": {"about": about},
             "traceEvents": [lane, first, second]}).encode())

    def test_a_trace_that_is_none_of_ours(self):
        for content in (b"{}", b"[]", b'{"traceEvents": []}', b"7"):
            self.refused(3, "give a trace that logging.trace wrote", "trace",
                         self.written("t.json", content))
        self.refused(3, r'"y{60}[.]{3}" is no instruction', "trace", self.trace(name="y" * 100000))
        self.refused(3, r'"a\\u001b\[31m" is no instruction', "trace",
                     self.trace(name="a\x1b[31m"))
        self.refused(0, r"say \\u001b\[31mx{350,400}[.]{3}\n", "trace",
                     self.trace(about="say \x1b[31m" + "x" * 100000))
        self.refused(2, r"it has dispatch_fwd, y{60}[.]{3}$", "trace",
                     self.trace(name="y" * 100000), "--svg", self.path("t.svg"), "--around", "x")
        self.refused(2, "it has dispatch_fwd L0 L3 mb0..1$", "trace", self.trace(), "--svg",
                     self.path("t.svg"), "--around", "dispatch_fwd L99 mb0")

    def test_a_picture_does_not_replace_what_it_shows(self):
        path = self.trace()
        link = self.path("link.json")
        os.symlink(path, link)
        self.refused(2, "--svg .*t.json would overwrite .*t.json", "trace", path, "--svg", path)
        self.refused(2, "--svg .* would overwrite", "trace", path, "--svg", link)
        self.refused(2, "--svg .* would overwrite", "schedule", self.config, "--svg", self.config)
        self.refused(2, "--json .* would overwrite", "bench", "gemm", self.config, "--json",
                     self.config)
        self.refused(0, "2 events", "trace", path, "--svg", self.path("t.svg"))

    def test_what_a_run_reads_is_not_written_over(self):
        text = self.written("text-rank0.json", b"words " * 1000)
        data = ("data.kind=text", f"data.train={text}", "model.vocab=256")
        for wrong in ((f"logging.metrics={self.config}",), (f"logging.metrics={text}", *data),
                      (f"logging.trace={self.path('text')}", "logging.trace_steps=1", *data)):
            self.refused(2, "logging.* would overwrite", "train", self.config,
                         "--ranks", "4", "train.steps=1", *wrong)
        with open(text, "rb") as file:
            self.assertEqual(len(file.read()), 6000)

    def test_a_dp_that_follows_from_the_ranks_is_told(self):
        with_dp = {**CONFIG, "parallel": {**CONFIG["parallel"], "dp": 2}}
        config = self.written("with_dp.json", json.dumps(with_dp).encode())
        for command in ("plan", "check", "schedule"):
            done = tandem(command, config, "--ranks", "8")
            self.assertEqual((done.returncode, done.stderr), (
                0, f"note: parallel.dp 2 of {config} replaced by 4 for 8 ranks; to train on "
                "them, set parallel.dp=4\n"))
            for silent in (("--ranks", "4"), ("--ranks", "8", "parallel.dp=4"), ()):
                self.assertEqual(tandem(command, config, *silent).stderr, "")
        self.refused(2, r"parallel.dp = 1 x 131072 \(262144 ranks over parallel.pp = 2\)", "check",
                     self.config, "--ranks", "262144")
        self.refused(2, r"start 4 ranks \(mpirun -np 4, or --ranks 4\), or set parallel.pp=1 ", "plan",
                     self.config, "--ranks", "3")

    def test_a_trace_with_impossible_times(self):
        for key, value, words in (("dur", -5, "dur is -5, outside"), ("ts", 1e300, "ts is 1e"),
                                  ("dur", 1e300, "dur is 1e")):
            event = {"ph": "X", "name": "dispatch_fwd", "cat": "F", "tid": 1, "ts": 0, "dur": 1,
                     "args": {}, key: value}
            lane = {"ph": "M", "name": "thread_name", "tid": 1, "args": {"name": "ep"}}
            path = self.written("t.json", json.dumps(
                {"distributedInfo": {"rank": 0}, "traceEvents": [lane, event]}).encode())
            self.refused(3, "t.json: " + words, "trace", path)

    def test_configs_out_of_reach(self):
        self.refused(2, r"config.json: 1 problem\n.*train.cpu_threads = 20000.*\[0, 1024\]",
                     "train", self.config, "--ranks", "4", "train.cpu_threads=20000")
        self.refused(2, "global_batch = 1073741824: makes 536870912 micro-batches.*give at most",
                     "plan", self.config, "train.global_batch=1073741824")
        self.refused(2, "eval_batches = 1000000: .*give at most", "plan", self.config,
                     "train.eval_batches=1000000")
        self.refused(2, r"config.json: 1 problem\n.*model.topk = 5: more than the 4 experts",
                     "plan", self.config, "model.topk=5")
        self.refused(2, "nul.json: byte 3 is NUL", "plan", self.written("nul.json", b"{ }\0\0"))
        self.refused(2, "k{60}[.]{3}: unknown section", "plan",
                     self.written("k.json", b'{"' + b"k" * 100000 + b'": {}}'))

    @unittest.skipIf(SANITIZER, "sanitizers reserve more memory than any limit")
    def test_threads_that_the_system_refuses(self):
        # Each thread reserves its stack of 8 MB.
        limit = 2 << 30
        job = self.threads("train.cpu_threads=1000", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (limit, limit)))
        self.require_end(job, 6, r"refused a thread for compute thread \d+ of 1000",
                         "train.cpu_threads")
        job = self.threads("parallel.pp=1", "parallel.vpp=1", "parallel.ep=1",
                           "train.global_batch=1000", ranks=1000,
                           preexec_fn=lambda: resource.setrlimit(
                               resource.RLIMIT_AS, (limit, limit)))
        self.require_end(job, 6, "refused a thread|out of (host )?memory")

    def test_help_as_a_word(self):
        for word, option in ((["help"], ["--help"]), (["help", "train"], ["train", "--help"])):
            said, wanted = tandem(*word), tandem(*option)
            self.assertEqual((said.returncode, said.stdout), (0, wanted.stdout), said.stderr)
        self.assertIn("help COMMAND", tandem("--help").stdout)
        self.refused(2, "no command \"trian\".*did you mean train", "help", "trian")

    def test_complaints_about_options_look_like_all_others(self):
        for command in ("train", "plan"):
            self.refused(2, r"^error: there is no option --num-layers; here it is model[.]layers; "
                            r"keys of the config go as section[.]key=value, as in "
                            rf"model[.]layers=4; tandem {command} --help lists the options\n$",
                         command, self.config, "--num-layers", "4")
        self.refused(2, r"^error: --ranks: 0 is outside \[1, 262144\]; tandem plan --help lists the "
                        r"options\n$", "plan", self.config, "--ranks", "0")
        self.refused(2, "^error: there is no option --svgs .did you mean --svg[?].; tandem trace "
                        "--help", "trace", "t.json", "--svgs", "a.svg")
        self.refused(2, "^error: .*tandem train --help lists", "train")
        self.refused(2, "^error: .*tandem --help lists", "--nonsense")
        self.refused(2, "^error: --gb-per-s: nan is no number in", "schedule", self.config,
                     "--gb-per-s", "nan")

    def test_an_option_that_does_not_exist_leads_to_what_was_meant(self):
        for typed, meant in (
                (("train", self.config, "--rank", "4"), "--rank .did you mean --ranks[?].;"),
                (("schedule", self.config, "--tflop=3"), "--tflop=3 .did you mean --tflops[?].;"),
                (("bench", "gemm", "--repeat", "3"), "--repeat .did you mean --repeats[?].;"),
                (("train", self.config, "-np", "4"), "-np; give --ranks N, or start with mpirun "
                                                     "-np N before tandem;"),
                (("plan", "--config", self.config), "--config; the config file goes without one, "
                                                    "as in tandem plan FILE;"),
                (("train", self.config, "--ranks", "4", "--train.steps=3"),
                 "; leave out the --: train[.]steps=3;"),
                (("plan", self.config, "--model.layers", "3"),
                 "; leave out the --: model[.]layers=VALUE;"),
                (("plan", self.config, "--train.micro-batch=3"),
                 "; leave out the --: train[.]micro_batch=3;"),
                (("plan", self.config, "--checkpoint.dirs=x"), "did you mean checkpoint[.]dir[?];"),
                (("plan", self.config, "--optim.lr=3"), "did you mean optimizer[.]lr[?];"),
                (("plan", self.config, "--model.num-layers=3"), "here it is model[.]layers;"),
                (("train", self.config, "--steps=5"), "did you mean train[.]steps[?];"),
                (("train", self.config, "--micro-batch-size=5"),
                 "here it is train[.]micro_batch;")):
            self.refused(2, "^error: there is no option .*" + meant, *typed)
        self.refused(2, "steps=5.*did you mean train[.]steps[?]", "plan", self.config, "steps=5")

    def test_a_preset_is_told_where_the_file_wins(self):
        line = ("warning: model.preset=mixtral-8x7b: 8 of its values are overridden by .*: layers, "
                "hidden.*; leave them out of the file")
        planned = tandem("plan", self.config, "model.preset=mixtral-8x7b")
        self.assertEqual(planned.returncode, 0)
        self.assertRegex(planned.stderr, "^" + line)
        job = self.threads("train.steps=1", "model.preset=mixtral-8x7b")
        self.require_end(job, 0, line)

    def test_a_preset_needs_no_file(self):
        done = tandem("plan", "model.preset=mixtral-8x7b", "--ranks", "8", "parallel.ep=8")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("46.7 B total", done.stdout)
        self.refused(2, "train.steps=5: an override where the config file belongs; the file comes "
                        "first", "train", "train.steps=5")

    def test_an_override_before_the_file_is_told(self):
        for command in (("plan",), ("schedule",), ("check",), ("bench", "layer"), ("train",)):
            for file in (self.config, self.path("missing.json")):
                self.refused(2, "^error: parallel.pp=2: an override where the config file belongs; "
                                "the file comes first, ", *command, "parallel.pp=2", file)
        self.refused(2, '"1]": not of the form', "plan", "model.moe_pattern=[0,", "1]")
        # Too long for the name of a file.
        self.assertEqual(tandem("plan", "data.train=" + "y" * 5000).returncode, 0)

    def test_keys_that_change_nothing_are_told(self):
        job = self.threads("train.steps=3", "train.comm=nccl", "optimizer.loss_scale=1024")
        self.require_end(job, 0, "warning: train.comm = nccl: no effect, as the model runs on the CPU",
                         "warning: optimizer.loss_scale = 1024: no effect without train.dtype=fp16")
        self.assertEqual(job.text().count("warning"), 2, "said once, and nothing else")


if __name__ == "__main__":
    unittest.main()
