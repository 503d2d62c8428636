#!/usr/bin/python3
"""Writes the reference values of tests/golden/numerics: one safetensors file per configuration
there, with random parameters, token ids and labels, and the gradient of every parameter; the losses
and the versions that made them go to reference.json.

Needs Debian's python3-torch. Usage: scripts/reference/make_golden.py [FOLDER]
"""
import json
import pathlib
import platform
import struct
import sys

import torch

from model import Config, parameter_shapes, step_loss

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "numerics"
# Single precision computes router probabilities to about 1e-6; a choice that is this clear is the
# same in both.
LEAST_MARGIN = 1e-3


def random_parameters(c, generator):
    """Gains around one, matrices that keep the size of what they transform."""
    parameters = {}
    for name, shape in parameter_shapes(c).items():
        values = torch.randn(shape, generator=generator)
        if name.endswith("norm"):
            values = 1 + 0.2 * values
        elif name == "embedding":
            values = values * (0.3 if c.tied_embeddings else 1.0)
        elif name.endswith("router"):
            values = values * (2 / shape[-1] ** 0.5)
        else:
            values = values / shape[-1] ** 0.5
        # Rounded to fp32 first: the engine starts from exactly these numbers.
        parameters[name] = values.float().double().requires_grad_()
    return parameters


def random_micro_batches(c, train, generator):
    count = train["global_batch"] // train["micro_batch"]
    shape = (train["micro_batch"], train["seq_len"] + 1)
    windows = [torch.randint(c.vocab, shape, generator=generator) for _ in range(count)]
    return [(w[:, :-1], w[:, 1:]) for w in windows]


def check_slope(c, parameters, micro_batches, gradients, generator):
    """The gradient must predict how the loss changes along a random direction."""
    # Small enough that no router changes its mind.
    h = 1e-6
    direction = {n: torch.randn(p.shape, generator=generator).double() for n, p in parameters.items()}

    def loss_at(t):
        with torch.no_grad():
            moved = {n: p + t * direction[n] for n, p in parameters.items()}
            return sum(step_loss(c, moved, micro_batches)[:2]).item()

    measured = (loss_at(h) - loss_at(-h)) / (2 * h)
    predicted = sum((gradients[n] * direction[n]).sum().item() for n in gradients)
    if abs(measured - predicted) > 1e-6 * max(1.0, abs(predicted)):
        raise SystemExit(f"gradient predicts slope {predicted}, the loss has {measured}")


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, tensor) in tensors.items():
        raw = tensor.numpy().astype({"F32": "<f4", "I32": "<i4"}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_case(config_path):
    config = json.loads(config_path.read_text())
    c = Config(config["model"])
    for seed in range(1, 1000):  # the first one whose routers all choose clearly
        generator = torch.Generator().manual_seed(seed)
        parameters = random_parameters(c, generator)
        micro_batches = random_micro_batches(c, config["train"], generator)
        cross_entropy, balance, margin = step_loss(c, parameters, micro_batches)
        if margin >= LEAST_MARGIN:
            break
    else:
        raise SystemExit(f"{config_path}: no seed gives clear routing")

    names = list(parameters)
    found = torch.autograd.grad(cross_entropy + balance, [parameters[n] for n in names])
    gradients = dict(zip(names, found))
    check_slope(c, parameters, micro_batches, gradients, generator)

    tensors = {f"parameter/{n}": ("F32", p.detach()) for n, p in parameters.items()}
    tensors.update({f"gradient/{n}": ("F32", g) for n, g in gradients.items()})
    tensors["tokens"] = ("I32", torch.stack([t.reshape(-1) for t, _ in micro_batches]))
    tensors["labels"] = ("I32", torch.stack([l.reshape(-1) for _, l in micro_batches]))
    write_safetensors(config_path.with_suffix(".safetensors"), tensors)
    return {"name": config_path.stem, "cross_entropy": cross_entropy.item(),
            "balance_loss": balance.item(), "seed": seed, "routing_margin": margin}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    configs = sorted(p for p in folder.glob("*.json") if p.name != "reference.json")
    if not configs:
        raise SystemExit(f"no configuration in {folder}")
    reference = {
        "made_by": "scripts/reference/make_golden.py, float64 on the CPU",
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "machine": platform.machine()},
        "cases": [make_case(path) for path in configs],
    }
    (folder / "reference.json").write_text(json.dumps(reference, indent=2) + "\n")
    for case in reference["cases"]:
        print("{name}: cross-entropy {cross_entropy:.6f}, balance {balance_loss:.6f}, "
              "seed {seed}, margin {routing_margin:.1e}".format(**case))


if __name__ == "__main__":
    main()
