#!/usr/bin/env python3
"""Forward and backward pass of a slice of a published model in PyTorch, for comparison.

    slice.py A|B [--micro-batch 1,2] [--micro-batches 1,8] [--repeats 8]

A: Qwen3-30B-A3B with 8 layers, B: Mixtral-8x7B with 4 layers; sequence 4096, random tokens, natural
routing of an untrained router, one GPU, bf16 weights and gradients, no optimizer. It is what a tight
program in PyTorch looks like: each layer and the head compiled whole, one grouped_mm per expert
product, cuDNN attention, routed rows gathered by index in both directions. A step begins without
gradients and adds up those of its micro-batches, as the engine's does; times are a step's over the
number of its micro-batches. Prints a JSON line per micro-batch size and number of micro-batches a step.
Needs PyTorch 2.8 or later (measured with 2.11).
"""
import argparse
import dataclasses
import itertools
import json
import statistics

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    raise SystemExit(f"error: {error}: slice.py needs PyTorch 2.8 or later") from None

SEQ_LEN = 4096
WARM_UP = 4  # micro-batches, in whole steps
MIN_STEPS = 2
INIT_STD = 0.02
EPS = 1e-6
grouped_mm = getattr(F, "grouped_mm", None) or torch._grouped_mm


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    topk: int
    ffn: int
    vocab: int
    theta: float
    qk_norm: bool

    @property
    def widths(self):
        kv = self.kv_heads * self.head_dim
        return [self.heads * self.head_dim, kv, kv]

    def flops_per_token(self):
        """As the engine counts: matrix products without the router, causal attention at half."""
        q, k, v = self.widths
        layer = (self.hidden * (2 * q + k + v) + self.topk * 3 * self.hidden * self.ffn +
                 SEQ_LEN * q)
        return 6 * (self.layers * layer + self.hidden * self.vocab)


SLICES = {
    "A": Model("Qwen3-30B-A3B", 8, 2048, 32, 4, 128, 128, 8, 768, 151936, 1e6, True),
    "B": Model("Mixtral-8x7B", 4, 4096, 32, 8, 128, 8, 2, 14336, 32000, 1e6, False),
}


class ToExperts(torch.autograd.Function):
    """Rows of tokens [T, H] in expert order [T * topk, H]. `place[t, j]` is where copy j went, so the
    gradient is a gather and a sum instead of a scatter."""

    @staticmethod
    def forward(ctx, rows, token, place):
        ctx.save_for_backward(place)
        return rows[token]

    @staticmethod
    def backward(ctx, grad):
        (place,) = ctx.saved_tensors
        return grad[place].sum(1), None, None


class FromExperts(torch.autograd.Function):
    """The sum of each token's copies; its gradient is a gather."""

    @staticmethod
    def forward(ctx, rows, token, place):
        ctx.save_for_backward(token)
        return rows[place].sum(1)

    @staticmethod
    def backward(ctx, grad):
        (token,) = ctx.saved_tensors
        return grad[token], None, None


class Reorder(torch.autograd.Function):
    """A permutation of a vector, with a gather as gradient."""

    @staticmethod
    def forward(ctx, values, order, inverse):
        ctx.save_for_backward(inverse)
        return values[order]

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad[inverse], None, None


def rms_norm(x, weight):
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
    return (wide * scale).to(x.dtype) * weight


def rotate(x, cos, sin):
    """Rotary embedding; x [B, S, heads, head_dim], cos and sin [S, 1, head_dim]."""
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)


def swiglu(gate_up, weight):
    gate, up = gate_up.chunk(2, -1)
    return (F.silu(gate.float()) * up.float() * weight[:, None]).to(gate_up.dtype)


def route(x, router, topk, expert_ids):
    """Weights [T, topk], the order that sorts copies by expert, its inverse, and each expert's end."""
    logits = (x @ router.t()).float()
    best, chosen = torch.topk(logits, topk, dim=-1)
    keys = chosen.flatten().to(torch.uint8)  # a short key: few passes of a radix sort
    keys, order = torch.sort(keys, stable=True)
    positions = torch.arange(order.numel(), device=order.device)
    inverse = torch.empty_like(order).scatter_(0, order, positions)
    ends = torch.searchsorted(keys, expert_ids, right=True).to(torch.int32)
    return torch.softmax(best, -1), order, inverse, ends


def make_layer(model, batch):
    # Plain numbers: the compiler turns them into constants.
    tokens, widths, topk, qk_norm = batch * SEQ_LEN, model.widths, model.topk, model.qk_norm
    heads, kv_heads, head_dim = model.heads, model.kv_heads, model.head_dim

    def layer(x, cos, sin, expert_ids, attn_norm, qkv, q_norm, k_norm, attn_out, mlp_norm, router,
              gate_up, down):
        q, k, v = (rms_norm(x, attn_norm) @ qkv.t()).split(widths, -1)
        q = q.view(batch, SEQ_LEN, heads, head_dim)
        k = k.view(batch, SEQ_LEN, kv_heads, head_dim)
        v = v.view(batch, SEQ_LEN, kv_heads, head_dim)
        if qk_norm:
            q, k = rms_norm(q, q_norm), rms_norm(k, k_norm)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                             v.transpose(1, 2), is_causal=True, enable_gqa=True)
        x = x + out.transpose(1, 2).reshape(tokens, heads * head_dim) @ attn_out.t()

        normed = rms_norm(x, mlp_norm)
        weights, order, inverse, ends = route(normed, router, topk, expert_ids)
        token, place = order // topk, inverse.view(tokens, topk)
        rows = ToExperts.apply(normed, token, place)
        weights = Reorder.apply(weights.flatten(), order, inverse)
        hidden = grouped_mm(rows, gate_up.transpose(-2, -1), offs=ends)
        rows = grouped_mm(swiglu(hidden, weights), down.transpose(-2, -1), offs=ends)
        return x + FromExperts.apply(rows, token, place)

    return layer


