"""Ranks as processes: equal to ranks as threads, and in step when a signal asks them to stop."""

import json
import os
import signal
import unittest

from jobs import ENDLESS, ENVIRONMENT, JobTest


def shards(folder):
    names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    contents = []
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            contents.append(file.read())
    return contents


class Processes(JobTest):
    def losses(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line)["lm loss"] for line in file]

    def test_processes_equal_threads_bit_for_bit(self):
        for name, run in (("mpi", self.mpirun), ("threads", self.threads)):
            job = run("logging.metrics=" + self.path(name + ".jsonl"),
                      "checkpoint.dir=" + self.path(name))
            self.require_end(job, 0)
        self.assertEqual(len(self.losses("mpi.jsonl")), 10)
        self.assertEqual(self.losses("mpi.jsonl"), self.losses("threads.jsonl"))
        saved = shards(self.path("mpi/step-00000010"))
        self.assertEqual(len(saved), 4)
        self.assertTrue(saved == shards(self.path("threads/step-00000010")))

    def stop_and_resume(self, run):
        save = "checkpoint.dir=" + self.path("c")
        job = run(*ENDLESS, save)
        job.wait_for(r"step +3/")
        job.process.send_signal(signal.SIGUSR1)
        self.require_end(job, 0, "stopped by a signal")
        step = int(job.wait_for(r"saved +step (\d+)").group(1))
        self.assertGreaterEqual(step, 3)
        self.require_end(run(f"train.steps={step + 2}", save), 0, f"resume +step {step},",
                         f"saved +step {step + 2}")

    def test_a_signal_while_libraries_start(self):
        job = self.threads(*ENDLESS, "checkpoint.dir=" + self.path("c"),
                           env=dict(ENVIRONMENT, LD_DEBUG="libs"))
        job.wait_for("calling init: ")  # of the first library; main() is far away
        job.process.send_signal(signal.SIGUSR1)
        self.require_end(job, 0, "stopped by a signal", r"saved +step 1 ")

    def test_sigusr1_to_mpirun_saves_and_ends_well(self):
        self.stop_and_resume(self.mpirun)

    def test_sigusr1_to_ranks_as_threads(self):
        self.stop_and_resume(self.threads)


if __name__ == "__main__":
    unittest.main()
