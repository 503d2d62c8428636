#!/usr/bin/python3
"""The demo model in PyTorch, eager, fp32, on the CPU: what Tandem's speed on one rank is held
against. Same sizes, data, batch, losses, clipping and optimizer as configs/demo.json.

Needs Debian's python3-torch. compare_demo.sh looks for the fastest of the choices that the options
offer, and sets up the threads and the matrix library.
"""
import argparse
import json
import pathlib
import statistics
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    raise SystemExit(f"error: {error}: apt-get install python3-torch") from None

ROOT = pathlib.Path(__file__).resolve().parents[2]


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def linear(inputs, outputs, std):
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=std)
    return layer


class Attention(nn.Module):
    def __init__(self, m, options):
        super().__init__()
        self.m, self.kind = m, options.attention
        q_width, kv_width = m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
        self.widths = [q_width, kv_width, kv_width]
        self.qkv = linear(m["hidden"], sum(self.widths), 0.02)
        self.out = linear(q_width, m["hidden"], 0.02 / (2 * m["layers"]) ** 0.5)
        self.q_norm = RMSNorm(m["head_dim"], 1e-6)
        self.k_norm = RMSNorm(m["head_dim"], 1e-6)

    def forward(self, x, rope):
        batch, length, _ = x.shape
        d, groups = self.m["head_dim"], self.m["heads"] // self.m["kv_heads"]
        q, k, v = (t.view(batch, length, -1, d) for t in self.qkv(x).split(self.widths, dim=-1))
        q = rotate(self.q_norm(q), *rope).transpose(1, 2)
        k = rotate(self.k_norm(k), *rope).transpose(1, 2).repeat_interleave(groups, dim=1)
        v = v.transpose(1, 2).repeat_interleave(groups, dim=1)
        if self.kind == "fused":
            y = scaled_dot_product_attention(q, k, v)
        else:
            scores = (q * d ** -0.5) @ k.transpose(2, 3) + rope[2]
            y = scores.softmax(dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


def scaled_dot_product_attention(q, k, v):
    """Public since PyTorch 2.0; before, a private function of the same purpose."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F._scaled_dot_product_attention(q, k, v, None, 0.0, False, True)[0]


def rotate(x, cos, sin, _):
    """x [batch, length, heads, d]; cos and sin [length, 1, d]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def rope_tables(m, length):
    half = m["head_dim"] // 2
    speed = m.get("rope_theta", 10000.0) ** (-torch.arange(half) / half)
    angle = (torch.arange(length)[:, None] * speed).repeat(1, 2)[:, None, :]
    mask = torch.full((length, length), float("-inf")).triu(1)
    return angle.cos(), angle.sin(), mask


class Experts(nn.Module):
    """Router and experts. Dispatch: `sorted` gathers all rows once in expert order, `index` picks
    and adds rows expert by expert, `dense` sends every token to every expert."""

    def __init__(self, m, options):
        super().__init__()
        self.m, self.kind = m, options.dispatch
        hidden, ffn = m["hidden"], m["moe_ffn"]
        down_std = 0.02 / (2 * m["layers"]) ** 0.5
        self.router = linear(hidden, m["experts"], 0.02)
        # One parameter per expert, so that backward adds into each without a copy of all.
        self.gate_up = nn.ModuleList(linear(hidden, 2 * ffn, 0.02) for _ in range(m["experts"]))
        self.down = nn.ModuleList(linear(ffn, hidden, down_std) for _ in range(m["experts"]))

    def expert(self, e, x):
        gate, up = self.gate_up[e](x).chunk(2, dim=-1)
        return self.down[e](F.silu(gate) * up)

    def forward(self, x):
        m, shape = self.m, x.shape
        x = x.view(-1, m["hidden"])
        probs = self.router(x).softmax(dim=-1)
        weights, chosen = probs.topk(m["topk"], dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        counts = torch.bincount(chosen.flatten(), minlength=m["experts"])
        balance = (probs.sum(dim=0) * counts).sum() * m["experts"] / (m["topk"] * x.shape[0] ** 2)
        y = getattr(self, self.kind)(x, weights, chosen, counts)
        return y.view(shape), balance

    def sorted(self, x, weights, chosen, counts):
        topk = self.m["topk"]
        order = chosen.flatten().argsort()  # routed rows in expert order
        rows = x.index_select(0, order.div(topk, rounding_mode="floor")).split(counts.tolist())
        y = torch.cat([self.expert(e, r) for e, r in enumerate(rows)])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        y = y.index_select(0, back).view(-1, topk, self.m["hidden"])
        return torch.bmm(weights.unsqueeze(1), y).squeeze(1)

    def index(self, x, weights, chosen, _):
        y = torch.zeros_like(x)
        for e in range(self.m["experts"]):
            tokens, slot = torch.where(chosen == e)
            part = self.expert(e, x.index_select(0, tokens)) * weights[tokens, slot, None]
            y.index_add_(0, tokens, part)
        return y

    def dense(self, x, weights, chosen, _):
        all_weights = torch.zeros(len(x), self.m["experts"]).scatter(1, chosen, weights)
        return sum(self.expert(e, x) * all_weights[:, e, None] for e in range(self.m["experts"]))


class Layer(nn.Module):
    def __init__(self, m, options):
        super().__init__()
        self.attn_norm, self.mlp_norm = RMSNorm(m["hidden"], 1e-6), RMSNorm(m["hidden"], 1e-6)
        self.attention, self.experts = Attention(m, options), Experts(m, options)

    def forward(self, x, rope):
        x = x + self.attention(self.attn_norm(x), rope)
        y, balance = self.experts(self.mlp_norm(x))
        return x + y, balance


class Model(nn.Module):
    def __init__(self, m, length, options):
        super().__init__()
        self.m = m
        self.embedding = nn.Embedding(m["vocab"], m["hidden"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(m, options) for _ in range(m["layers"]))
        self.norm = RMSNorm(m["hidden"], 1e-6)
        self.head = linear(m["hidden"], m["vocab"], 0.02)
        self.rope = rope_tables(m, length)

    def forward(self, tokens, labels):
        """(mean cross-entropy, balance loss with its coefficient)"""
        x, balance = self.embedding(tokens), 0.0
        for layer in self.layers:
            x, of_layer = layer(x, self.rope)
            balance = balance + of_layer
        logits = self.head(self.norm(x)).view(-1, self.m["vocab"])
        return F.cross_entropy(logits, labels.reshape(-1)), balance * self.m["aux_loss_coef"]


class Batches:
    """Random windows of the text's bytes."""

    def __init__(self, path, length):
        raw = bytearray(path.read_bytes())
        self.bytes = torch.frombuffer(raw, dtype=torch.uint8)
        self.length = length

    def take(self, count):
        begins = torch.randint(len(self.bytes) - self.length - 1, (count,)).tolist()
        windows = torch.stack([self.bytes[b:b + self.length + 1] for b in begins]).long()
        return windows[:, :-1], windows[:, 1:]


def make_optimizer(model, o):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": o["weight_decay"]},
              {"params": others, "weight_decay": 0.0}]
    # foreach is the fastest one on the CPU where fused does not exist.
    return torch.optim.AdamW(groups, lr=o["lr"], betas=(0.9, 0.95), eps=1e-8, foreach=True)


def train_step(model, optimizer, batches, train, o, micro_batch, step):
    for group in optimizer.param_groups:
        group["lr"] = o["lr"] * min(1.0, (step + 1) / o["warmup_steps"])
    parts = train["global_batch"] // micro_batch
    total = 0.0
    for _ in range(parts):
        loss, balance = model(*batches.take(micro_batch))
        ((loss + balance) / parts).backward()
        total += loss.item() / parts
    nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "configs" / "demo.json")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--skip", type=int, default=2, help="steps not measured at the start")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, help="sequences; default: the configuration's")
    parser.add_argument("--dispatch", choices=["sorted", "index", "dense"], default="sorted")
    parser.add_argument("--attention", choices=["fused", "plain"], default="plain")
    options = parser.parse_args()
    if not options.config.is_file():
        parser.error(f"argument --config: there is no file {options.config}")
    if not 0 <= options.skip < options.steps:
        parser.error(f"--steps {options.steps} leaves none to measure after --skip {options.skip}")
    if options.threads < 1 or (options.micro_batch is not None and options.micro_batch < 1):
        parser.error("--threads and --micro-batch begin at 1")
    torch.set_num_threads(options.threads)
    torch.manual_seed(1234)

    config = json.loads(options.config.read_text())
    train, o = config["train"], config["optimizer"]
    model = Model(config["model"], train["seq_len"], options)
    optimizer = make_optimizer(model, o)
    batches = Batches(ROOT / config["data"]["train"][0], train["seq_len"])
    micro_batch = options.micro_batch or train["micro_batch"]

    seconds, losses = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        losses.append(train_step(model, optimizer, batches, train, o, micro_batch, step))
        seconds.append(time.perf_counter() - begin)
    rate = train["global_batch"] * train["seq_len"] / statistics.median(seconds[options.skip:])
    print(json.dumps({"tokens-per-second": round(rate, 1), "first loss": round(losses[0], 4),
                      "last loss": round(losses[-1], 4), "steps": options.steps,
                      "threads": torch.get_num_threads(), "micro-batch": micro_batch,
                      "dispatch": options.dispatch, "attention": options.attention,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
