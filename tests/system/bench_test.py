"""`tandem bench` as its users run it: exit codes, what it says, and the file it writes."""

import json
import math
import resource
import subprocess
import unittest

from jobs import ENVIRONMENT, MPIRUN, SANITIZER, TANDEM, Job, JobTest

ONE = ["parallel.pp=1", "parallel.vpp=1", "parallel.ep=1"]


class Bench(JobTest):
    def bench(self, *arguments, ranks=0):
        if ranks and SANITIZER == "thread":
            self.skipTest("the MPI library is not instrumented for ThreadSanitizer")
        launch = [MPIRUN, "-np", str(ranks), "--bind-to", "none"] if ranks else []
        job = Job([*launch, TANDEM, "bench", *arguments, "--repeats", "2"],
                  env=dict(ENVIRONMENT, ASAN_OPTIONS="detect_leaks=0"))
        self.addCleanup(job.kill)
        return job

    def rows(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            report = json.load(file)
        for row in report["limits"] + report["rows"]:
            self.assertTrue(math.isfinite(row["ms"]) and row["ms"] > 0, row)
        return report

    def test_rows_go_to_the_terminal_and_to_a_file(self):
        self.require_end(self.bench("gemm", self.config, "--json", self.path("gemm.json"), *ONE), 0,
                         "limit", "qkv", "bwd_weight", "TFLOP/s")
        report = self.rows("gemm.json")
        qkv = next(row for row in report["rows"] if row["group"] == "qkv")
        # 16 tokens, hidden 32, 2 heads and 2 times 1 of 16: 64 columns
        self.assertEqual((qkv["shape"], qkv["flops"]), ("16 x 64 x 32", 2 * 16 * 64 * 32))
        self.assertIn("bench gemm", report["command"])
        self.assertIn("cpu", report["device"])
        self.assertRegex(report["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(report["config"]["model"]["hidden"], 32)

    def test_without_a_file_overrides_stand_alone(self):
        self.require_end(self.bench("attention", "train.device=cpu", "train.seq_len=64"), 0, "fwd")

    def test_ranks_as_processes(self):
        self.require_end(self.bench("slice", self.config, "--json", self.path("slice.json"),
                                    ranks=4), 0, "median")
        self.assertEqual(self.rows("slice.json")["ranks"], 4)
        self.require_end(self.bench("alltoall", self.config, "--json", self.path("a.json"),
                                    ranks=3), 0, "64 KiB")
        for row in self.rows("a.json")["rows"]:
            self.assertGreater(row["slowdown"], 0)

    def test_one_rank_has_no_share_of_hidden_exchanges(self):
        for layout, ranks in ((ONE, 1), (["parallel.pp=1", "parallel.vpp=1", "parallel.ep=2"], 2)):
            job = self.bench("slice", self.config, *layout, "--ranks", str(ranks), "--json",
                             self.path("s.json"))
            self.require_end(job, 0, "median .* - " if ranks == 1 else "median")
            shares = [row["hidden_pct"] for row in self.rows("s.json")["rows"]]
            self.assertEqual([share is None for share in shares], [ranks == 1] * len(shares))

    def test_wrong_use_ends_with_2_and_says_what_helps(self):
        for arguments, says in (
                (["lyaer"], "did you mean layer"),
                (["gemm", "nowhere.json"], "nowhere.json"),
                (["gemm", "model.hiden=8"], "did you mean model.hidden"),
                (["grouped", "model.experts=0"], "no experts"),
                (["layer", "--ranks", "2"], "one rank"),
                (["slice", self.config], "start 4 ranks|ranks"),
                (["gemm", "train.device=cpu", "--json"], "--json"),
                ([], "NAME")):
            with self.subTest(arguments=arguments):
                job = Job([TANDEM, "bench", *arguments])
                self.addCleanup(job.kill)
                self.require_end(job, 2, says)

    def test_a_file_that_cannot_be_written_ends_with_3(self):
        job = self.bench("attention", self.config, *ONE, "--json", "/dev/null/x.json")
        self.require_end(job, 3, "cannot be written")
        self.assertNotIn("fwd", job.text())  # it is known before anything is measured

    def test_what_does_not_fit_ends_with_6_and_one_message(self):
        # Terabytes, which no system hands out, and two matrices that each fit into the memory of
        # this machine, which it would.
        huge = ["model.hidden=1048576", "model.moe_ffn=67108864"]
        with open("/proc/meminfo", encoding="ascii") as file:
            there = next(int(line.split()[1]) << 10 for line in file if "MemTotal" in line)
        vocab = 1 << 22
        columns = min(128 * math.ceil(0.6 * there / (4 * 128 * vocab)), 1 << 20)  # fp32
        for name, overrides in (("grouped", huge), ("layer", huge),
                                ("attention", ["train.seq_len=536870912"]),
                                ("gemm", [f"model.vocab={vocab}", f"model.hidden={columns}"]),
                                ("slice", ["model.hidden=1048576"])):
            with self.subTest(bench=name, overrides=overrides):
                job = self.bench(name, "train.device=cpu", *overrides)
                self.require_end(job, 6, "out of memory|GiB are free")
                self.assertEqual(job.text().count("error: "), 1, job.text())

    @unittest.skipIf(SANITIZER, "sanitizers need address space of their own")
    def test_memory_that_ends_at_any_moment_ends_with_6(self):
        sizes = ["model.hidden=512", "model.moe_ffn=1024", "model.vocab=8192"]
        environment = dict(ENVIRONMENT, OPENBLAS_NUM_THREADS="1")

        def under(limit, *arguments):
            return subprocess.run(
                [TANDEM, *arguments], capture_output=True, text=True, timeout=100, check=False,
                env=environment,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

        # The libraries of a build for GPUs alone are hundreds of MiB.
        least = next(limit for limit in range(200 << 20, 16 << 30, 40 << 20)
                     if under(limit, "version").returncode == 0)
        for name in ("gemm", "grouped", "layer", "slice"):
            codes = []
            for limit in range(least, least + (400 << 20), 80 << 20):
                done = under(limit, "bench", name, self.config, *ONE, *sizes, "--repeats", "1")
                codes.append(done.returncode)
                with self.subTest(bench=name, limit=limit):
                    self.assertIn(done.returncode, (0, 6), done.stderr)
            self.assertIn(6, codes)

    def test_json_instead_of_the_tables(self):
        done = subprocess.run([TANDEM, "bench", "gemm", self.config, *ONE, "--json", "-"],
                              capture_output=True, text=True, timeout=100, check=True)
        self.assertEqual(json.loads(done.stdout)["bench"], "gemm")


if __name__ == "__main__":
    unittest.main()
