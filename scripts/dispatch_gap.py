#!/usr/bin/env python3
"""How long dispatch_fwd waits after what it needs, from a trace that logging.trace wrote.

    dispatch_gap.py TRACE.json...

For every dispatch_fwd in whose pair an experts_bwd_input runs, the gap is the time from the moment
its rows are there and its lane is free (the later end of attention_fwd of its layer and micro-batch
and of the all-to-all before it) to its start. Between the two the ranks exchange their counts, which
takes longer where a peer is late; the wait is the gap without that. Prints the dispatch of the first
trace whose exchange is shortest, as the clearest to look at, and medians over all; the last word is
the wait over experts_bwd_input.
"""

import json
import statistics
import sys


def spans_of(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = []
    for event in events:
        if event["ph"] == "X":
            spans.append({
                "lane": lanes[event["tid"]], "name": event["name"], "begin": event["ts"],
                "end": event["ts"] + event["dur"], "layer": event["args"].get("layer"),
                "mb": event["args"].get("microbatch"),
            })
    return sorted(spans, key=lambda span: span["begin"])


def last_before(spans, limit):
    """Of spans that began before `limit`, the last one; None if there is none."""
    found = [span for span in spans if span["begin"] < limit]
    return found[-1] if found else None


def gaps_of(spans):
    """(gap, wait, experts_bwd_input of the pair, label) of every paired dispatch, in microseconds."""
    transfers = [s for s in spans if s["lane"] == "ep" and s["name"] != "counts_fwd"]
    gaps = []
    for dispatch in (s for s in spans if s["name"] == "dispatch_fwd"):
        mine = [s for s in spans if (s["layer"], s["mb"]) == (dispatch["layer"], dispatch["mb"])]
        attention, counts = (
            last_before([s for s in mine if s["name"] == name], dispatch["begin"])
            for name in ("attention_fwd", "counts_fwd"))
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
    return gaps


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    by_trace = [gaps_of(spans_of(path)) for path in sys.argv[1:]]
    gaps = [gap for trace in by_trace for gap in trace]
    if not gaps:
        sys.exit("no dispatch_fwd beside an experts_bwd_input: trace a whole step with overlap on")
    if by_trace[0]:
        print("clearest:", min(by_trace[0], key=lambda row: row[0] - row[1])[3])
    gap, wait, experts = (statistics.median(column) for column in list(zip(*gaps))[:3])
    print(f"{len(gaps)} paired dispatches: median gap {gap / 1e3:.3f} ms, wait {wait / 1e3:.3f} ms, "
          f"experts_bwd_input {experts / 1e3:.3f} ms; wait over experts {wait / experts:.3f}")


if __name__ == "__main__":
    main()
