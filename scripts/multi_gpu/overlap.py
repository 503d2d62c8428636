"""How much of the expert all-to-all is hidden in slices of published models, mode by mode.

The learning rate is 0: a few steps of training would make the router favour few experts.
"""

import os
import statistics

from jobs import median

COMMON = ("parallel.pp=1", "parallel.vpp=1", "train.dtype=bf16", "train.micro_batch=1",
          "optimizer.warmup_steps=1", "optimizer.lr=0", "optimizer.min_lr=0", "checkpoint.dir=", "checkpoint.every=0",
          "train.deterministic=false", "train.watchdog_s=60")
MODES = {
    "no overlap": ("overlap.enabled=false", "overlap.delay_wgrad=false"),
    "shared event": ("overlap.events=shared", "overlap.delay_wgrad=false"),
    "pair per direction": ("overlap.delay_wgrad=false",),
    "pair + delayed weight gradients": ("overlap.delay_wgrad=true",),
}
KEYS = ("iteration-time", "tokens-per-second", "throughput", "alltoall-hidden-share",
        "alltoall-exposed-ms", "host-wait-ms")


def slices(gpus):
    return {"Qwen3-30B-A3B": ("qwen3-30b-a3b.json", "model.layers=8"),
            "Mixtral-8x7B": ("mixtral-8x7b.json", "model.layers=4" if gpus <= 2 else "model.layers=8")}


def run(jobs, models, rounds, steps, tiny):
    """Interleaved rounds; medians over the steps after two of warm-up, then over the rounds."""
    for model, (config, *shape) in slices(jobs.gpus).items():
        if model not in models:
            continue
        layout = (f"parallel.dp={jobs.gpus}", f"parallel.ep={jobs.gpus}",
                  f"train.global_batch={8 * jobs.gpus}", f"train.steps={steps}")
        seen = {mode: [] for mode in MODES}
        for turn in range(rounds):
            for mode, overrides in MODES.items():
                name = f"overlap_{config[:4]}_{list(MODES).index(mode)}_{turn}"
                trace = ()
                if turn == 0:
                    trace = (f"logging.trace={os.path.join(jobs.work, name)}",
                             f"logging.trace_begin={steps - 1}", "logging.trace_steps=1")
                lines = jobs.run(name, jobs.gpus, config, *shape, *COMMON, *layout, *overrides,
                                 *trace, *tiny, limit=240)
                # The traced step is left out: writing the trace is part of its time.
                seen[mode].append({key: median(lines[:-1], key) for key in KEYS})
        print(f"\n{model}, {', '.join(shape)}, ep {jobs.gpus}, medians of {rounds} rounds "
              f"(per rank 8 micro-batches of one sequence)")
        print(f"{'mode':<34}{'step s':>9}{'tok/s':>10}{'TFLOP/s':>9}{'hidden':>8}"
              f"{'exposed ms':>12}{'host wait ms':>14}")
        for mode, runs in seen.items():
            row = {key: statistics.median(r[key] for r in runs) for key in KEYS}
            print(f"{mode:<34}{row['iteration-time']:>9.3f}{row['tokens-per-second']:>10.0f}"
                  f"{row['throughput']:>9.0f}{100 * row['alltoall-hidden-share']:>7.1f}%"
                  f"{row['alltoall-exposed-ms']:>12.1f}{row['host-wait-ms']:>14.2f}", flush=True)
