"""What is given on the command line is taken at its word or refused, and what is printed arrives."""

import fcntl
import json
import math
import os
import re
import resource
import signal
import subprocess
import time
import unittest

from jobs import CONFIG, ENVIRONMENT, SANITIZER, TANDEM, JobTest


def tandem(*arguments, **options):
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([TANDEM, *arguments], stderr=subprocess.PIPE, text=True,
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=100, **options)


class CommandLine(JobTest):
    def refused(self, code, words, *arguments):
        done = tandem(*arguments, cwd=self.folder)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, f"{arguments} {said}")
        self.assertRegex(said, words)
        self.assertLess(len(said), 1000, "no more than a reader can use")

    def written(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def commands(self):
        for command in ("plan", "schedule", "check"):
            yield command, self.config, "--ranks", "4"
        yield "version",
        yield "--help",
        yield "plan", "--help"
        yield "train", self.config, "--ranks", "4", "train.steps=1"
        yield "bench", "gemm", self.config, "--repeats", "1"

    def test_output_that_is_lost_ends_with_3(self):
        for command in self.commands():
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = tandem(*command, stdout=full)
            self.assertEqual(done.returncode, 3, f"{command} {done.stderr}")
            self.assertRegex(done.stderr, "error: standard output could not be written")
            closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", TANDEM, *command],
                                    capture_output=True, text=True, env=ENVIRONMENT, timeout=100)
            self.assertEqual(closed.returncode, 3, f"{command} {closed.stderr}")
            self.assertRegex(closed.stderr, "error: standard output is closed")

    def unread(self, *overrides, full=False):
        """A run whose output nobody reads yet, into a pipe of 4 KiB."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        if full:
            os.write(writer, 4096 * b" ")
        job = subprocess.Popen([TANDEM, "train", self.config, "--ranks", "4", *overrides],
                               stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE,
                               text=True, env=ENVIRONMENT)
        os.close(writer)
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        return job, reader

    def test_a_slow_reader_gets_all_of_it(self):
        job, reader = self.unread("train.steps=100")
        time.sleep(10)  # of which training takes two
        self.assertIsNone(job.poll())
        with os.fdopen(os.dup(reader), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(job.wait(60), 0, job.stderr.read())
        self.assertEqual(len(re.findall("^step +", text, re.MULTILINE)), 100)
        self.assertRegex(text, "loss +[0-9.]+ -> [0-9.]+\n$")

    def test_a_reader_that_stands_still_keeps_no_run_from_its_end(self):
        job, _ = self.unread("train.steps=100")
        time.sleep(4)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 3)
        self.assertRegex(job.stderr.read(), "^error: .*: some of it is lost\n$")
        job, _ = self.unread("train.steps=100", "model.init_std=1e20", full=True)
        self.assertEqual(job.wait(30), 4)
        self.assertRegex(job.stderr.read(), "error: step 1: loss .* not both finite")

    def test_a_closed_error_stream_gets_no_file(self):
        metrics = self.path("metrics.jsonl")
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" 2>&-', "sh", TANDEM, "train", self.config, "--ranks", "4",
             "train.steps=9", "optimizer.lr=1e30", "logging.metrics=" + metrics],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
            timeout=100)
        self.assertEqual(done.returncode, 4, done.stdout)
        with open(metrics, encoding="utf-8") as file:
            for line in file:
                json.loads(line)  # the message about a loss that is not finite is none

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
                     self.trace(name="y" * 100000), "--around", "x")
        self.refused(2, "it has dispatch_fwd L0 L3 mb0..1$", "trace", self.trace(), "--around",
                     "dispatch_fwd L99 mb0")

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
        self.refused(2, "start a multiple of 4 ranks, as in mpirun -np 4 or --ranks 4", "plan",
                     self.config, "--ranks", "3")

    def test_what_cannot_be_written_leaves_nothing_behind(self):
        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

        text = self.written("a.txt", b"words" * 1000)
        event = {"ph": "X", "name": "dispatch_fwd", "cat": "F", "tid": 1, "ts": 0, "dur": 1,
                 "args": {"layer": 0, "microbatch": 0}}
        lane = {"ph": "M", "name": "thread_name", "tid": 1, "args": {"name": "ep"}}
        events = [lane] + [dict(event, ts=2 * i) for i in range(30)]
        trace = self.written("t.json", json.dumps(
            {"distributedInfo": {"rank": 0}, "traceEvents": events}).encode())
        before = set(os.listdir(self.folder))
        for arguments in (("tokenize", self.path("p"), text),
                          ("trace", trace, "--svg", self.path("t.svg")),
                          ("schedule", self.config, "--svg", self.path("s.svg"))):
            done = tandem(*arguments, preexec_fn=limit_files)
            self.assertEqual(done.returncode, 3, f"{arguments} {done.stdout} {done.stderr}")
            self.assertRegex(done.stderr, "error: .*check the folder and the space")
            self.assertEqual(set(os.listdir(self.folder)), before, arguments)
        # An older picture or pair stays as it is.
        self.written("t.svg", b"old")
        done = tandem("trace", trace, "--svg", self.path("t.svg"), preexec_fn=limit_files)
        self.assertEqual(done.returncode, 3)
        with open(self.path("t.svg"), "rb") as file:
            self.assertEqual(file.read(), b"old")
        self.assertEqual(tandem("trace", trace, "--svg", self.path("t.svg")).returncode, 0)
        with open(self.path("t.svg"), "rb") as file:
            self.assertIn(b"<svg", file.read())
        self.assertIn("<svg", tandem("trace", trace, "--svg", "/dev/stdout").stdout)
        before.add("t.svg")
        self.refused(0, "1 documents", "tokenize", self.path("p"), self.written("b.txt", b"words"))
        done = tandem("tokenize", self.path("p"), text, preexec_fn=limit_files)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(os.path.getsize(self.path("p.bin")), 10)
        self.assertEqual(set(os.listdir(self.folder)), before | {"b.txt", "p.bin", "p.idx"})
        self.refused(3, "nowhere", "tokenize", "/nowhere/p", text)

    def test_files_beyond_the_limit_of_their_size(self):
        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        train = ["train", self.config, "--ranks", "4", "train.steps=30"]
        with open(self.path("out"), "w", encoding="utf-8") as out:
            done = tandem(*train, stdout=out, preexec_fn=limit_files)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, "^error: standard output could not be written")
        self.assertEqual(os.path.getsize(self.path("out")), 2000)
        done = tandem(*train, "checkpoint.dir=" + self.path("c"), preexec_fn=limit_files)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, "error: .*File too large")

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

    def test_a_schedule_too_long_to_read_is_cut(self):
        def drawn(*arguments, width=100):
            done = tandem("schedule", self.config, "--width", str(width), *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        whole = drawn()
        self.assertNotRegex(whole, r"[.]{3}|\d of \d+ units|here")
        long = ["train.global_batch=512"]
        text = drawn(*long)
        self.assertRegex(text, r"stage 0: F0c0 .* [0-9&FBc]+ [.]{3} \d+ more\n")
        self.assertRegex(text, r"240 of \d+ units[.] --from \w+: .*--all.*train.global_batch=8: a step of 4")
        # What it proposes is a legal batch.
        group = drawn(*long, "parallel.microbatch_group=4")
        batch = re.search(r"train.global_batch=\d+", group).group(0)
        drawn(batch, "parallel.microbatch_group=4")
        self.assertLess(max(map(len, text.splitlines()[:2])), 2 * 100 + 20)
        self.assertNotIn("in each cell", text)
        every = drawn(*long, "--all")
        self.assertRegex(every, r"stage 0: F0c0 .* B255c0\n")
        self.assertNotRegex(every, r"[.]{3}|\d of \d+ units|here")
        self.assertIn("in each cell", every)
        # What is shown begins as the whole does.
        first, all_of_it = (
            [line for line in drawn("train.global_batch=32", *more, width=2000).splitlines()
             if line.startswith("compute")][0] for more in ([], ["--all"]))
        self.assertTrue(all_of_it.startswith(first) and len(all_of_it) > len(first), first)
        later = drawn(*long, "--from", "300")
        self.assertIn("here 300 to 540", later)
        self.assertRegex(later, r"\n +300 ")
        self.refused(2, r"--from 9999999: the program of stage 0 has \d+ units", "schedule",
                     self.config, "--from", "9999999")

        many = drawn("model.layers=32", "parallel.pp=32", "parallel.vpp=1", "parallel.ep=1",
                     "--ranks", "32")
        self.assertIn("stage 15: ", many)
        self.assertNotIn("stage 16: ", many)
        self.assertIn("... 16 more stages", many)

    def modelled(self, *arguments):
        """(share of idle compute, its causes by name, hidden share) of a step, in percent."""
        done = tandem("schedule", self.config, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = re.search(r"step .*, compute idle ([0-9.]+) % \((.*)\), expert all-to-all ([0-9.]+) % "
                         r"hidden under compute, [0-9]+ tokens/s on \d ranks\n", done.stdout)
        self.assertTrue(said, done.stdout)
        causes = dict(cause.rsplit(" ", 1) for cause in said[2].split(", "))
        return float(said[1]), {name: float(share) for name, share in causes.items()}, float(said[3])

    def test_what_compute_waits_for(self):
        idle, causes, hidden = self.modelled()
        self.assertEqual(set(causes), {"all-to-all", "pipeline", "gradient sync"})
        self.assertAlmostEqual(sum(causes.values()), idle, delta=0.2)  # each is rounded
        _, slow_causes, slow_hidden = self.modelled("--gb-per-s", "0.001")
        self.assertLess(slow_hidden, hidden)
        self.assertGreater(slow_causes["all-to-all"], causes["all-to-all"])
        one = ["parallel.pp=1", "parallel.vpp=1", "--ranks", "2", "--svg", self.path("a.svg")]
        self.assertEqual(set(self.modelled(*one)[1]), {"all-to-all", "gradient sync"})
        self.assertIn("modelled, not measured: 500 TFLOP/s and 50 GB/s a rank",
                      tandem("schedule", self.config).stdout)
        with open(self.path("a.svg"), encoding="utf-8") as file:
            self.assertIn("modelled, not measured: 500 TFLOP/s and 50 GB/s a rank", file.read())

    def report(self, *arguments):
        """What a command writes for --json, to a file beside its tables or instead of them."""
        tables = tandem(*arguments)
        self.assertEqual(tables.returncode, 0, tables.stderr)
        both = tandem(*arguments, "--json", self.path("report.json"))
        alone = tandem(*arguments, "--json", "-")
        with open(self.path("report.json"), encoding="utf-8") as file:
            report = json.load(file)
        again = json.loads(alone.stdout)
        for timed in (report, again):
            timed.pop("check_s", None)
        self.assertEqual(report, again)
        self.assertEqual(report["command"], arguments[0])
        self.assertEqual(report["layout"]["pp"] * report["layout"]["dp"], report["layout"]["ranks"])
        timeless = re.compile(r" in [0-9.]+ s\n")
        self.assertEqual(timeless.sub("", both.stdout), timeless.sub("", tables.stdout))
        return report, tables.stdout

    def test_reports_say_what_the_tables_say(self):
        plan, said = self.report("plan", self.config)
        self.assertIn(f"({plan['model']['parameters']} and {plan['model']['active_parameters']})", said)
        self.assertIn(f"per step of {plan['tokens_per_step']} tokens", said)
        self.assertEqual([stage["chunks"][0]["embedding"] for stage in plan["stages"]], [True, False])
        for stage in plan["stages"]:
            self.assertIn(f"{stage['parameters']:>14} {stage['warmup_tasks']:>7}", said)
            parts = [stage[name + "_bytes"]
                     for name in ("params", "grads", "optimizer", "saved", "transient")]
            self.assertEqual(sum(parts), stage["total_bytes"])
        self.assertEqual(plan["largest_rank"]["bytes"],
                         max(stage["total_bytes"] for stage in plan["stages"]))
        self.assertEqual(plan["largest_rank"]["h100_80gb"], "fits")

        schedule, said = self.report("schedule", self.config, "--gb-per-s", "5")
        step = schedule["modelled"]
        self.assertEqual(schedule["machine"]["bytes_per_s"], 5e9)
        self.assertIn(f"compute idle {100 * step['compute_idle_share']:.1f} %", said)
        self.assertIn(f"{100 * step['alltoall_hidden_share']:.1f} % hidden", said)
        self.assertAlmostEqual(step["tokens_per_s"], 8 * 16 / step["step_s"])
        self.assertEqual(len(schedule["stages"]), 2)
        for stage in schedule["stages"]:
            self.assertIn(f"stage {stage['stage']}: {stage['tasks']}\n", said)
        dense, _ = self.report("schedule", self.config, "parallel.ep=1", "model.experts=0", "--ranks", "2")
        self.assertIsNone(dense["modelled"]["alltoall_hidden_share"])

        check, said = self.report("check", self.config)
        self.assertTrue(check["sound"])
        self.assertEqual(len(check["families"]), 3)
        for family in check["families"]:
            self.assertRegex(said, rf"{family['programs']} +{family['instructions']} instructions +"
                                   rf"{family['waits']} waits")

        for command in ("plan", "schedule", "check"):
            self.refused(2, "--json .* would overwrite", command, self.config, "--json", self.config)
            self.refused(3, "error: .*nowhere", command, self.config, "--json", "/nowhere/x.json")

    def test_what_a_gpu_holds_leaves_room_for_libraries(self):
        def largest(tokens):
            done = tandem("plan", self.config, f"train.seq_len={tokens}")
            self.assertEqual(done.returncode, 0, done.stderr)
            said = re.search(r"largest rank: ([0-9.]+) GiB, and 3 to 5 GiB more .*; (.*)\n", done.stdout)
            return float(said[1]), said[2]

        self.assertEqual(largest(16)[1], "fits the 80 GB of an H100")
        per_token = largest(1 << 20)[0] / (1 << 20)
        for gib, said in ((73, "fits the 80 GB of an H100"),
                          (77.5, "tight on the 80 GB of an H100, fits the 141 GB of an H200"),
                          (81, "too much for the 80 GB of an H100, fits the 141 GB of an H200"),
                          (137, "too much for the 80 GB of an H100, tight on the 141 GB of an H200"),
                          (145, "too much for the 80 GB of an H100, too much for the 141 GB of an H200: "
                                "more pp, ep or dp, or a smaller micro-batch")):
            need, answer = largest(round(gib / per_token))
            self.assertAlmostEqual(need, gib, delta=1)
            self.assertEqual(answer, said)

    def test_complaints_about_options_look_like_all_others(self):
        for command in ("train", "plan"):
            self.refused(2, r"^error: there is no option --num-layers; keys of the config go as "
                            rf"section[.]key=value, as in model[.]layers=4; tandem {command} --help "
                            r"lists the options\n$", command, self.config, "--num-layers", "4")
        self.refused(2, r"^error: --ranks: 0 is outside \[1, 262144\]; tandem plan --help lists the "
                        r"options\n$", "plan", self.config, "--ranks", "0")
        self.refused(2, "^error: there is no option --svgs; tandem trace --help", "trace", "t.json",
                     "--svgs", "a.svg")
        self.refused(2, "^error: .*tandem train --help lists", "train")
        self.refused(2, "^error: .*tandem --help lists", "--nonsense")
        self.refused(2, "^error: --gb-per-s: nan is no number in", "schedule", self.config,
                     "--gb-per-s", "nan")

    def test_keys_that_change_nothing_are_told(self):
        job = self.threads("train.steps=3", "train.comm=nccl", "optimizer.loss_scale=1024")
        self.require_end(job, 0, "warning: train.comm = nccl: no effect, as the model runs on the CPU",
                         "warning: optimizer.loss_scale = 1024: no effect without train.dtype=fp16")
        self.assertEqual(job.text().count("warning"), 2, "said once, and nothing else")

    def test_lines_of_evaluations_have_the_format_that_is_asked_for(self):
        def lines(kind):
            done = tandem("train", self.config, "--ranks", "4", "train.steps=3",
                          "train.eval_every=2", f"logging.format={kind}")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.splitlines()

        records = [json.loads(line) for line in lines("json")]  # nothing else
        self.assertEqual([(record["step"], "lm loss validation" in record) for record in records],
                         [(0, True), (1, False), (2, False), (2, True), (3, False), (3, True)])
        held_out = [record["lm loss validation"] for record in records if len(record) == 2]
        found = [re.fullmatch(r" validation loss at iteration (\d+) \| lm loss value: (\S+) \| "
                              r"lm loss PPL: (\S+) \| ", line) for line in lines("megatron")]
        found = [[float(word) for word in match.groups()] for match in found if match]
        self.assertEqual([step for step, _, _ in found], [0, 2, 3])
        for (_, loss, perplexity), exact in zip(found, held_out, strict=True):
            self.assertAlmostEqual(loss, exact, delta=5e-7 * exact)  # seven digits
            self.assertAlmostEqual(perplexity, math.exp(exact), delta=5e-6 * perplexity)

    def test_train_counts_parameters_as_plan_does(self):
        total, active = re.search(r"parameters +(\S+ [KMB]) total, (\S+ [KMB]) active",
                                  tandem("plan", self.config).stdout).groups()
        done = tandem("train", self.config, "--ranks", "4", "train.steps=1")
        self.assertIn(f" {total} parameters, {active} active", done.stdout)


if __name__ == "__main__":
    unittest.main()
