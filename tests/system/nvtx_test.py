"""What NVIDIA's profilers are told of a training run: a library that listens to NVTX writes it
down, and the program of each pipeline stage says what there should be."""

import os
import re
import subprocess
import unittest

from jobs import ENVIRONMENT, SANITIZER, TANDEM, JobTest

LANES = ("compute", "ep", "send_fwd", "recv_fwd", "send_bwd", "recv_bwd", "dp", "host")
CATEGORIES = [f"{lane} {direction}" for lane in LANES for direction in "FB"]

# A MoE layer, as docs/SCHEDULE.md has it.
LAYER = {
    "attention_fwd": "compute F", "counts_fwd": "ep F", "HOST_WAIT": "host F",
    "dispatch_fwd": "ep F", "experts_fwd": "compute F", "combine_fwd": "ep F",
    "aggregate_fwd": "compute F",
    "aggregate_bwd_input": "compute B", "combine_bwd_input": "ep B",
    "experts_bwd_input": "compute B", "experts_bwd_weight": "compute B",
    "dispatch_bwd_input": "ep B", "attention_bwd_input": "compute B",
    "attention_bwd_weight": "compute B",
}
LAYERS, MICROBATCHES = 4, 8  # of the jobs' config, on one rank
ONE_RANK = ["parallel.pp=1", "parallel.vpp=1", "parallel.ep=1"]
STEPS = 2
WINDOW = ["train.steps=5", "logging.profile_begin=1", f"logging.profile_steps={STEPS}"]


class Domain:
    def __init__(self):
        self.categories = {}
        self.colours = {}
        self.ranges = []  # (name, category)
        self.threads = set()
        self.destroyed = False


@unittest.skipIf(SANITIZER, "a sanitizer's library must be the first that is loaded")
class Listening(JobTest):
    def listening(self):
        self.log = self.path("nvtx.log")
        listener = os.environ["NVTX_LISTENER"]
        return dict(ENVIRONMENT, NVTX_INJECTION64_PATH=listener, LD_PRELOAD=listener,
                    TANDEM_NVTX_LOG=self.log)

    def heard(self, ranks):
        """The domains of Tandem. Every range lies in the window and ends before the next begins."""
        with open(self.log, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(" ") for line in file]
        ours = {words[1] for words in lines if words[0] == "domain" and words[2:] == ["tandem"]}
        self.assertEqual(len(ours), ranks)
        domains = {number: Domain() for number in ours}
        windows, open_ranges = {}, {}  # by thread
        for call, *words in lines:
            if call in ("start", "stop"):
                # Once in the life of a rank, which has a thread of its own.
                self.assertEqual(windows.get(words[0]), None if call == "start" else "start")
                windows[words[0]] = call
                continue
            if words[0] not in ours:
                continue  # of NCCL, for one
            domain = domains[words[0]]
            self.assertFalse(domain.destroyed)
            if call == "category":
                domain.categories[words[1]] = " ".join(words[2:])
            elif call == "push":
                thread, category, name = words[1], domain.categories[words[2]], " ".join(words[4:])
                self.assertEqual(windows.get(thread), "start", f"{name} outside the window")
                self.assertNotIn(thread, open_ranges)
                open_ranges[thread] = words[0]
                domain.threads.add(thread)
                domain.ranges.append((name, category))
                self.assertEqual(domain.colours.setdefault(category, words[3]), words[3])
            elif call == "pop":
                self.assertEqual(open_ranges.pop(words[1], None), words[0])
                self.assertEqual(windows[words[1]], "start")
            elif call == "destroy":
                domain.destroyed = True
        self.assertEqual(open_ranges, {})
        self.assertEqual(list(windows.values()), ranks * ["stop"])
        for domain in domains.values():
            self.assertTrue(domain.destroyed)
            self.assertEqual(len(domain.threads), 1, "the thread of a rank that enqueues")
            self.assertEqual(list(domain.categories.values()), CATEGORIES)
            for category, colour in domain.colours.items():
                opaque, red, _, blue = bytes.fromhex(colour)
                self.assertEqual(opaque, 255)
                # Forward bluish, backward reddish.
                self.assertGreater(*((blue, red) if category.endswith("F") else (red, blue)))
        return list(domains.values())

    def program(self, stage, *overrides):
        """The ranges of a step: all instructions but records and waits, which only order lanes."""
        done = subprocess.run([TANDEM, "schedule", self.config, "--stage", str(stage), "--text",
                               *overrides], capture_output=True, text=True, env=ENVIRONMENT,
                              timeout=60, check=True)
        ranges = []
        for line in done.stdout.splitlines():
            match = re.match(r"(RUN|SEND|RECV|HOST_WAIT|GRAD_SYNC|OPT_STEP) (\w+) ([FB])(?: c\d+)?"
                             r"(?: m(\d+))?(?: l(\d+))?(?: (\w+)\.(\w+))?", line)
            if not match:
                continue
            op, lane, direction, microbatch, layer, node, phase = match.groups()
            name = f"{node}_{phase}" if op == "RUN" else op
            name += f" L{layer}" if layer else ""
            name += f" mb{microbatch}" if microbatch else ""
            ranges.append((name, f"{lane} {direction}"))
        return ranges

    def check_one_rank(self):
        domain, = self.heard(1)
        expected = STEPS * self.program(0, *ONE_RANK)
        for found, wanted in zip(domain.ranges, expected):
            self.assertEqual(found, wanted)
        self.assertEqual(len(domain.ranges), len(expected))
        for microbatch in range(MICROBATCHES):
            for layer in range(LAYERS):
                for node, category in LAYER.items():
                    found = domain.ranges.count((f"{node} L{layer} mb{microbatch}", category))
                    self.assertEqual(found, STEPS, f"{node} L{layer} mb{microbatch} {category}")


class NvtxRanges(Listening):
    def on_the_cpu(self, ranks, *overrides):
        done = subprocess.run([os.environ["NVTX_TRAINING"], self.config, str(ranks), *WINDOW,
                               *overrides], capture_output=True, text=True, env=self.listening(),
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_node_is_a_range(self):
        self.on_the_cpu(1, *ONE_RANK)
        self.check_one_rank()

    def test_every_rank_names_the_program_of_its_stage(self):
        self.on_the_cpu(4)
        heard = [domain.ranges for domain in self.heard(4)]
        for stage in range(2):
            expected = STEPS * self.program(stage)
            self.assertEqual(heard.count(expected), 2, "expert ranks of a stage do the same")
            used = {category for _, category in expected}
            self.assertTrue({"send_fwd F", "recv_fwd F", "send_bwd B", "recv_bwd B"} <= used)


class NvtxRangesOnGpu(Listening):
    def test_every_node_is_a_range_on_a_gpu(self):
        job = self.threads(*ONE_RANK, *WINDOW, "train.device=cuda", "train.eval_every=1", ranks=1,
                           env=self.listening())
        if job.end() == 2 and "no CUDA device is visible" in job.text():
            self.skipTest("no CUDA device is visible")
        self.require_end(job, 0)
        self.check_one_rank()


if __name__ == "__main__":
    unittest.main()
