"""Everything that needs several GPUs, part by part; scripts/multi_gpu.sh builds and calls it."""

import argparse
import os
import subprocess
import sys
import time

import agree
import faults
import overlap
from jobs import Failed, Jobs

TINY = ("model.preset=", "model.hidden=64", "model.heads=4", "model.kv_heads=2", "model.head_dim=16",
        "model.experts=8", "model.topk=2", "model.moe_ffn=64", "model.vocab=256", "train.seq_len=64",
        "train.dtype=fp32")


def transports(jobs, out):
    ranks = ["mpirun", "-np", str(jobs.gpus), "--bind-to", "none"]
    result = subprocess.run([*ranks, jobs.tandem, "bench", "alltoall",
                             os.path.join(jobs.configs, "qwen3-30b-a3b.json"),
                             f"train.device={jobs.device}", "parallel.pp=1",
                             f"parallel.dp={jobs.gpus}", f"parallel.ep={jobs.gpus}",
                             f"train.global_batch={jobs.gpus}",
                             "--json", os.path.join(out, "alltoall.json")], timeout=240, check=False)
    if result.returncode != 0:
        raise Failed(f"bench alltoall ended with {result.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem", help="the engine's program")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"),
                        help="cpu rehearses the script on a machine without GPUs")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of this machine to use")
    parser.add_argument("--parts", default="layouts,modes,uneven,checkpoints,faults,transports,"
                        "overlap,delays", help="comma separated, in this order")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the overlap table")
    parser.add_argument("--steps", type=int, default=6, help="steps of each of its runs")
    parser.add_argument("--delay-steps", type=int, default=500)
    parser.add_argument("--override", action="append", default=[], metavar="section.key=value",
                        help="given to every training run, may be repeated")
    parser.add_argument("--models", default="Qwen3-30B-A3B,Mixtral-8x7B",
                        help="of the overlap table, comma separated")
    parser.add_argument("--out", default=".", help="folder for logs and traces")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    configs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")
    jobs = Jobs(os.path.abspath(args.tandem), configs, args.out, args.device, args.gpus, args.override)
    parts = {
        "layouts": lambda: agree.layouts(jobs),
        "modes": lambda: agree.modes(jobs),
        "uneven": lambda: agree.uneven(jobs),
        "checkpoints": lambda: agree.checkpoints(jobs),
        "faults": lambda: faults.run(jobs),
        "transports": lambda: transports(jobs, args.out),
        "overlap": lambda: overlap.run(jobs, args.models.split(","), args.rounds, args.steps,
                                       TINY if args.device == "cpu" else ()),
        "delays": lambda: agree.delays(jobs, args.delay_steps),
    }
    outcomes = {}
    for part in args.parts.split(","):
        begin = time.monotonic()
        print(f"== {part}", flush=True)
        try:
            parts[part]()
            outcomes[part] = "passed"
        except (Failed, subprocess.SubprocessError) as error:
            print(f"  FAILED: {error}", flush=True)
            outcomes[part] = "FAILED"
        outcomes[part] += f" ({time.monotonic() - begin:.0f} s)"
    print("\n".join(f"{part:<14} {outcome}" for part, outcome in outcomes.items()))
    return 1 if any("FAILED" in outcome for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
