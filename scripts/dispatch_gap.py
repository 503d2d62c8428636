#!/usr/bin/env python3
"""How long dispatch_fwd waits after what it needs, from a trace that logging.trace wrote.

For every dispatch_fwd in whose pair an experts_bwd_input runs, the gap is the time from the moment
its rows are there and its lane is free (the later end of attention_fwd of its layer and micro-batch
and of the all-to-all before it) to its start. Between the two the ranks exchange their counts, which
takes longer where a peer is late; the wait is the gap without that. Prints the dispatch of the first
trace whose exchange is shortest, as the clearest to look at, and medians over all; the last word is
the wait over experts_bwd_input. Exit code 3: a file cannot be read or has nothing to measure.
"""

import argparse
import json
import math
import statistics
import sys


class Unusable(Exception):
    """A file that is no trace, or a trace without what is measured."""


def spans_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        spans = [span_of(event, lanes) for event in events if event["ph"] == "X"]
    except OSError as error:
        raise Unusable(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Unusable(f"{path} is no trace that logging.trace wrote: "
                       f"{type(error).__name__} {str(error)[:80]}") from None
    return sorted(spans, key=lambda span: span["begin"])


def span_of(event, lanes):
    begin, length = float(event["ts"]), float(event["dur"])
    if not (math.isfinite(begin) and math.isfinite(length)):
        raise ValueError("a time that is no number")
    return {"lane": lanes[event["tid"]], "name": event["name"], "begin": begin,
            "end": begin + length, "layer": event["args"].get("layer"),
            "mb": event["args"].get("microbatch")}


def last_before(spans, limit):
    """Of spans that began before `limit`, the last one; None if there is none."""
    found = [span for span in spans if span["begin"] < limit]
    return found[-1] if found else None


def gaps_of(spans):
    """(gap, wait, experts_bwd_input of the pair, label) of every paired dispatch, in microseconds,
    and the number of dispatches whose attention or exchange of counts was not traced."""
    transfers = [s for s in spans if s["lane"] == "ep" and s["name"] != "counts_fwd"]
    gaps, cut = [], 0
    for dispatch in (s for s in spans if s["name"] == "dispatch_fwd"):
        mine = [s for s in spans if (s["layer"], s["mb"]) == (dispatch["layer"], dispatch["mb"])]
        attention, counts = (
            last_before([s for s in mine if s["name"] == name], dispatch["begin"])
            for name in ("attention_fwd", "counts_fwd"))
        if attention is None or counts is None:
            cut += 1
            continue
        following = [s for s in spans if s["lane"] == "compute" and
                     s["begin"] >= attention["end"] - 1]
        # In a pair the experts' backward pass is what computes next; alone, nothing does before
        # the experts' forward pass of the same micro-batch.
        if not following or following[0]["name"] != "experts_bwd_input":
            continue
        before = last_before(transfers, dispatch["begin"])
        ready = max(attention["end"], before["end"] if before else 0)
        experts = following[0]
        gap = dispatch["begin"] - ready
        wait = gap - (counts["end"] - counts["begin"])
        label = f"dispatch_fwd L{dispatch['layer']} mb{dispatch['mb']}"
        gaps.append((gap, wait, experts["end"] - experts["begin"], label))
    return gaps, cut


def report(paths):
    by_trace = [gaps_of(spans_of(path)) for path in paths]
    gaps = [gap for trace, _ in by_trace for gap in trace]
    if not gaps:
        cut = sum(count for _, count in by_trace)
        left_out = f" ({cut} without their attention_fwd or counts_fwd)" if cut else ""
        raise Unusable("no dispatch_fwd beside an experts_bwd_input: trace a whole step with "
                       f"overlap on{left_out}")
    gap, wait, experts = (statistics.median(column) for column in list(zip(*gaps))[:3])
    if experts <= 0:
        raise Unusable("experts_bwd_input took no time: there is nothing to compare the wait with")
    first, _ = by_trace[0]
    if first:
        print("clearest:", min(first, key=lambda row: row[0] - row[1])[3])
    print(f"{len(gaps)} paired dispatches: median gap {gap / 1e3:.3f} ms, wait {wait / 1e3:.3f} ms, "
          f"experts_bwd_input {experts / 1e3:.3f} ms; wait over experts {wait / experts:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="+", help="a file such as trace-rank0.json")
    try:
        report(parser.parse_args().trace)
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
