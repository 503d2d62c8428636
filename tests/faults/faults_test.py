"""What goes wrong ends the job soon, with its own exit code and a message that says where."""

import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import time
import unittest

from jobs import ENDLESS, SANITIZER, TANDEM, JobTest, alive, of_process

INSTRUCTION = r"(RUN|SEND|RECV|HOST_WAIT|GRAD_SYNC|OPT_STEP) (compute|ep|host|send|recv|dp)"


def contents(folder):
    """Checksums of all files below, by name."""
    sums = {}
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                sums[os.path.join(where, name)] = hashlib.sha256(file.read()).hexdigest()
    return sums


def waits_of_thread(pid, name):
    """How often the process's thread of this name has waited; 0 before it begins."""
    for task in os.listdir(f"/proc/{pid}/task"):
        if of_process(f"{pid}/task/{task}", "comm").strip() == name:
            waits = re.search(r"^voluntary_ctxt_switches:\s*(\d+)",
                              of_process(f"{pid}/task/{task}", "status"), re.MULTILINE)
            return int(waits[1]) if waits else 0
    return 0


class Killed(JobTest):
    def test_kill_9_of_a_rank_ends_all(self):
        job = self.mpirun(*ENDLESS, "train.watchdog_s=30", "train.alltoall_delay_us=20000")
        job.wait_for(r"step +2/")
        ranks = dict(job.ranks())
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        os.kill(ranks[1], signal.SIGKILL)
        begin = time.monotonic()
        code = job.end()
        self.assertLess(time.monotonic() - begin, 30, "mpirun sees it long before the watchdog")
        text = job.text()
        self.assertNotEqual(code, 0, text)
        self.assertRegex(text, r"rank 1 .*\n?.*signal 9")
        self.assertRegex(text, r"rank [023] was told to terminate; its lanes stand at")
        self.assertRegex(text, INSTRUCTION)
        self.require_gone(ranks.values())

    def test_a_stopped_rank_trips_the_watchdog(self):
        job = self.mpirun(*ENDLESS, "train.watchdog_s=2", "train.alltoall_delay_us=5000")
        job.wait_for(r"step +2/")
        ranks = dict(job.ranks())
        os.kill(ranks[2], signal.SIGSTOP)
        # 8 s where it was stopped while batches are loaded.
        self.require_end(job, 5, r"rank 2 was stopped for \d+\.\d s", INSTRUCTION, seconds=40)
        for rank in (0, 1, 3):  # each says it, once, with its lanes below
            reports = re.findall(rf"error: rank {rank} has not moved for [28] s .*; its lanes stand "
                                 r"at\n  ([a-z_]+: [A-Z]|between steps)", job.text())
            self.assertEqual(len(reports), 1, job.text())
        self.assertNotRegex(job.text(), r"rank 2 has not moved|ended because the job was aborted")
        self.assertNotRegex(job.text(), r"rank [013] was (stopped|told)")
        self.require_gone(ranks.values())

    def test_a_job_that_is_stopped_as_a_whole_goes_on(self):
        # mpirun gives every rank a process group of its own. Without one, SIGTSTP would do nothing
        # where the group of this test has no parent left that could continue it.
        for run, options in ((self.mpirun, {}), (self.threads, {"preexec_fn": os.setpgrp})):
            job = run(*ENDLESS, "train.watchdog_s=2", "train.alltoall_delay_us=30000", **options)
            job.wait_for(r"step +2/")
            pids = list(job.ranks().values()) or [job.process.pid]
            for how, seconds in ((signal.SIGTSTP, 4), (signal.SIGSTOP, 0.9), (signal.SIGSTOP, 0.9)):
                for pid in pids:
                    os.kill(pid, how)
                time.sleep(seconds)
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
            job.process.send_signal(signal.SIGUSR1)
            # On a busy machine nothing runs between two of them, and they are one.
            self.require_end(job, 0, r"was stopped for [3-9]\.\d s", "stopped by a signal")

    @unittest.skipIf(SANITIZER, "a sanitizer's library must be the first that is loaded")
    def test_a_rank_that_is_stopped_at_its_end_ends_all(self):
        job = self.mpirun("train.steps=2", "train.watchdog_s=1", "checkpoint.dir=" + self.path("c"),
                          variables={"LD_PRELOAD": os.environ["STOP_AT_END_LIBRARY"],
                                     "TANDEM_STOPPED_RANK": "2"})
        job.wait_for("done +2 steps")
        ranks = dict(job.ranks())
        waits = r"\[rank {}\] error: the job has not ended 4 s after its training"
        self.require_end(job, 5, *(waits.format(rank) for rank in (0, 1, 3)), seconds=40)
        self.assertNotIn("[rank 2]", job.text())
        self.require_gone(ranks.values())
        self.require_end(self.mpirun("train.steps=2", "checkpoint.dir=" + self.path("c")), 0,
                         "nothing to do")

    def stop_in_benchmark(self, name, *expected):
        job = self.mpirun("train.watchdog_s=2", "train.alltoall_delay_us=20000", "--repeats", "60",
                          command=("bench", name))
        ranks = dict(job.ranks())
        end = time.monotonic() + 60
        while waits_of_thread(ranks[2], "ep") < 100:  # its lane is in the midst of all-to-alls
            self.assertLess(time.monotonic(), end, job.text())
            time.sleep(0.05)
        os.kill(ranks[2], signal.SIGSTOP)
        self.require_end(job, 5, *expected, seconds=40)
        self.require_gone(ranks.values())

    def test_a_stopped_rank_ends_a_benchmark_of_all_to_alls(self):
        # Eight where the rank is stopped within a measurement, which has patience.
        self.stop_in_benchmark("alltoall", r"rank [013] has not moved for [28] s")

    def test_a_stopped_rank_ends_a_benchmark_of_steps(self):
        self.stop_in_benchmark("slice", r"rank [013] has not moved for [28] s")

    @unittest.skipIf(SANITIZER, "a sanitizer's library must be the first that is loaded")
    def test_a_rank_that_is_stopped_at_its_end_ends_a_benchmark(self):
        for name in ("slice", "alltoall"):
            job = self.mpirun("train.watchdog_s=1", "--repeats", "1", command=("bench", name),
                              variables={"LD_PRELOAD": os.environ["STOP_AT_END_LIBRARY"],
                                         "TANDEM_STOPPED_RANK": "2"})
            self.require_end(job, 5, r"error: the job has not ended 4 s after its benchmarking",
                             seconds=60)

    def test_sigterm_saves_what_it_can_and_says_where_the_lanes_are(self):
        # Steps long enough for the signal to be reported within one.
        job = self.threads(*ENDLESS, "train.alltoall_delay_us=20000",
                           "checkpoint.dir=" + self.path("c"))
        job.wait_for(r"step +3/")
        job.process.send_signal(signal.SIGTERM)
        self.require_end(job, 0, r"was told to terminate", r"saved +step \d+")
        self.require_end(self.threads("train.steps=1", "checkpoint.dir=" + self.path("c")), 0,
                         r"resume +step \d+")

    def test_ctrl_c_saves(self):
        job = self.threads(*ENDLESS, "checkpoint.dir=" + self.path("c"))
        job.wait_for(r"step +3/")
        job.process.send_signal(signal.SIGINT)
        self.require_end(job, 0, r"stopped by a signal")
        self.assertTrue(os.listdir(self.path("c")))


