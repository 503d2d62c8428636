"""A run that is refused says what was looked for, where, and the way out, and leaves no files."""

import os
import shutil
import subprocess
import unittest

from jobs import TANDEM, JobTest, tandem


class Refusals(JobTest):
    def train(self, *overrides):
        return "train", self.config, "--ranks", "4", "train.steps=2", *overrides

    def pair(self, name, documents):
        text = self.written("text", bytes(range(64)) * 2)
        subprocess.run([TANDEM, "tokenize", self.path(name)] + documents * [text], check=True,
                       stdout=subprocess.DEVNULL)

    def test_a_checkpoint_is_no_folder_of_checkpoints(self):
        done = tandem(*self.train("checkpoint.dir=runs/tour"), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        step = "runs/tour/step-00000002"
        os.symlink("tour/step-00000002", self.path("runs/latest"))
        absolute = os.path.realpath(self.path("runs/tour"))
        before = os.listdir(self.path(step))
        for given, advice in ((step, "runs/tour"), (step + "/", "runs/tour"),
                              (f"./runs/../{step}", "runs/tour"), (step + "/more/below", "runs/tour"),
                              ("runs/latest", "runs/tour"), (self.path(step), absolute)):
            for resume in ("true", "false"):
                self.refused(3, rf"step-00000002 is a checkpoint, .*; set checkpoint.dir={advice}\n",
                             *self.train("checkpoint.dir=" + given, f"checkpoint.resume={resume}"))
        self.assertEqual(os.listdir(self.path(step)), before, "not even a lock is left")
        # One whose manifest is damaged is told by its name, a renamed one by its manifest.
        os.rename(self.path(step), self.path("runs/best"))
        self.refused(3, r"runs/best is a checkpoint, .*; call it runs/step-00000002 and set "
                        r"checkpoint.dir=runs\n", *self.train("checkpoint.dir=runs/best"))
        # A copy beside the checkpoint cannot be called as that is.
        shutil.copytree(self.path("runs/best"), self.path("runs/step-00000002"))
        self.refused(3, r"folder of checkpoints; set checkpoint.dir=runs\n",
                     *self.train("checkpoint.dir=runs/best"))
        shutil.rmtree(self.path("runs/step-00000002"))
        os.rename(self.path("runs/best"), self.path(step))
        self.written(step + "/manifest.json", b"{}")
        self.refused(3, "; set checkpoint.dir=runs/tour\n", *self.train("checkpoint.dir=" + step))
        inside = tandem(*self.train("checkpoint.dir=."), cwd=self.path(step))
        self.assertEqual(inside.returncode, 3)
        self.assertIn("folder of checkpoints; set checkpoint.dir=..\n", inside.stderr)
        # Other programs have manifests too, and folders of steps.
        os.mkdir(self.path("runs/step-00000009"))
        self.written("runs/step-00000009/manifest.json", b'{"name": "app"}')
        done = tandem(*self.train("checkpoint.dir=runs/step-00000009/run"), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.written("runs/manifest.json", b'{"name": "website", "step": 2}')
        done = tandem(*self.train("checkpoint.dir=runs/other"), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_runs_that_are_refused_or_have_nothing_to_do_leave_no_files(self):
        outputs = ["logging.metrics=out/m/metrics.jsonl", "logging.tensorboard=out/events",
                   "logging.trace=out/t/trace", "logging.trace_steps=1"]
        self.pair("one", 1)
        os.symlink("nowhere", self.path("dangling"))
        done = tandem(*self.train("checkpoint.dir=c"), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for code, words, *overrides in (
                (0, "nothing to do", "checkpoint.dir=c"),
                (3, "another model|model.rope_theta", "checkpoint.dir=c", "model.rope_theta=500000"),
                (3, "is a checkpoint", "checkpoint.dir=c/step-00000002"),
                (3, "checkpoint.dir = dangling: a symbolic link to nowhere, which is not there; make",
                 "checkpoint.dir=dangling"),
                (3, "checkpoint.dir must be", "checkpoint.dir=/dev/null/x"),
                (2, "1 document .* leaves 0 held out", "data.kind=megatron", "data.train=one",
                 "train.eval_every=1")):
            self.refused(code, words, *self.train(*outputs, *overrides))
            self.assertFalse(os.path.exists(self.path("out")), overrides)
        # Of two outputs of which one cannot be, the other is not begun; what was there stays.
        unwritable = ["logging.metrics=m.jsonl", "logging.tensorboard=/dev/null/tb"]
        self.refused(3, "logging.tensorboard: ", *self.train(*unwritable))
        self.assertFalse(os.path.exists(self.path("m.jsonl")))
        self.written("m.jsonl", b"{}\n")
        self.refused(3, "logging.tensorboard: ", *self.train(*unwritable))
        self.assertTrue(os.path.exists(self.path("m.jsonl")))

    def test_missing_data_is_told_with_its_key_and_where_it_was_looked_for(self):
        here = os.path.realpath(self.folder)
        text = ["data.kind=text", "model.vocab=256"]
        self.refused(3, "error: data.train: cannot open data/kjv.txt: No such file or directory; "
                        f"relative paths count from {here}, .*scripts/run.sh",
                     *self.train(*text, 'data.train=["data/kjv.txt"]'))
        self.refused(3, "error: data.valid: cannot open no.txt: No such file or directory; relative "
                        f"paths count from {here}, where the program was started\n",
                     *self.train(*text, f'data.train=["{self.config}"]', 'data.valid=["no.txt"]'))
        self.refused(3, "error: data.train: cannot open /no.txt: No such file or directory\n",
                     *self.train(*text, 'data.train=["/no.txt"]'))
        self.refused(3, "a list, as in", *self.train(*text, "data.train=a.txt b.txt"))

    def test_what_is_no_prefix_of_a_pair(self):
        megatron = ["data.kind=megatron", "data.split=1,1"]
        self.pair("kjv", 2)
        self.refused(3, "error: data.train: cannot open data/kjv.txt.bin: No such file .*; set "
                        "data.train to the prefix of a .bin/.idx pair",
                     *self.train(*megatron, "data.train=data/kjv.txt"))
        self.refused(3, "error: data.valid: cannot open no.bin: .*; set data.valid to the prefix",
                     *self.train(*megatron, "data.train=kjv", "data.valid=no"))
        self.refused(3, "error: data.train: cannot open kjv.idx.bin: .*; give kjv",
                     *self.train(*megatron, "data.train=kjv.idx"))
        for blend in ('["0.3","kjv","0.7","one"]', "0.3 kjv 0.7 one", '["30 kjv","70 one"]'):
            self.refused(2, r"error: data.train = .*: (0\.3|30) is a weight, and blends by weight are "
                            r"not supported; list the prefixes alone, as in \[\"a\",\"b\"\]",
                         *self.train(*megatron, "data.train=" + blend))
        self.refused(2, "is a weight, .*read them as one text",
                     *self.train("data.kind=text", "model.vocab=256", 'data.train=["1","a.txt"]'))

    def test_documents_that_are_too_few_to_hold_any_out(self):
        megatron = ["data.kind=megatron", "data.train=kjv", "train.eval_every=1"]
        self.pair("kjv", 12)
        self.refused(2, "of 12 documents data.split=969,30,1 leaves 0 held out: give data.valid or "
                        "data.split=11,1,0, or set train.eval_every=0", *self.train(*megatron))
        done = tandem(*self.train(*megatron, "data.split=11,1,0"), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.pair("kjv", 1)
        self.refused(2, "of 1 document data.split=969,30,1 leaves 0 held out: give data.valid, or set",
                     *self.train(*megatron))


if __name__ == "__main__":
    unittest.main()
