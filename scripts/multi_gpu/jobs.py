"""Runs of the engine under mpirun and what can be read from them."""

import json
import os
import re
import signal
import statistics
import subprocess
import time


class Failed(Exception):
    """A run or a comparison did not end as it must."""


def send(pid, blow):
    """Sends a signal; False if the process has ended."""
    try:
        os.kill(pid, blow)
        return True
    except ProcessLookupError:
        return False


class Jobs:
    """Starts jobs of one machine: where the engine is, which device, how many ranks fit."""

    def __init__(self, tandem, configs, work, device, gpus, overrides=()):
        self.tandem, self.configs, self.work = tandem, configs, work
        self.device, self.gpus, self.overrides = device, gpus, overrides
        self.started = 0

    def command(self, name, ranks, words, config, *arguments):
        """Starts `tandem WORDS CONFIG ARGUMENTS`; use it in a with statement."""
        mpirun = ["mpirun", "-np", str(ranks), "--bind-to", "none"] if ranks > 1 else []
        job = Job([*mpirun, self.tandem, *words, os.path.join(self.configs, config),
                   f"train.device={self.device}", *arguments],
                  os.path.join(self.work, name + ".log"))
        self.started += 1
        return job

    def start(self, name, ranks, config, *overrides):
        return self.command(name, ranks, ("train",), config, *self.overrides, *overrides)

    def run(self, name, ranks, config, *overrides, limit=90):
        """The steps of a run that must end with 0, as dictionaries."""
        with self.start(name, ranks, config, "logging.format=json", *overrides) as job:
            code = job.end(limit)
        if code != 0:
            raise Failed(f"run {name} ended with {code}:\n{job.text()[-3000:]}")
        steps = [json.loads(line) for line in job.text().splitlines() if line.startswith('{"step"')]
        if not steps:
            raise Failed(f"run {name} printed no step:\n{job.text()[-3000:]}")
        return steps


class Job:
    """One mpirun or rank, its output in a file. None of it outlives its with statement."""

    def __init__(self, command, log):
        self.log = log
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.kill()

    def kill(self):
        for pid in self.ranks().values():
            send(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self, limit):
        """Exit code; a job over its limit (seconds) is ended and counts as failed."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            where = [f"{pid} {self.stacks(pid)}" for pid in self.ranks().values()]
            self.kill()
            text = self.text()[-2000:]
            raise Failed("hung for {} s; {}\n{}".format(limit, "\n".join(where), text)) from None

    @staticmethod
    def stacks(pid):
        """What a hung rank's threads wait for, where a debugger is installed."""
        try:
            done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 8"],
                                  capture_output=True, text=True, timeout=30, check=False)
            return done.stdout[-6000:]
        except (OSError, subprocess.SubprocessError):
            return ""

    def wait_for(self, pattern, limit=120):
        end = time.monotonic() + limit
        while True:
            last = self.process.poll() is not None or time.monotonic() > end
            if re.search(pattern, self.text()):
                return
            if last:
                raise Failed(f"'{pattern}' was never printed:\n{self.text()[-2000:]}")
            time.sleep(0.05)

    def ranks(self):
        """Process id of every rank that lives, by rank."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
                if parent != self.process.pid:
                    continue
                with open(f"/proc/{entry}/environ", "rb") as environ:
                    for variable in environ.read().split(b"\0"):
                        if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                            found[int(variable.split(b"=")[1])] = int(entry)
            except OSError:  # it ended while we looked
                continue
        return found


def losses(steps):
    return [step["lm loss"] for step in steps]


def require_close(name, a, b, limit):
    """The largest relative difference of two runs' losses, step by step, is within the limit."""
    if len(a) != len(b):
        raise Failed(f"{name}: {len(a)} steps against {len(b)}")
    differences = [abs(x / y - 1) for x, y in zip(losses(a), losses(b))]
    worst = max(differences)
    print(f"  {name:<44} largest relative difference {worst:.1e} (limit {limit:g})", flush=True)
    if not all(difference <= limit for difference in differences):  # a NaN is not
        raise Failed(f"{name}: {worst} > {limit}")


def median(steps, key, skip=2):
    """Median over the steps after the first `skip`."""
    if len(steps) <= skip:
        raise Failed(f"{len(steps)} steps to measure, of which the first {skip} are warm-up")
    return statistics.median(step[key] for step in steps[skip:])