class Checkpoints(JobTest):
    def save_to(self, name):
        return "checkpoint.dir=" + self.path(name)

    def one_at_a_time(self, run):
        first = run(*ENDLESS, self.save_to("c"), "checkpoint.every=20")
        first.wait_for(r"saved +step 20")
        second = run("train.steps=40", self.save_to("c"))
        self.require_end(second, 3, r"c is in use by another run \(process \d+ on .+\)")
        self.assertEqual(second.text().count("in use"), 1, "said once, not by every rank")
        self.assertNotRegex(second.text(), r"step +\d+/")
        first.wait_for(r"saved +step 40")  # undisturbed
        # A run that is killed holds nobody up.
        ranks = dict(first.ranks()).values()
        first.process.kill()
        first.process.wait()
        for pid in ranks:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.require_gone(ranks)
        self.require_end(run("train.steps=1", self.save_to("c")), 0, r"resume +step \d+")

    def test_one_run_at_a_time_under_mpirun(self):
        self.one_at_a_time(self.mpirun)

    def test_one_run_at_a_time_with_ranks_as_threads(self):
        self.one_at_a_time(self.threads)

    def test_a_run_that_could_not_save_does_not_begin(self):
        for run in (self.threads, self.mpirun):
            for folder in ("/proc/x", "/dev/null/x"):
                job = run("train.steps=5", "checkpoint.dir=" + folder)
                self.require_end(job, 3, folder, "checkpoint.dir must be")
                self.assertEqual(job.text().count(folder + ":"), 1, "said once")
                self.assertNotRegex(job.text(), r"step +\d+/")

    def test_a_finished_run_needs_no_more_than_to_read(self):
        self.require_end(self.threads("train.steps=2", self.save_to("c")), 0)
        os.remove(self.path("c/.lock"))
        os.chmod(self.folder, 0o755)
        os.chmod(self.path("c"), 0o555)
        plain = {"user": 65534} if os.geteuid() == 0 else {}
        self.require_end(self.threads("train.steps=2", self.save_to("c"), **plain), 0,
                         "nothing to do")
        job = self.threads("train.steps=3", self.save_to("c"), **plain)
        self.require_end(job, 3, "Permission denied", "checkpoint.dir must be")
        self.assertNotRegex(job.text(), r"step +\d+/")

    def test_changes_since_the_checkpoint_are_refused_or_told(self):
        self.require_end(self.threads("train.steps=2", self.save_to("c")), 0)
        for key, old, new, code in (("model.rope_theta", "10000", "500000", 3),
                                    ("model.tied_embeddings", "false", "true", 3),
                                    ("train.seq_len", "16", "8", 2)):
            job = self.threads("train.steps=3", self.save_to("c"), f"{key}={new}")
            self.require_end(job, code, f"{key}: {old} -> {new}")
            self.assertEqual(job.text().count("->"), 1, "said once, and nothing else")
        self.require_end(self.threads("train.steps=3", self.save_to("c"), "optimizer.lr=0.002"), 0,
                         r"warning: the run continues with other values",
                         r"optimizer.lr: 0.003 -> 0.002")
        self.require_end(self.threads("train.steps=1", self.save_to("c"),
                                      "checkpoint.resume=false"), 0,
                         r"warning: checkpoint.resume=false, but .*step-00000003 is there")


