"""What is printed or written arrives, or its loss is told."""

import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import time
import unittest

from jobs import ENVIRONMENT, TANDEM, JobTest, tandem


class Output(JobTest):
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
        self.refused(0, "1 document, 5 tokens", "tokenize", self.path("p"), self.written("b.txt", b"words"))
        done = tandem("tokenize", self.path("p"), text, preexec_fn=limit_files)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(os.path.getsize(self.path("p.bin")), 10)
        self.assertEqual(set(os.listdir(self.folder)), before | {"b.txt", "p.bin", "p.idx"})
        self.refused(3, "/dev/null/p.bin cannot be written", "tokenize", "/dev/null/p", text)
        # A folder that is not there is made, as for metrics and traces.
        self.refused(0, "x/y/t.svg", "schedule", self.config, "--svg", self.path("x/y/t.svg"))
        tandem("plan", self.config, "--json", self.path("x/z/t.json"))
        self.assertTrue(os.path.exists(self.path("x/z/t.json")))

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


if __name__ == "__main__":
    unittest.main()
