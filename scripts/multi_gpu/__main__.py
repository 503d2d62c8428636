"""Everything that needs several GPUs, part by part; scripts/multi_gpu.sh builds and calls it."""

import argparse
import os
import shutil
import signal
import sys
import time

import agree
import faults
import overlap
from jobs import Failed, Jobs

TINY = ("model.preset=", "model.hidden=64", "model.heads=4", "model.kv_heads=2", "model.head_dim=16",
        "model.experts=8", "model.topk=2", "model.moe_ffn=64", "model.vocab=256", "train.seq_len=64",
        "train.dtype=fp32")


def transports(jobs):
    with jobs.command("transports", jobs.gpus, ("bench", "alltoall"), "qwen3-30b-a3b.json",
                      "parallel.pp=1", f"parallel.dp={jobs.gpus}", f"parallel.ep={jobs.gpus}",
                      f"train.global_batch={jobs.gpus}",
                      "--json", os.path.join(jobs.work, "alltoall.json")) as job:
        code = job.end(240)
        print(job.text(), end="", flush=True)
    if code != 0:
        raise Failed(f"bench alltoall ended with {code}")


PARTS = {
    "layouts": lambda jobs, args: agree.layouts(jobs),
    "modes": lambda jobs, args: agree.modes(jobs),
    "uneven": lambda jobs, args: agree.uneven(jobs),
    "checkpoints": lambda jobs, args: agree.checkpoints(jobs),
    "faults": lambda jobs, args: faults.run(jobs),
    "transports": lambda jobs, args: transports(jobs),
    "overlap": lambda jobs, args: overlap.run(jobs, args.models, args.rounds, args.steps,
                                              TINY if args.device == "cpu" else ()),
    "delays": lambda jobs, args: agree.delays(jobs, args.delay_steps),
}
MODELS = tuple(overlap.slices(2))


def names_of(choices):
    """Of an option's value: names with commas between."""
    def names(text):
        for name in text.split(","):
            if name not in choices:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(choices)}")
        return text.split(",")
    return names


def at_least(limit):
    def number(text):
        if not text.isdecimal() or int(text) < limit:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {limit} up")
        return int(text)
    return number


def arguments():
    parser = argparse.ArgumentParser(prog="multi_gpu", usage="%(prog)s TANDEM [OPTION...]",
                                     description=__doc__)
    parser.add_argument("tandem", help="the engine's program")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"),
                        help="cpu rehearses the script on a machine without GPUs")
    parser.add_argument("--gpus", type=int, default=2, choices=(2, 4, 8),
                        help="GPUs of this machine to use")
    parser.add_argument("--parts", type=names_of(PARTS), default=",".join(PARTS),
                        help="comma separated, in this order")
    parser.add_argument("--rounds", type=at_least(1), default=2, help="rounds of the overlap table")
    parser.add_argument("--steps", type=at_least(4), default=6,
                        help="steps of each of its runs: two warm up, the last is traced")
    parser.add_argument("--delay-steps", type=at_least(1), default=500)
    parser.add_argument("--override", action="append", default=[], metavar="section.key=value",
                        help="given to every training run, may be repeated")
    parser.add_argument("--models", type=names_of(MODELS), default=",".join(MODELS),
                        help="of the overlap table, comma separated")
    parser.add_argument("--out", default=".", help="folder for logs and traces")
    parser.add_argument("--check-only", action="store_true",
                        help="tell what is wrong with the arguments and run nothing")
    args = parser.parse_args()
    try:
        os.makedirs(args.out, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: {args.out}: {error.strerror}")
    if not args.check_only and shutil.which(os.path.abspath(args.tandem)) is None:
        parser.error(f"{args.tandem} is no program")
    return args


def run(part, jobs, args):
    """What came of a part, in words; one that started no job has shown nothing."""
    begin, before = time.monotonic(), jobs.started
    print(f"== {part}", flush=True)
    outcome = "passed"
    try:
        PARTS[part](jobs, args)
        if jobs.started == before:
            raise Failed("nothing was run")
    except KeyboardInterrupt:
        outcome = "INTERRUPTED"
    except Exception as error:  # whatever it is, the other parts and the summary follow
        known = isinstance(error, (Failed, OSError))
        print(f"  FAILED: {error if known else repr(error)}", flush=True)
        outcome = "FAILED"
    count = jobs.started - before
    return f"{outcome} ({count} job{'s' * (count != 1)}, {time.monotonic() - begin:.0f} s)"


def main():
    args = arguments()
    if args.check_only:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no job is left behind
    configs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")
    jobs = Jobs(os.path.abspath(args.tandem), configs, args.out, args.device, args.gpus, args.override)
    outcomes = []
    for part in args.parts:
        outcomes.append((part, run(part, jobs, args)))
        if outcomes[-1][1].startswith("INTERRUPTED"):
            break
    print("\n".join(f"{part:<14} {outcome}" for part, outcome in outcomes))
    return 0 if all(outcome.startswith("passed") for _, outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
