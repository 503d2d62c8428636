"""Runs tandem as its users do, and gets at the processes of its ranks."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

TANDEM = os.environ["TANDEM_BINARY"]
MPIRUN = os.environ["TANDEM_MPIRUN"]
SANITIZER = os.environ.get("TANDEM_SANITIZE", "")

# A model of a few thousand parameters on four ranks.
CONFIG = {
    "model": {
        "layers": 4, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "experts": 4,
        "topk": 2, "moe_ffn": 32, "vocab": 64,
    },
    "parallel": {"pp": 2, "vpp": 2, "ep": 2},
    "train": {
        "device": "cpu", "steps": 10, "micro_batch": 1, "global_batch": 8, "seq_len": 16,
        "cpu_threads": 1, "watchdog_s": 60,
    },
    "data": {"kind": "synthetic"},
    "optimizer": {"lr": 0.003, "min_lr": 0.0, "warmup_steps": 2},
}

# Steps without end, of some 20 ms each.
ENDLESS = ["train.steps=1000000", "train.alltoall_delay_us=500"]

ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
)


def of_process(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def parent(pid):
    fields = of_process(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else -1


def alive(pid):
    state = of_process(pid, "stat").rpartition(")")[2].split()
    return bool(state) and state[0] != "Z"


def tandem(*arguments, **options):
    """Runs a command to its end; its output as text."""
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([TANDEM, *arguments], stderr=subprocess.PIPE, text=True,
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=100, **options)


class Job:
    """A run in progress. Its output is read all along, line by line."""

    def __init__(self, command, env=None, ranks=0, **options):
        """ranks: how many processes of ranks the command is going to start."""
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env=env or ENVIRONMENT, stdin=subprocess.DEVNULL, **options)
        self.lines = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.known = {}
        self.expected = ranks

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()

    def text(self):
        with self.changed:
            return "".join(self.lines)

    def wait_for(self, pattern, seconds=60):
        """Blocks until a line of the output matches; that match."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                for line in self.lines:
                    match = re.search(pattern, line)
                    if match:
                        return match
                rest = end - time.monotonic()
                if rest <= 0:
                    raise AssertionError(f"no '{pattern}' in\n" + "".join(self.lines))
                self.changed.wait(min(rest, 0.5))

    def look_for_ranks(self):
        for name in os.listdir("/proc"):
            if not name.isdigit() or parent(name) != self.process.pid:
                continue
            match = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", of_process(name, "environ"))
            if match:
                self.known[int(match.group(1))] = int(name)

    def ranks(self, seconds=60):
        """Process ids by rank, of the ranks that mpirun starts. Blocks until all are there."""
        end = time.monotonic() + seconds
        while len(self.known) < self.expected:
            self.look_for_ranks()
            if len(self.known) < self.expected:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"of {self.expected} ranks there are {self.known}\n"
                                         + self.text())
                time.sleep(0.02)
        return self.known

    def end(self, seconds=60):
        """Waits for the end; the exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s\n" + self.text()) from None
        self.reader.join(10)
        return code

    def kill(self):
        if len(self.known) < self.expected:
            self.look_for_ranks()
        for pid in list(self.known.values()):
            if alive(pid) and parent(pid) == self.process.pid:
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()


class JobTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tandem-job-", dir="/dev/shm" if
                                       os.path.isdir("/dev/shm") else None)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.config = self.path("config.json")
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)

    def path(self, name):
        return os.path.join(self.folder, name)

    def written(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def refused(self, code, words, *arguments):
        done = tandem(*arguments, cwd=self.folder)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, f"{arguments} {said}")
        self.assertRegex(said, words)
        self.assertLess(len(said), 1000, "no more than a reader can use")

    def start(self, command, **options):
        job = Job(command, **options)
        self.addCleanup(job.kill)
        return job

    def mpirun(self, *overrides, ranks=4, more=None, variables=None, command=("train",)):
        """more: another config for so many further ranks. variables: of the ranks' environment."""
        if SANITIZER == "thread":
            self.skipTest("the MPI library is not instrumented for ThreadSanitizer")
        # The MPI library never frees some of its own memory.
        environment = dict(ENVIRONMENT, ASAN_OPTIONS="detect_leaks=0")
        launch = [MPIRUN, "-np", str(ranks)]
        for name, value in (variables or {}).items():
            launch += ["-x", f"{name}={value}"]
        launch += [TANDEM, *command, self.config, *overrides]
        if more:
            launch += [":", "-np", str(more[1]), TANDEM, *command, more[0], *overrides]
        return self.start(launch, env=environment, ranks=ranks + (more[1] if more else 0))

    def threads(self, *overrides, ranks=4, **options):
        return self.start([TANDEM, "train", self.config, "--ranks", str(ranks), *overrides],
                          **options)

    def require_gone(self, pids, seconds=10):
        end = time.monotonic() + seconds
        while any(alive(pid) for pid in pids):
            self.assertLess(time.monotonic(), end, "ranks are left behind")
            time.sleep(0.05)

    def require_end(self, job, code, *patterns, seconds=60):
        found = job.end(seconds)
        self.assertEqual(found, code, job.text())
        for pattern in patterns:
            self.assertRegex(job.text(), pattern)
