"""The table of scripts/bench_gpu.sh, from files such as its rounds leave."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/peers/slice_table.py"


def engine_row(mb_ms):
    return {"name": "median", "mb_ms": mb_ms, "optimizer_ms": 47.5, "tokens_per_s": 70000.0,
            "rate": 380.0, "share": 0.5, "gib": 90.0}


def torch_row(batch, in_step, mb_ms):
    return {"slice": "A", "micro_batch": batch, "micro_batches": in_step, "mb_ms": mb_ms,
            "peak_gib": 40.0}


class SliceTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def engine(self, name, *mb_ms):
        for number, ms in enumerate(mb_ms, 1):
            rows = [dict(engine_row(1.0), name="step 4"), engine_row(ms)]
            (self.folder / f"{name}-round{number}.json").write_text(json.dumps({"rows": rows}))

    def table(self):
        return subprocess.run([sys.executable, "-B", SCRIPT, self.folder], capture_output=True,
                              text=True, env=os.environ, timeout=60)

    def test_like_stands_beside_like(self):
        """A step of one micro-batch is compared with PyTorch's of one, eight with eight."""
        self.engine("engine-A-mb1-step1", 40.0, 44.0, 60.0)
        self.engine("engine-A-mb1-step8", 50.0, 52.0, 54.0)
        self.engine("engine-B-mb2-step8", 80.0)
        for number, (alone, of_eight) in enumerate(((50.0, 64.0), (55.0, 65.0), (90.0, 90.0)), 1):
            rows = [torch_row(1, 1, alone), torch_row(1, 8, of_eight), torch_row(2, 8, 1.0)]
            text = "a warning\n" + "".join(json.dumps(row) + "\n" for row in rows)
            (self.folder / f"torch-A-round{number}.json").write_text(text)
        done = self.table()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines() if line[:1] in "AB"]
        self.assertEqual([line[:6] for line in lines],
                         [["A", "1", "1", "44.00", "55.00", "0.800"],
                          ["A", "1", "8", "52.00", "65.00", "0.800"],
                          ["B", "2", "8", "80.00", "-", "-"]])
        rows = json.loads((self.folder / "slices.json").read_text())
        self.assertEqual([(row["micro_batches"], row["rounds"]) for row in rows],
                         [(1, 3), (8, 3), (8, 1)])

    def test_an_empty_folder_is_said(self):
        done = self.table()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no engine-", done.stderr)


if __name__ == "__main__":
    unittest.main()
