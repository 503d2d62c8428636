"""Scripts refuse at once what they cannot use, in a line that names it, and pass only what they ran."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
GAP = SCRIPTS / "dispatch_gap.py"
TABLE = SCRIPTS / "peers/slice_table.py"
MULTI_GPU = SCRIPTS / "multi_gpu"
# A program that takes every argument and ends with 0.
IDLE = "/bin/true"


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def said(self, code, words, script, *arguments, **environment):
        """Runs a script that ends with `code`; `words` must be in its last line of complaint."""
        python = [sys.executable, "-B"] if script.suffix == ".py" or script.is_dir() else []
        done = subprocess.run([*python, script, *arguments], capture_output=True, text=True,
                              env=dict(os.environ, **environment), cwd=self.folder, timeout=60)
        self.assertEqual(done.returncode, code, f"{arguments} {done.stdout} {done.stderr}")
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        self.assertRegex(done.stderr.rpartition("error: ")[2], words)
        return done.stdout

    def written(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


class MultiGpu(Scripts):
    def test_arguments_are_checked(self):
        for words, *arguments in (("none of layouts, modes", "--parts", "modes,nope"),
                                  ("none of Qwen3", "--models", "Nope"),
                                  ("--gpus: .* 1 ", "--gpus", "1"),
                                  ("'0' is no", "--rounds", "0"),
                                  ("'2' is no", "--steps", "2"),
                                  ("'x' is no", "--delay-steps", "x"),
                                  ("/dev/null: ", "--out", "/dev/null")):
            self.said(2, words, MULTI_GPU, IDLE, *arguments)
        self.said(2, "/nonexist is no program", MULTI_GPU, "/nonexist")

    def test_every_part_is_in_the_summary(self):
        """With a program that prints no step, and with a file that cannot be executed."""
        broken = self.written("broken", "\x00")
        broken.chmod(0o755)
        for program in (IDLE, broken):
            text = self.said(1, "^$", MULTI_GPU, program, "--device", "cpu", "--parts",
                             "layouts,uneven,layouts")
            self.assertRegex(text, r"(?s)layouts +FAILED.*uneven +FAILED.*layouts +FAILED")

    def test_a_rank_that_ends_while_a_job_is_ended(self):
        script = f"""
import sys
sys.path.insert(0, {str(MULTI_GPU)!r})
import jobs
job = jobs.Job(["sleep", "60"], "log")
job.ranks = lambda: {{0: 2**22 + 1}}  # more than a process id can be
try:
    job.end(0.1)
except jobs.Failed as error:
    sys.exit(f"error: {{error}}")
"""
        self.said(1, "hung for 0.1 s", self.written("hung.py", script))


class DispatchGap(Scripts):
    def trace(self, *spans):
        """Of (lane, name, micro-batch, begin, length): lane 1 computes, lane 2 transfers."""
        lanes = [{"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": name}}
                 for tid, name in ((1, "compute"), (2, "ep"))]
        return self.written("t.json", {"traceEvents": lanes + [
            {"ph": "X", "name": name, "tid": tid, "ts": begin, "dur": length,
             "args": {"layer": 0, "microbatch": batch}}
            for tid, name, batch, begin, length in spans]})

    ATTENTION, COUNTS = (1, "attention_fwd", 0, 0, 10), (2, "counts_fwd", 0, 10, 2)
    EXPERTS, DISPATCH = (1, "experts_bwd_input", 1, 10, 20), (2, "dispatch_fwd", 0, 15, 5)

    def test_the_wait_is_the_gap_without_the_exchange(self):
        path = self.trace(self.ATTENTION, self.COUNTS, self.EXPERTS, self.DISPATCH,
                          (2, "dispatch_fwd", 7, 16, 5))  # of an attention that was not traced
        self.assertRegex(self.said(0, "^$", GAP, path),
                         r"clearest: dispatch_fwd L0 mb0\n1 paired .* wait over experts 0[.]150\n")

    def test_what_cannot_be_measured_is_said(self):
        for words, *spans in (("no dispatch_fwd beside .* on\n",),
                              (r"\(1 without their", self.DISPATCH),
                              (r"\(1 without their", self.ATTENTION, self.EXPERTS, self.DISPATCH),
                              ("took no time", self.ATTENTION, self.COUNTS, self.DISPATCH,
                               (1, "experts_bwd_input", 1, 10, 0))):
            self.said(3, words, GAP, self.trace(*spans))

    def test_a_file_that_is_no_trace(self):
        for content in ("", "{}", "[]", '{"traceEvents": [{"ph": "X"}]}', "[" * 100000,
                        '{"traceEvents": [{"ph": "X", "name": "a", "ts": "x", "dur": 1}]}'):
            self.said(3, "t.json is no trace", GAP, self.written("t.json", content))
        self.said(3, "cannot read missing.json: No such file", GAP, "missing.json")
        self.said(3, "cannot read .*: Is a directory", GAP, self.folder)
        self.said(2, "required: trace", GAP)


class Refused(Scripts):
    """What a script of the shell would otherwise find out after a build, or never."""

    def test_before_a_build(self):
        out = ("--out", self.folder / "figures")
        for script, words, *arguments in (
                ("bench_gpu.sh", "--only nope: choose from slices ops", *out, "--only", "nope"),
                ("bench_gpu.sh", "--only is empty", *out, "--only", ""),
                ("bench_gpu.sh", "--slices C: choose from A B", *out, "--slices", "A C"),
                ("bench_gpu.sh", "--rounds 0: ", *out, "--rounds", "0"),
                ("bench_gpu.sh", "--repeats 1x: ", *out, "--repeats", "1x"),
                ("bench_gpu.sh", "--python nope: ", *out, "--python", "nope"),
                ("bench_gpu.sh", "--cudnn /nope: ", *out, "--cudnn", "/nope"),
                ("sanitize_gpu.sh", "-t nope: choose from memcheck", "-t", "memcheck,nope"),
                ("sanitize_gpu.sh", "-t is empty", "-t", ","),
                ("sanitize_gpu.sh", "-s 0: ", "-s", "0"),
                ("sanitize_gpu.sh", "unknown argument nope", "nope"),
                ("multi_gpu.sh", "unknown argument --parts", "--parts", "modes"),
                ("run.sh", "nope is no override", "nope"),
                ("test.sh", "unknown argument nope", "-Q", "nope"),
                ("test.sh", "unknown argument nope", "-L", "unit", "nope"),
                ("trace_pictures.sh", "--nope is no override", "train.steps=9", "--nope"),
                ("peers/compare_demo.sh", "STEPS 2: ", "1", "2"),
                ("peers/compare_demo.sh", "unknown argument 4", "1", "3", "4")):
            self.said(1, words, SCRIPTS / script, *arguments)
        self.said(2, "none of layouts", SCRIPTS / "multi_gpu.sh", "--", "--parts", "nope")
        self.assertFalse(out[1].exists())

    def test_files_of_other_programs_for_the_slice_table(self):
        for name in ("engine-A-mb1-step1-round1.json", "torch-A-round1.json"):
            for content in ("{", '{"rows": []}', '{"rows": [{"name": "median"}]}'):
                path = self.written(name, content)
                self.said(3, f"{name} is no file of", TABLE, self.folder)
            path.unlink()
        self.said(3, "no engine-.* in missing", TABLE, "missing")
        self.said(1, "slice_table.py FOLDER", TABLE)


if __name__ == "__main__":
    unittest.main()