class NotFinite(JobTest):
    def explode(self, run):
        save = "checkpoint.dir=" + self.path("c")
        self.require_end(run("train.steps=3", save), 0, "saved +step 3")
        before = contents(self.path("c"))
        # The first step with this rate is still finite; the parameters it leaves are not usable.
        self.require_end(run("train.steps=9", save, "optimizer.lr=1e30"), 4,
                         r"step [45]: loss .* not both finite", r"rank [0-3]: ", r"layer \d",
                         "\nLower optimizer.lr, raise optimizer.warmup_steps")
        self.assertEqual(contents(self.path("c")), before)
        self.require_end(run("train.steps=5", save), 0, "resume +step 3", "saved +step 5")

    def test_the_first_step(self):
        job = self.threads("train.steps=3", "model.init_std=1e20")
        self.require_end(job, 4, "step 1: loss .* not both finite", "look at model.init_std")
        self.assertNotIn("optimizer.lr", job.text())

    def test_parameters_that_the_last_update_broke_are_not_saved(self):
        save = "checkpoint.dir=" + self.path("c")
        for run in (self.threads, self.mpirun):
            self.require_end(run("train.steps=1", save), 0, "saved +step 1|nothing to do")
            before = contents(self.path("c"))
            # Finite in fp32, in which the update is made, and not in fp16.
            job = run("train.steps=1", save, "train.dtype=fp16", "optimizer.lr=1e6",
                      "optimizer.warmup_steps=0", "optimizer.schedule=constant",
                      "checkpoint.resume=false")
            self.require_end(job, 4, "error: step 1 is not saved: on rank [0-3], .* infinite in "
                             "fp16", "Lower optimizer.lr")
            self.assertEqual(job.text().count("error: "), 1, job.text())
            self.assertEqual(contents(self.path("c")), before)

    def test_router_losses_too_large_for_the_norm_are_named(self):
        self.require_end(self.threads("train.steps=2", "model.aux_loss_coef=1e37"), 4,
                         "none found in a second run", r"model.aux_loss_coef = 1e\+37")

    def test_under_mpirun(self):
        self.explode(self.mpirun)

    def test_with_ranks_as_threads(self):
        self.explode(self.threads)


