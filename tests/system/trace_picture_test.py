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


# Widths in thousandths of the font's size, of DejaVu Sans, the widest font that the picture names.
DEJAVU = dict(zip("abcdefghijklmnopqrstuvwxyz", (
    613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521,
    392, 634, 592, 818, 592, 592, 525)))
DEJAVU.update(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", (
    684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635,
    611, 732, 684, 989, 685, 611, 685)))
DEJAVU.update({digit: 636 for digit in "0123456789"}, **{"_": 500, " ": 318, "'": 275})


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
        self.assertIn("; steps 2 to 3; cpu", done.stdout)
        self.assertRegex(done.stdout, r"exposed ms\n(?:\S+ .*\n)+busy: .*; exposed: .* all traced steps")
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

    def test_a_text_that_would_leave_its_box_is_left_out(self):
        events = [{"ph": "M", "name": "thread_name", "tid": 1, "args": {"name": "compute"}}]
        names = ("OPT_STEP", "GRAD_SYNC", "SEND", "RECV", "experts_bwd_weight", "combine_fwd",
                 "mlp_bwd_input", "aggregate_fwd")
        now = 0
        for name in names:
            for width in range(1, 240):
                events.append({"ph": "X", "name": name, "cat": "B", "tid": 1, "ts": now,
                               "dur": width, "args": {"layer": 47, "microbatch": 255}})
                now += width
        with open(self.path("t.json"), "w", encoding="utf-8") as file:
            json.dump({"distributedInfo": {"rank": 0}, "traceEvents": events}, file)
        texts, whole = [], 0
        for begin in range(0, now, 8000):  # every fourth 2000 microseconds: 0.7 units each
            done = trace(self.path("t.json"), "--svg", self.path("t.svg"), "--from",
                         str(begin / 1e3), "--to", str((begin + 2000) / 1e3))
            self.assertEqual(done.returncode, 0, done.stderr)
            box = None
            for element in xml.parse(self.path("t.svg")).getroot():
                if element.get("data-n"):
                    box = element
                elif element.tag == SVG + "text" and "n" in element.get("class", "").split():
                    half = sum(DEJAVU[c] for c in element.text) * 11 / 1000 / 2
                    middle, left = float(element.get("x")), float(box.get("x"))
                    right = left + float(box.get("width"))
                    self.assertGreaterEqual(middle - half, left - 0.01, element.text)
                    self.assertLessEqual(middle + half, right + 0.01, element.text)
                    title = box.find(SVG + "title").text
                    whole += title.startswith(element.text)
                    texts.append(element.text)
        self.assertGreater(whole, 100)  # where there is room, the name
        self.assertTrue({"SEND", "experts", "experts_bwd_weight"} <= set(texts), set(texts))

    def test_what_is_wrong_is_said(self):
        path, _ = self.traced()
        for code, words, *arguments in (
                (2, "no such node; it has .*attention_fwd", path, "--svg", "x.svg", "--around", "nothing"),
                (2, "--around requires --svg", path, "--around", "dispatch_fwd"),
                (2, "--from requires --svg", path, "--from", "1"),
                (2, "--to requires --svg", path, "--to", "1"),
                (2, "nothing lies after --from 1000000000: the trace", path, "--svg", "x.svg", "--from",
                 "1e9"),
                (2, "nothing lies before --to 0: the trace", path, "--svg", "x.svg", "--to", "0"),
                (2, "nothing lies between --from 2 and --to 1: the", path, "--svg", "x.svg", "--from",
                 "2", "--to", "1"),
                (3, "cannot read .*logging.trace", self.path("missing.json")),
                (3, "cannot be written", path, "--svg", "/dev/null/a.svg")):
            done = trace(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, words)
        for text, words in (("not json", "line 1"),
                            ('{"step": 1, "lm loss": 4.2}\n{"step": 2, "lm loss": 4.1}\n',
                             "is not a trace, .*; give a trace that logging.trace wrote, such as"),
                            ("{}", "is not a trace: it has no traceEvents; give a trace"),
                            ('{"traceEvents": []}', "distributedInfo"),
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
