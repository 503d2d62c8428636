#!/usr/bin/env python3
"""The table of scripts/bench_gpu.sh from the files of its rounds.

    slice_table.py FOLDER

Reads FOLDER/engine-SLICE-mbN-stepK-roundR.json (tandem bench slice --json; K micro-batches of N
sequences a step) and FOLDER/torch-SLICE-roundR.json (lines of slice.py), prints medians over the rounds
and writes them to FOLDER/slices.json. Standard library only.
"""
import contextlib
import json
import pathlib
import statistics
import sys


# What the table takes from a row of the engine, and from one of PyTorch.
ENGINE = ("mb_ms", "optimizer_ms", "tokens_per_s", "rate", "share", "gib")
TORCH = ("mb_ms", "peak_gib")


def columns(row, names):
    return {name: float(row[name]) for name in names}


def engine_runs(folder):
    """(slice, micro-batch, micro-batches a step) -> the median row of every round."""
    runs = {}
    for path in sorted(folder.glob("engine-*-mb*-step*-round*.json")):
        with blamed(path):
            _, name, batch, in_step, _ = path.stem.split("-")
            report = json.loads(path.read_text())
            row = [row for row in report["rows"] if row["name"] == "median"][0]
            key = name, int(batch.removeprefix("mb")), int(in_step.removeprefix("step"))
            runs.setdefault(key, []).append(columns(row, ENGINE))
    return runs


def torch_runs(folder):
    runs = {}
    for path in sorted(folder.glob("torch-*-round*.json")):
        with blamed(path):
            for line in path.read_text().splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    key = row["slice"], row["micro_batch"], row["micro_batches"]
                    runs.setdefault(key, []).append(columns(row, TORCH))
    return runs


@contextlib.contextmanager
def blamed(path):
    """Ends the program with a 3 and a line that names the file if it cannot be used."""
    try:
        yield
    except OSError as error:
        refuse(f"{path}: {error.strerror}")
    except (ValueError, LookupError, TypeError) as error:
        refuse(f"{path} is no file of scripts/bench_gpu.sh: {type(error).__name__} {error}")


def refuse(words):
    print(f"error: {words}", file=sys.stderr)
    sys.exit(3)


def median(rows, key):
    return statistics.median(row[key] for row in rows) if rows else None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    engine, torch = engine_runs(folder), torch_runs(folder)
    if not engine:
        refuse(f"no engine-*-mb*-step*-round*.json in {folder}")
    table = []
    for (name, batch, in_step), rows in sorted(engine.items()):
        peer = torch.get((name, batch, in_step), [])
        ours, theirs = median(rows, "mb_ms"), median(peer, "mb_ms")
        table.append({
            "slice": name, "micro_batch": batch, "micro_batches": in_step, "rounds": len(rows),
            "engine_ms": ours, "torch_ms": theirs, "ratio": ours / theirs if theirs else None,
            "optimizer_ms": median(rows, "optimizer_ms"),
            "tokens_per_s": median(rows, "tokens_per_s"), "tflops": median(rows, "rate"),
            "of_limit": median(rows, "share"), "engine_gib": median(rows, "gib"),
            "torch_gib": median(peer, "peak_gib"),
        })
    with blamed(folder / "slices.json"):
        (folder / "slices.json").write_text(json.dumps(table, indent=1) + "\n")

    def cell(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    print("Medians; ms: forward and backward of one micro-batch, without the optimizer step, which tok/s")
    print("and TFLOP/s include; a step: its micro-batches, whose weight gradients add up.")
    print(f"{'slice':6}{'mb':>3}{'a step':>8}{'engine ms':>11}{'PyTorch ms':>12}{'ratio':>7}"
          f"{'optimizer ms':>14}{'tok/s':>9}{'TFLOP/s':>9}{'of limit':>10}{'GiB':>7}{'PyTorch GiB':>13}")
    for row in table:
        print(f"{row['slice']:6}{row['micro_batch']:>3}{row['micro_batches']:>8}"
              f"{cell(row['engine_ms'], 2):>11}{cell(row['torch_ms'], 2):>12}"
              f"{cell(row['ratio'], 3):>7}{cell(row['optimizer_ms'], 1):>14}"
              f"{cell(row['tokens_per_s'], 0):>9}{cell(row['tflops'], 0):>9}"
              f"{cell(100 * row['of_limit'], 1) + ' %':>10}"
              f"{cell(row['engine_gib'], 1):>7}{cell(row['torch_gib'], 1):>13}")


if __name__ == "__main__":
    main()
