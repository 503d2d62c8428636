"""A rank that dies or stops ends the whole job within the watchdog's time, with a useful message."""

import re
import signal
import time

from agree import LAYOUTS, file_name, fitting
from jobs import Failed, send

# Or between two steps, where ranks wait for each other's reports and no lane has an instruction.
INSTRUCTION = (r"((RUN|SEND|RECV|HOST_WAIT|GRAD_SYNC|OPT_STEP) (compute|ep|host|send|recv|dp)|"
               "between steps)")
WATCHDOG = 5
ENDLESS = ("train.steps=1000000", "model.layers=4", f"train.watchdog_s={WATCHDOG}")


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def require_gone(name, pids, patience=10):
    """Freeing a GPU's memory can keep a killed process for seconds."""
    end = time.monotonic() + patience
    while any(lives(pid) for pid in pids):
        if time.monotonic() > end:
            raise Failed(f"{name}: of processes {list(pids)} some live on")
        time.sleep(0.1)


def strike(jobs, layout, blow, patterns, code=None):
    """Sends `blow` to the last rank in the middle of training."""
    ranks, *overrides = LAYOUTS[layout]
    name = file_name("fault", layout, blow.name)
    with jobs.start(name, ranks, "smoke.json", *ENDLESS, *overrides) as job:
        job.wait_for(r"step +20/")
        pids = job.ranks()
        if sorted(pids) != list(range(ranks)) or not send(pids[ranks - 1], blow):
            raise Failed(f"{name}: ranks {sorted(pids)} found, wanted {ranks}:\n"
                         f"{job.text()[-3000:]}")
        begin = time.monotonic()
        ended = job.end(WATCHDOG + 60)
        seconds = time.monotonic() - begin
    text = job.text()
    for pattern in (*patterns, INSTRUCTION):
        if not re.search(pattern, text):
            raise Failed(f"{name}: no '{pattern}' in:\n{text[-3000:]}")
    if ended == 0 or (code is not None and ended != code):
        raise Failed(f"{name}: exit code {ended}:\n{text[-3000:]}")
    require_gone(name, pids.values())
    said = next(line for line in text.splitlines() if re.search(INSTRUCTION, line))
    print(f"  {layout}, {blow.name}: all ended after {seconds:.1f} s with {ended}: {said.strip()[:200]}",
          flush=True)


def run(jobs):
    for layout in ("ep2", "pp2", "pp2 x vpp2 x ep2"):
        if layout in fitting(jobs):
            strike(jobs, layout, signal.SIGKILL, [r"rank \d .*\n?.*signal 9"])
            strike(jobs, layout, signal.SIGSTOP, [r"rank \d has not moved for \d+ s"], code=5)
