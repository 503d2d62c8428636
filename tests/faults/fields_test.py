"""docs/RUNNING.md names every field that scripts read, and no other."""

import json
import os
import re
import unittest

from jobs import JobTest, tandem

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "RUNNING.md")


def rows(heading):
    """Cells of the first table below a heading."""
    with open(PAGE, encoding="utf-8") as page:
        text = page.read().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def documented(command):
    fields = set()
    for of, names, _ in rows("What --json writes"):
        if command not in of.split(", "):
            continue
        prefixes, _, members = names.rpartition(": ")
        for name in re.findall("`([^`]+)`", members):
            for prefix in re.findall(r"`([^`]+)`", prefixes) or [""]:
                fields.add(f"{prefix}.{name}" if prefix else name)
    return fields


def fields(value, path=""):
    if isinstance(value, dict) and value and path != "config":
        return set().union(*(fields(v, f"{path}.{k}" if path else k) for k, v in value.items()))
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return set().union(*(fields(item, path + "[]") for item in value))
    return {path}


class Fields(JobTest):
    def report(self, *arguments):
        done = tandem(*arguments, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return fields(json.loads(done.stdout))

    def test_json_of_plan_schedule_and_check(self):
        for command in ("plan", "schedule", "check"):
            self.assertEqual(self.report(command, self.config), documented(command), command)

    def test_json_of_bench(self):
        one = ("parallel.pp=1", "parallel.vpp=1", "parallel.ep=1", "--repeats", "1")
        found = self.report("bench", "slice", self.config, *one)
        found |= self.report("bench", "alltoall", self.config, "--ranks", "2", *one)
        self.assertEqual(found, documented("bench"))

    def test_metrics(self):
        named = {name for _, names, _ in rows("The progress line")
                 for name in re.findall("`([^`]+)`", names)} | {"lm loss validation"}
        metrics = self.path("m.jsonl")
        job = self.threads("train.steps=2", "train.dtype=fp16", "train.eval_every=1",
                           f"logging.metrics={metrics}")
        self.require_end(job, 0)
        with open(metrics, encoding="utf-8") as lines:
            found = set().union(*(json.loads(line) for line in lines))
        self.assertEqual(found, named)


if __name__ == "__main__":
    unittest.main()
