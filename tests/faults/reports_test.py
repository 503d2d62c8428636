"""Tables, reports and the lines of a run say the same, in the form that is asked for."""

import json
import math
import os
import re
import unittest

from jobs import ENVIRONMENT, MPIRUN, SANITIZER, TANDEM, JobTest, tandem


class Reports(JobTest):
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
        for ranks, counted in ((["--ranks", "1"], "1 rank"), (["--ranks", "2"], "2 ranks")):
            alone, said = self.report("schedule", self.config, "parallel.ep=1", "parallel.pp=1",
                                      "parallel.vpp=1", *ranks)
            self.assertIsNone(alone["modelled"]["alltoall_hidden_share"])
            self.assertNotIn("hidden under compute", said)
            self.assertIn(f"tokens/s on {counted}\n", said)
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
            self.refused(3, "error: /dev/null/x.json cannot be written", command, self.config,
                         "--json", "/dev/null/x.json")

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

    def test_shares_of_the_all_to_all_are_told_where_ranks_exchange_rows(self):
        keys = {"alltoall-hidden-share", "alltoall-exposed-ms"}
        for ep, delay_us, told in ((1, 0, set()), (1, 500, set()), (2, 0, keys)):
            done = tandem("train", self.config, "--ranks", "4", "train.steps=1",
                          f"parallel.ep={ep}", f"train.alltoall_delay_us={delay_us}",
                          "logging.format=json", "logging.trace_steps=1",
                          "logging.trace=" + self.path("t"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(keys & set(json.loads(done.stdout.splitlines()[0])), told)
            # A picture also shows what a modelled network would let hide.
            traced = tandem("trace", self.path("t-rank0.json"), "--svg", self.path("t.svg"))
            self.assertEqual(traced.returncode, 0, traced.stderr)
            with open(self.path("t.svg"), encoding="utf-8") as file:
                for text in (traced.stdout, file.read()):
                    self.assertEqual("% hidden" in text, ep > 1 or delay_us > 0, text[-300:])

    def test_the_end_names_the_traces(self):
        train = ["train", self.config, "--ranks", "4", "train.steps=3",
                 "logging.trace=" + self.path("t")]
        done = tandem(*train, "logging.trace_begin=1", "logging.trace_steps=1")
        self.assertIn(f"trace    {self.path('t')}-rank0.json to {self.path('t')}-rank3.json\n",
                      done.stdout)
        self.assertTrue(os.path.exists(self.path("t-rank3.json")))

    @unittest.skipIf(os.cpu_count() == 1, "wants two cores")
    def test_fewer_cores_than_threads_are_told(self):
        core = {min(os.sched_getaffinity(0))}
        for threads, told in ((2, True), (1, False), (0, False)):  # 0: of the cores it may use
            done = tandem("train", self.config, "--ranks", "4", "train.steps=1",
                          f"train.cpu_threads={threads}",
                          preexec_fn=lambda: os.sched_setaffinity(0, core))
            self.assertEqual(done.returncode, 0, done.stderr)
            said = done.stdout + done.stderr
            self.assertRegex(said, r"4 ranks on \d+ cores, of which rank 0 may use 1\n")
            self.assertEqual("4 of 4 ranks will be slow for want of cores: rank 0 has 2 threads and "
                             "may use 1 core; set train.cpu_threads=1\n" in said, told, said)
            self.assertEqual("for want of cores" in said, told, said)
        if len(os.sched_getaffinity(0)) == os.cpu_count():
            self.assertNotIn("may use", tandem("train", self.config, "--ranks", "4",
                                               "train.steps=1").stdout)

    @unittest.skipIf(len(os.sched_getaffinity(0)) == 1, "wants two cores")
    def test_ranks_that_are_bound_to_fewer_cores_than_their_share_are_told(self):
        if SANITIZER == "thread":
            self.skipTest("the MPI library is not instrumented for ThreadSanitizer")
        cores = len(os.sched_getaffinity(0))
        told = (f"1 of 1 rank will be slow for want of cores: rank 0 may use 1 core, its share of "
                f"the host is {cores}; start the ranks unbound (mpirun --bind-to none)\n")
        core = {min(os.sched_getaffinity(0))}
        for ranks, bind_to, script, allowed, says in (
                (1, "hwthread", [], None, told),
                (2, "hwthread", ["sh", "-c", '"$@"; exit $?', "sh"], None,
                 "start the ranks unbound" if os.cpu_count() >= 4 else ""),
                (1, "none", [], None, ""),
                (2, "none", [], core, "")):  # as in a container that has one core
            with self.subTest(ranks=ranks, bind_to=bind_to, allowed=allowed):
                job = self.start(
                    [MPIRUN, "-np", str(ranks), "--bind-to", bind_to, *script, TANDEM, "train",
                     self.config, "parallel.pp=1", "parallel.vpp=1", "parallel.ep=1",
                     "train.steps=1", "train.cpu_threads=0"],
                    env=dict(ENVIRONMENT, ASAN_OPTIONS="detect_leaks=0"),
                    preexec_fn=lambda to=allowed: to and os.sched_setaffinity(0, to))
                self.require_end(job, 0)
                self.assertIn(says, job.text())
                self.assertEqual("for want of cores" in job.text(), bool(says), job.text())

    def test_train_counts_parameters_as_plan_does(self):
        total, active = re.search(r"parameters +(\S+ [KMB]) total, (\S+ [KMB]) active",
                                  tandem("plan", self.config).stdout).groups()
        done = tandem("train", self.config, "--ranks", "4", "train.steps=1")
        self.assertIn(f" {total} parameters, {active} active", done.stdout)


if __name__ == "__main__":
    unittest.main()
