"""A checkpoint is on the disk before it has its name, so that a power cut leaves a whole one."""

import os
import unittest

from jobs import ENVIRONMENT, SANITIZER, JobTest


@unittest.skipIf(SANITIZER, "a sanitizer's library must be the first that is loaded")
class Durability(JobTest):
    def test_what_a_name_stands_for_is_on_the_disk_first(self):
        folder, log = os.path.realpath(self.path("c")), self.path("disk.log")
        job = self.threads(
            "train.steps=3", "checkpoint.every=1", "checkpoint.dir=" + folder,
            env=dict(ENVIRONMENT, LD_PRELOAD=os.environ["DISK_LOG_LIBRARY"], TANDEM_DISK_LOG=log))
        self.require_end(job, 0, "saved +step 3")
        with open(log, encoding="utf-8") as file:
            done = [line.replace(folder, "c") for line in file.read().splitlines()]
        self.assertTrue("fsync " + os.path.dirname(folder) in done, "the folder itself")

        for step in (1, 2, 3):
            writing, name = f"c/.tmp-step-{step:08}", f"c/step-{step:08}"
            renamed = done.index(f"rename {writing} {name}")
            before = done[:renamed]

            def synced(path):
                """Where `path` was last synced before the rename; nothing was written after it."""
                last = max((i for i, line in enumerate(before)
                            if line in (f"write {path}", f"fsync {path}")), default=None)
                self.assertIsNotNone(last, path)
                self.assertEqual(before[last], f"fsync {path}")
                return last

            shards = [synced(f"{writing}/rank-{rank:05}.safetensors") for rank in range(4)]
            manifest = synced(f"{writing}/manifest.json")
            self.assertLess(max(shards), manifest, "a manifest speaks of what is there")
            self.assertLess(manifest, synced(writing), "the folder's entries")
            # Before anything else happens there, such as the removal of an old checkpoint.
            after = [line for line in done[renamed + 1:] if not line.startswith("write ")]
            self.assertEqual(after[0], "fsync c", "the new name")
        self.assertTrue("rename c/step-00000001 c/.tmp-step-00000001" in done, "one was removed")


if __name__ == "__main__":
    unittest.main()
