"""The model in float64, stated as plainly as possible; gradients come from autograd.

It shares nothing with the engine but the names and shapes of the parameters and the meaning of the
configuration's keys. Everything is written row by row as the definitions read: one matrix at a
time, one expert at a time, no fusion. Parameters are a dict from the engine's names to float64
tensors; every matrix is [out, in] and applied as x @ W.T.
"""
import torch

DEFAULTS = {
    "layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "head_dim": 32, "dense_ffn": 512,
    "experts": 8, "topk": 2, "moe_ffn": 256, "first_k_dense": 0, "moe_every": 1, "moe_pattern": [],
    "vocab": 256, "rope_theta": 10000.0, "norm_eps": 1e-6, "qk_norm": "none",
    "norm_topk_prob": True, "tied_embeddings": False, "aux_loss": "per_layer",
    "aux_loss_coef": 0.01, "z_loss_coef": 0.0,
}


class Config:
    """The model section of a configuration file, defaults filled in."""

    def __init__(self, section):
        unknown = set(section) - set(DEFAULTS)
        if unknown:
            raise SystemExit(f"the reference does not know these model keys: {sorted(unknown)}")
        for key, value in {**DEFAULTS, **section}.items():
            setattr(self, key, value)

    def is_moe(self, layer):
        if self.experts == 0:
            return False
        if self.moe_pattern:
            return self.moe_pattern[layer] == 1
        return layer >= self.first_k_dense and (layer + 1) % self.moe_every == 0


def parameter_shapes(c):
    """Name -> shape, in the order of the network."""
    q_width, kv_width = c.heads * c.head_dim, c.kv_heads * c.head_dim
    shapes = {"embedding": (c.vocab, c.hidden)}
    for layer in range(c.layers):
        part = {"attn_norm": (c.hidden,), "qkv": (q_width + 2 * kv_width, c.hidden)}
        if c.qk_norm == "per_head":
            part.update(q_norm=(c.head_dim,), k_norm=(c.head_dim,))
        elif c.qk_norm == "full":
            part.update(q_norm=(q_width,), k_norm=(kv_width,))
        part.update(attn_out=(c.hidden, q_width), mlp_norm=(c.hidden,))
        if c.is_moe(layer):
            part["router"] = (c.experts, c.hidden)
            part["experts.gate_up"] = (c.experts, 2 * c.moe_ffn, c.hidden)
            part["experts.down"] = (c.experts, c.hidden, c.moe_ffn)
        else:
            part["mlp.gate_up"] = (2 * c.dense_ffn, c.hidden)
            part["mlp.down"] = (c.hidden, c.dense_ffn)
        shapes.update({f"layers.{layer}.{name}": shape for name, shape in part.items()})
    shapes["final_norm"] = (c.hidden,)
    if not c.tied_embeddings:
        shapes["head"] = (c.vocab, c.hidden)
    return shapes


def rms_norm(x, weight, eps):
    """Over the last dimension."""
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


def silu(x):
    return x / (1 + torch.exp(-x))


def swiglu(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, dim=-1)
    return (silu(gate) * up) @ down.T


def rotate(x, theta):
    """x [positions, width]: component j and component j + width/2 turn by position * theta^(-2j/width)."""
    positions, width = x.shape
    half = width // 2
    speed = theta ** (-2 * torch.arange(half, dtype=x.dtype) / width)
    angle = torch.arange(positions, dtype=x.dtype)[:, None] * speed
    first, second = x[:, :half], x[:, half:]
    return torch.cat([first * torch.cos(angle) - second * torch.sin(angle),
                      second * torch.cos(angle) + first * torch.sin(angle)], dim=1)


def attention(c, p, x):
    """One sequence, x [positions, hidden] already normalised -> [positions, hidden]."""
    d = c.head_dim
    q_width, kv_width = c.heads * d, c.kv_heads * d
    q, k, v = (x @ p["qkv"].T).split([q_width, kv_width, kv_width], dim=1)
    if c.qk_norm == "full":
        q, k = rms_norm(q, p["q_norm"], c.norm_eps), rms_norm(k, p["k_norm"], c.norm_eps)
    positions = x.shape[0]
    future = torch.ones(positions, positions, dtype=torch.bool).triu(1)
    heads = []
    for head in range(c.heads):
        of_kv = head // (c.heads // c.kv_heads)
        qh = q[:, head * d:(head + 1) * d]
        kh, vh = (t[:, of_kv * d:(of_kv + 1) * d] for t in (k, v))
        if c.qk_norm == "per_head":
            qh, kh = rms_norm(qh, p["q_norm"], c.norm_eps), rms_norm(kh, p["k_norm"], c.norm_eps)
        scores = rotate(qh, c.rope_theta) @ rotate(kh, c.rope_theta).T / d ** 0.5
        heads.append(torch.softmax(scores.masked_fill(future, float("-inf")), dim=1) @ vh)
    return torch.cat(heads, dim=1) @ p["attn_out"].T