class ExitCodes(JobTest):
    def test_bad_config(self):
        self.require_end(self.threads("model.kv_heads=3"), 2, "model.kv_heads")
        self.require_end(self.threads("train.steps"), 2)
        job = self.mpirun("model.layers=0", "model.experst=3")
        self.require_end(job, 2, "model.layers", "model.experts")

    def test_a_config_that_one_rank_cannot_read(self):
        job = self.mpirun(ranks=3, more=(self.path("missing.json"), 1))
        self.require_end(job, 2, "rank 3: .*missing.json", seconds=30)

    def test_wrong_number_of_ranks(self):
        self.require_end(self.threads(ranks=2), 2, "parallel.ep")
        self.require_end(self.mpirun(ranks=3), 2, "parallel.pp")

    def test_missing_input(self):
        missing = "data.train=" + '["' + self.path("no.txt") + '"]'
        for run in (self.threads, self.mpirun):
            job = run("data.kind=text", "model.vocab=256", missing)
            self.require_end(job, 3, "no.txt")
            self.assertEqual(job.text().count("no.txt"), 1, "said once, not by every rank")

    def test_a_device_that_is_not_there(self):
        for run in (self.threads, self.mpirun):
            job = run("train.device=cuda")
            if job.process.wait(60) == 0:
                self.skipTest("this machine has a GPU")
            self.require_end(job, 2, "train.device=cpu")
            self.assertEqual(job.text().count("train.device=cpu"), 1, "said once")

    def tokens(self, name, values):
        """A .bin/.idx pair of ten documents with these token ids."""
        with open(self.path("text"), "wb") as file:
            file.write(bytes(values) * 10)
        subprocess.run([TANDEM, "tokenize", self.path(name)] + 10 * [self.path("text")],
                       check=True, stdout=subprocess.DEVNULL)
        return json.dumps([self.path(name)])

    def test_a_token_outside_the_vocabulary_is_told_once(self):
        """It is met by the first and the last stage of every data-parallel rank."""
        good, bad = self.tokens("good", range(64)), self.tokens("bad", [*range(15), 200])
        for data in ([f"data.train={bad}"], [f"data.train={good}", f"data.valid={bad}"]):
            for run in (self.threads, self.mpirun):
                job = run("data.kind=megatron", "data.split=80,20,0", "train.eval_every=4", *data)
                self.require_end(job, 3, r"error: rank 0: .*/bad.bin byte \d+: token 200 is outside")
                self.assertEqual(job.text().count("outside"), 1, job.text())
                self.assertNotRegex(job.text(), "lanes stand|abort(ing|ed) the job:|MPI_ABORT")

    def test_nothing_held_out(self):
        job = self.threads("data.kind=megatron", "data.train=" + self.tokens("good", range(64)),
                           "data.split=99,0.1", "train.eval_every=5")
        self.require_end(job, 2, "give data.valid or data.split=9,1,0")
        self.assertNotIn("valid_fraction", job.text())

    @unittest.skipIf(SANITIZER, "sanitizers reserve more memory than any limit")
    def test_a_sample_order_that_does_not_fit(self):
        data = ["data.kind=megatron", "data.train=" + self.tokens("good", range(64))]
        limit = 3 << 30
        job = self.threads("train.steps=100000000", *data, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (limit, limit)))  # 800 million samples, 12 bytes each
        self.require_end(job, 6, r"good: out of host memory for the order of 80\d{7} samples, which "
                                 "takes [89][.][0-9]+ GiB on every rank: give fewer train.steps")
        job = self.threads("train.steps=1000000000", *data)
        self.require_end(job, 3, "good: 80\\d{8} samples .* more than the sample order can hold.*"
                                 "lower train.steps or train.global_batch")

    def test_folders_that_cannot_be_written(self):
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        for run in (self.threads, self.mpirun):
            job = run("train.steps=1", "checkpoint.dir=" + self.path("file"))
            self.require_end(job, 3, "checkpoint.dir = .*file: not a folder")
            job = run("train.steps=1", "logging.metrics=" + self.path("file/metrics.jsonl"))
            self.require_end(job, 3, "metrics.jsonl")
            job = run("train.steps=5", "logging.trace=" + self.path("file/t"),
                      "logging.trace_begin=2", "logging.trace_steps=1")
            self.require_end(job, 3, "t-rank0.json")
            self.assertEqual(job.text().count("rank0.json"), 1, "said once, before the first step")
            self.assertNotRegex(job.text(), r"step +\d+/|rank[123]")

    def test_metrics_that_are_lost_end_the_run_after_a_save(self):
        for run in (self.threads, self.mpirun):
            folder = self.path(run.__name__)
            job = run(*ENDLESS, "logging.metrics=/dev/full", "checkpoint.dir=" + folder)
            self.require_end(job, 3, "logging.metrics: cannot write to /dev/full: No space",
                             r"saved +step 2 ")
            self.assertEqual(job.text().count("error:"), 1, "said once")
            self.assertNotRegex(job.text(), "lanes stand|aborting|MPI_ABORT")
            self.assertIn("step-00000002", os.listdir(folder))

    def test_a_trace_that_is_lost_leaves_no_part_of_it(self):
        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        job = self.threads("train.steps=20", "logging.trace=" + self.path("traces/t"),
                           "logging.trace_steps=9", preexec_fn=limit_files)
        self.require_end(job, 3, "logging.trace, logging.trace_steps: .*t-rank0.json cannot be "
                                 "written: File too large")
        self.assertEqual(job.text().count("error:"), 1, "said once")
        self.assertNotRegex(job.text(), "lanes stand|abort")
        self.assertEqual(os.listdir(self.path("traces")), [])

    @unittest.skipIf(SANITIZER, "sanitizers reserve more memory than any limit")
    def test_out_of_memory(self):
        limit = 3 << 30  # the weights of one rank are 1.6 GB, its gradients as much again
        job = self.threads(
            "model.hidden=1024", "model.moe_ffn=8192", "model.experts=8", ranks=4,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.require_end(job, 6, r"refused \d+ bytes for (parameters|gradients) of chunk")


if __name__ == "__main__":
    unittest.main()
