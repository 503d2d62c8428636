"""Several ranks give one rank's losses; the ways to overlap give the same bits; nothing hangs."""

import os
import random
import shutil
import signal
import time

from jobs import Failed, require_close, send

SMOKE = ("train.steps=20", "model.layers=4")
ONE = ("parallel.pp=1", "parallel.vpp=1", "parallel.dp=1", "parallel.ep=1")
LAYOUTS = {  # ranks, overrides
    "ep2": (2, "parallel.pp=1", "parallel.dp=2", "parallel.ep=2"),
    "dp2": (2, "parallel.pp=1", "parallel.dp=2", "parallel.ep=1"),
    "pp2": (2, "parallel.pp=2", "parallel.dp=1", "parallel.ep=1"),
    "pp2 x vpp2": (2, "parallel.pp=2", "parallel.vpp=2", "parallel.dp=1", "parallel.ep=1"),
    "pp2 x ep2": (4, "parallel.pp=2", "parallel.dp=2", "parallel.ep=2"),
    "pp2 x vpp2 x ep2": (4, "parallel.pp=2", "parallel.vpp=2", "parallel.dp=2", "parallel.ep=2"),
    "ep4": (4, "parallel.pp=1", "parallel.dp=4", "parallel.ep=4"),
    "pp2 x vpp2 x ep4": (8, "parallel.pp=2", "parallel.vpp=2", "parallel.dp=4", "parallel.ep=4"),
}
MODES = {
    "no overlap": ("overlap.enabled=false",),
    "shared event": ("overlap.events=shared",),
    "weight gradients not delayed": ("overlap.delay_wgrad=false",),
}


def fitting(jobs):
    return {name: layout for name, layout in LAYOUTS.items() if layout[0] <= jobs.gpus}


def file_name(*words):
    return "_".join(words).replace(" ", "-").replace(".", "-")


def layouts(jobs):
    """fp32 losses of every layout against one rank's, to 1e-5 relative; tied embeddings too."""
    one = jobs.run("one", 1, "smoke.json", *SMOKE, *ONE)
    for name, (ranks, *layout) in fitting(jobs).items():
        steps = jobs.run(file_name("layout", name), ranks, "smoke.json", *SMOKE, *layout)
        require_close(f"{name} and one rank", steps, one, 1e-5)
    tied = (*SMOKE, "model.tied_embeddings=true")
    one = jobs.run("one_tied", 1, "smoke.json", *tied, *ONE)
    ranks, *layout = LAYOUTS["pp2"]
    steps = jobs.run("pp2_tied", ranks, "smoke.json", *tied, *layout)
    require_close("pp2 with tied embeddings and one rank", steps, one, 1e-5)


def modes(jobs):
    """bf16, deterministic: every way to overlap gives the same losses, bit for bit."""
    for name in ("ep2", "pp2", "pp2 x vpp2", "pp2 x vpp2 x ep2"):
        if name not in fitting(jobs):
            continue
        ranks, *layout = LAYOUTS[name]
        common = (*SMOKE, "train.dtype=bf16", *layout)
        pair = jobs.run(file_name("mode", name), ranks, "smoke.json", *common)
        for mode, overrides in MODES.items():
            steps = jobs.run(file_name("mode", name, mode), ranks, "smoke.json", *common, *overrides)
            require_close(f"{name}, {mode}", steps, pair, 0)


def uneven(jobs):
    """Ranks that get no token (two tokens a micro-batch), and one expert per rank."""
    few = ("train.steps=50", "train.seq_len=2", "train.micro_batch=1", "model.topk=1",
           "model.norm_topk_prob=false")
    lone = ("train.steps=20", "model.experts=2", "model.topk=1", "model.norm_topk_prob=false")
    for name, overrides in (("ranks without tokens", few), ("one expert per rank", lone)):
        one = jobs.run(file_name("one", name), 1, "smoke.json", *overrides, *ONE)
        ranks, *layout = LAYOUTS["ep2"]
        steps = jobs.run(file_name("ep2", name), ranks, "smoke.json", *overrides, *layout)
        require_close(f"{name}, ep2 and one rank", steps, one, 1e-5)


def delays(jobs, steps=500):
    """A run whose ranks are stopped for random times goes on and ends with the same losses."""
    for name in ("ep2", "pp2 x vpp2", "pp2 x vpp2 x ep2"):
        if name not in fitting(jobs):
            continue
        ranks, *layout = LAYOUTS[name]
        common = (f"train.steps={steps}", "model.layers=4", "logging.format=json", *layout)
        quiet = jobs.run(file_name("quiet", name), ranks, "smoke.json", *common)
        with jobs.start(file_name("delays", name), ranks, "smoke.json", *common) as job:
            job.wait_for('"step": 1,')
            stops = stir(name, job, ranks, random.Random(1), 240)
            code = job.end(240)
        if code != 0:
            raise Failed(f"{name} under random delays ended with {code}:\n{job.text()[-2000:]}")
        if job.text().count('"step"') != steps or job.text().count("lm loss") != steps:
            raise Failed(f"{name} under random delays lost steps")
        if stops == 0:
            raise Failed(f"{name} ended before a rank was stopped: give it more steps")
        lines = job.text().splitlines()
        final = next((line for line in lines if line.startswith(f'{{"step": {steps},')), "no line")
        same = f'"lm loss": {quiet[-1]["lm loss"]:.9g},' in final
        print(f"  {name}: {steps} steps, {stops} stops of single ranks of up to 60 ms; "
              f"last loss {'the same' if same else 'differs'}", flush=True)
        if not same:
            raise Failed(f"{name}: delays changed the loss: {final}")


def stir(name, job, count, dice, limit):
    """Stops one random rank after another until the job ends, `limit` s at most; how often."""
    stops = 0
    end = time.monotonic() + limit
    while sorted(found := job.ranks()) != list(range(count)):
        if job.process.poll() is not None or time.monotonic() > end:
            raise Failed(f"{name}: ranks {sorted(found)} found, wanted {count}:\n{job.text()[-2000:]}")
        time.sleep(0.05)
    ranks = list(found.values())
    while job.process.poll() is None and time.monotonic() < end:
        time.sleep(dice.uniform(0.0, 0.03))
        pid = dice.choice(ranks)
        if not send(pid, signal.SIGSTOP):
            break
        time.sleep(dice.uniform(0.0, 0.06))
        if not send(pid, signal.SIGCONT):
            break
        stops += 1
    return stops


def checkpoints(jobs):
    """Saved on two GPUs, continued on one, and the reverse: the losses of one run throughout."""
    ranks, *two = LAYOUTS["ep2"]
    whole = jobs.run("whole", 1, "smoke.json", *SMOKE, *ONE, "optimizer.schedule=constant")
    for name, first, second in (("two ranks, then one", (ranks, *two), (1, *ONE)),
                                ("one rank, then two", (1, *ONE), (ranks, *two))):
        saved = os.path.join(jobs.work, file_name("ckpt", name))
        shutil.rmtree(saved, ignore_errors=True)  # of an earlier run
        folder = f"checkpoint.dir={saved}"
        half = ("model.layers=4", "train.steps=10", "optimizer.schedule=constant", folder)
        full = ("model.layers=4", "train.steps=20", "optimizer.schedule=constant", folder)
        before = jobs.run(file_name("save", name), first[0], "smoke.json", *half, *first[1:])
        after = jobs.run(file_name("load", name), second[0], "smoke.json", *full, *second[1:])
        if after[0]["step"] != 11:
            raise Failed(f"{name}: continued at step {after[0]['step']}")
        require_close(f"{name}: saved at 10, on to 20", before + after, whole, 1e-5)