class Routing:
    """What a router decided for all tokens of one layer; the balance losses are made of it."""

    def __init__(self, c, logits):
        self.probabilities = torch.softmax(logits, dim=1)
        ranked, order = self.probabilities.sort(dim=1, descending=True)
        self.chosen = order[:, :c.topk]
        self.weights = ranked[:, :c.topk]
        if c.norm_topk_prob:
            self.weights = self.weights / self.weights.sum(dim=1, keepdim=True)
        self.log_sum = torch.logsumexp(logits, dim=1)
        self.counts = torch.bincount(self.chosen.flatten(), minlength=c.experts).to(logits.dtype)
        # How far the choice is from another one: single precision must choose alike.
        if c.topk < c.experts:
            self.margin = (ranked[:, c.topk - 1] - ranked[:, c.topk]).min().item()
        else:
            self.margin = 1.0


def mixture(c, p, x):
    """x [tokens, hidden] already normalised -> ([tokens, hidden], Routing)."""
    routing = Routing(c, x @ p["router"].T)
    out = torch.zeros_like(x)
    for expert in range(c.experts):
        tokens, slot = torch.nonzero(routing.chosen == expert, as_tuple=True)
        y = swiglu(x[tokens], p["experts.gate_up"][expert], p["experts.down"][expert])
        out = out.index_add(0, tokens, routing.weights[tokens, slot][:, None] * y)
    return out, routing


def balance_loss(c, routings):
    """Of one micro-batch, all its MoE layers, coefficients applied."""
    loss = torch.zeros((), dtype=torch.float64)
    if not routings:
        return loss
    tokens = routings[0].probabilities.shape[0]
    if c.aux_loss == "per_layer":
        for r in routings:
            product = (r.probabilities.sum(dim=0) * r.counts).sum()
            loss = loss + c.aux_loss_coef * c.experts / (c.topk * tokens ** 2) * product
    else:  # pooled: the layers' tokens are one long list
        probabilities = torch.cat([r.probabilities for r in routings]).mean(dim=0)
        fraction = sum(r.counts for r in routings) / (tokens * len(routings))
        loss = loss + c.aux_loss_coef * c.experts * (fraction * probabilities).sum()
    for r in routings:
        loss = loss + c.z_loss_coef * (r.log_sum ** 2).mean()
    return loss


def forward(c, parameters, tokens, labels):
    """One micro-batch, tokens and labels [sequences, positions].

    Returns (mean cross-entropy, balance loss, routings).
    """
    x = parameters["embedding"][tokens]
    routings = []
    for layer in range(c.layers):
        prefix = f"layers.{layer}."
        p = {n[len(prefix):]: t for n, t in parameters.items() if n.startswith(prefix)}
        normed = rms_norm(x, p["attn_norm"], c.norm_eps)
        x = x + torch.stack([attention(c, p, sequence) for sequence in normed])
        normed = rms_norm(x, p["mlp_norm"], c.norm_eps).reshape(-1, c.hidden)
        if c.is_moe(layer):
            y, routing = mixture(c, p, normed)
            routings.append(routing)
        else:
            y = swiglu(normed, p["mlp.gate_up"], p["mlp.down"])
        x = x + y.reshape(x.shape)
    x = rms_norm(x, parameters["final_norm"], c.norm_eps).reshape(-1, c.hidden)
    head = parameters["embedding" if c.tied_embeddings else "head"]
    log_probabilities = torch.log_softmax(x @ head.T, dim=1)
    picked = log_probabilities.gather(1, labels.reshape(-1, 1))
    return -picked.mean(), balance_loss(c, routings), routings


def step_loss(c, parameters, micro_batches):
    """The loss of one step over [(tokens, labels), ...] of equal size.

    Returns (mean cross-entropy over all tokens, balance loss, smallest routing margin); the loss
    that is differentiated is the sum of the first two.
    """
    results = [forward(c, parameters, tokens, labels) for tokens, labels in micro_batches]
    cross_entropy = sum(r[0] for r in results) / len(results)
    balance = sum(r[1] for r in results) / len(results)
    margin = min((routing.margin for r in results for routing in r[2]), default=1.0)
    return cross_entropy, balance, margin
