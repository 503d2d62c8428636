"""The picture and the tables of a trace that a run wrote."""

import json
import subprocess
import unittest
import xml.etree.ElementTree as xml

from jobs import ENVIRONMENT, TANDEM, JobTest

SVG = "{http://www.w3.org/2000/svg}"
# Two stages, expert ranks, a pair of each: every lane occurs. The traced steps reach beyond the end.
TRACED = ["train.steps=3", "train.alltoall_delay_us=1000", "logging.trace_begin=1",
          "logging.trace_steps=5"]


def trace(*arguments):
    return subprocess.run([TANDEM, "trace", *arguments], capture_output=True, text=True,
                          env=ENVIRONMENT, timeout=60)


class TracePicture(JobTest):
    def traced(self):
        job = self.threads(*TRACED, "logging.trace=" + self.path("trace"))
        self.require_end(job, 0)
        path = self.path("trace-rank1.json")
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        return path, [event for event in events if event["ph"] == "X"]

    def boxes(self, path):
        root = xml.parse(path).getroot()  # well-formed, or this throws
        drawn = [rect for rect in root.iter(SVG + "rect") if rect.get("data-n")]
        return root, drawn

    def test_every_event_is_drawn_and_counted(self):
        path, events = self.traced()
        picture = self.path("a.svg")
        done = trace(path, "--svg", picture)
        self.assertEqual(done.returncode, 0, done.stderr)
        root, drawn = self.boxes(picture)
        self.assertEqual(sum(int(rect.get("data-n")) for rect in drawn), len(events))
        texts = [text.text for text in root.iter(SVG + "text")]
        self.assertTrue(any(t.startswith("Measured: rank 1, pp 2 x vpp 2, ep 2") for t in texts))
        for lane in ("compute", "ep", "send_fwd", "dp", "host"):
            self.assertIn(lane, texts)
        # Forward and backward differ in more than colour.
        style = root.find(SVG + "style").text
        self.assertIn("fill:url(#h", style)
        self.assertGreater(len(list(root.iter(SVG + "pattern"))), 0)

        self.assertRegex(done.stdout, rf"{len(events)} events")
        self.assertRegex(done.stdout, r"all-to-all: [0-9.]+ % hidden")
        dispatches = [e for e in events if e["name"] == "dispatch_fwd"]
        mean = sum(e["dur"] for e in dispatches) / len(dispatches) / 1e3
        self.assertGreater(mean, 1)  # the delay
        self.assertRegex(done.stdout, rf"ep +dispatch_fwd +{len(dispatches)} +{mean:.4f}")

    def test_a_part_shows_what_lies_in_it(self):
        path, events = self.traced()
        picture = self.path("part.svg")
        done = trace(path, "--svg", picture, "--around", "dispatch_fwd", "--width", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, drawn = self.boxes(picture)
        self.assertLess(sum(int(rect.get("data-n")) for rect in drawn), len(events))
        titles = [title.text for rect in drawn for title in rect.iter(SVG + "title")]
        self.assertTrue(any(title.startswith("dispatch_fwd") for title in titles), titles)
        done = trace(path, "--svg", picture, "--from", "1", "--to", "2")
        self.assertRegex(done.stdout, r"1\.000 to 2\.000 ms")

    def test_what_is_wrong_is_said(self):
        path, _ = self.traced()
        for code, words, *arguments in (
                (2, "no such node; it has .*attention_fwd", path, "--around", "nothing"),
                (2, "nothing lies between", path, "--from", "1e9"),
                (3, "cannot read .*logging.trace", self.path("missing.json")),
                (3, "cannot be written", path, "--svg", "/no/such/folder/a.svg")):
            done = trace(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, words)
        for text, words in (("not json", "line 1"),
                            ("{}", "distributedInfo"),
                            ('{"distributedInfo": {"rank": 0}, "traceEvents": []}', "no step"),
                            ('{"distributedInfo": {"rank": 0}, "traceEvents": [3]}', "an object"),
                            (json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": [
                                {"ph": "M", "name": "thread_name", "tid": 1,
                                 "args": {"name": "compute"}},
                                {"ph": "X", "name": "aten::mm", "cat": "F", "tid": 1, "ts": 0,
                                 "dur": 1, "args": {}}]}), "aten::mm.*no instruction of Tandem")):
            with open(self.path("bad.json"), "w", encoding="utf-8") as file:
                file.write(text)
            done = trace(self.path("bad.json"))
            self.assertEqual(done.returncode, 3, text + done.stderr)
            self.assertRegex(done.stderr, "bad.json")
            self.assertRegex(done.stderr, words)


if __name__ == "__main__":
    unittest.main()