def head(x, norm, weight, labels):
    return F.cross_entropy((rms_norm(x, norm) @ weight.t()).float(), labels)


def matrix(*shape):
    values = torch.empty(*shape, device="cuda", dtype=torch.bfloat16).normal_(0, INIT_STD)
    return torch.nn.Parameter(values)


def ones(size):
    return torch.nn.Parameter(torch.ones(size, device="cuda", dtype=torch.bfloat16))


def layer_params(model):
    """In the order a layer takes them; without QK norm its two weights go unused."""
    return [
        ones(model.hidden), matrix(sum(model.widths), model.hidden),
        ones(model.head_dim), ones(model.head_dim),
        matrix(model.hidden, model.widths[0]), ones(model.hidden),
        matrix(model.experts, model.hidden),
        matrix(model.experts, 2 * model.ffn, model.hidden),
        matrix(model.experts, model.hidden, model.ffn),
    ]


def rotary_table(model):
    steps = torch.arange(0, model.head_dim, 2, device="cuda").float() / model.head_dim
    angles = torch.outer(torch.arange(SEQ_LEN, device="cuda").float(), model.theta ** -steps)
    angles = torch.cat((angles, angles), -1)[:, None, :]
    return angles.cos().bfloat16(), angles.sin().bfloat16()


class Program:
    """The parameters of a slice, and its forward and backward pass for one micro-batch size."""

    def __init__(self, model):
        torch.manual_seed(0)
        self.model = model
        self.embedding = matrix(model.vocab, model.hidden)
        self.layers = [layer_params(model) for _ in range(model.layers)]
        self.norm, self.head = ones(model.hidden), matrix(model.vocab, model.hidden)
        self.cos, self.sin = rotary_table(model)
        self.expert_ids = torch.arange(model.experts, device="cuda", dtype=torch.uint8)

    def params(self):
        return [self.embedding, self.norm, self.head,
                *(p for layer in self.layers for p in layer)]

    def compile(self, batch):
        torch._dynamo.reset()
        self.layer_fn = torch.compile(make_layer(self.model, batch), fullgraph=True, dynamic=False)
        self.head_fn = torch.compile(head, fullgraph=True, dynamic=False)

    def forward_backward(self, window):
        """window [batch, SEQ_LEN + 1]: tokens and, one later, labels."""
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            x = F.embedding(window[:, :-1].reshape(-1), self.embedding)
            for params in self.layers:
                x = self.layer_fn(x, self.cos, self.sin, self.expert_ids, *params)
            loss = self.head_fn(x, self.norm, self.head, window[:, 1:].reshape(-1))
            loss.backward()
        return loss.detach()


def steps_for(micro_batches, in_step):
    """Steps that hold `micro_batches`."""
    return -(-micro_batches // in_step)


def measure(program, batch, in_step, repeats):
    """Steps of `in_step` micro-batches each, timed `repeats` micro-batches long or a little longer."""
    model, params = program.model, program.params()
    generator = torch.Generator(device="cuda").manual_seed(1)
    windows = itertools.cycle(
        [torch.randint(0, model.vocab, (batch, SEQ_LEN + 1), device="cuda", generator=generator)
         for _ in range(4)])
    warm_up = steps_for(WARM_UP, in_step)
    events = []
    for step in range(warm_up + max(MIN_STEPS, steps_for(repeats, in_step))):
        if step == warm_up:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        for p in params:
            p.grad = None  # autograd keeps the first micro-batch's gradients and adds the others'
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(in_step):
            loss = program.forward_backward(next(windows))
        end.record()
        if step >= warm_up:
            events.append((begin, end))
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) / in_step for begin, end in events]
    ms = statistics.median(times)
    tokens = batch * SEQ_LEN
    return {
        "model": model.name, "layers": model.layers, "micro_batch": batch,
        "micro_batches": in_step, "steps": len(times), "mb_ms": ms,
        "min_ms": min(times), "tokens_per_s": tokens / ms * 1e3,
        "tflops": model.flops_per_token() * tokens / ms / 1e9,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "loss": float(loss),
        "torch": torch.__version__, "device": torch.cuda.get_device_name(),
    }


def numbers(text):
    """Positive numbers with commas between."""
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError(text)
    return values


def count(text):
    """One positive number."""
    (value,) = numbers(text)
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slice", choices=SLICES)
    parser.add_argument("--micro-batch", type=numbers, default="1,2",
                        help="sequences of a micro-batch: sizes, with commas between")
    parser.add_argument("--micro-batches", type=numbers, default="1,8",
                        help="micro-batches of a step: numbers, with commas between")
    parser.add_argument("--repeats", type=count, default=8,
                        help=f"timed micro-batches of each kind, in {MIN_STEPS} or more steps")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("error: PyTorch finds no GPU, and slice.py needs one")
    program = Program(SLICES[arguments.slice])
    for batch in arguments.micro_batch:
        program.compile(batch)
        for in_step in arguments.micro_batches:
            print(json.dumps({"slice": arguments.slice,
                              **measure(program, batch, in_step, arguments.repeats)}), flush=True)


if __name__ == "__main__":
    main()
