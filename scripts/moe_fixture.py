#!/usr/bin/env python3
"""Writes the decoders with mixtures of experts of tests/data/golden/moe: weights, samples, and what PyTorch makes of
them in double precision: losses of some steps of SGD, logits, and the gradients of the first step. And those of
tests/data/golden/moe/hf, Mixtral and Qwen3-MoE as their checkpoints are: config.json, weights, logits.

The network is written after what was published: blocks of LLaMA (Touvron et al. 2023) or GPT-2 without rotary positions,
as the preset has them; the mixture after `MixtralSparseMoeBlock` of transformers (softmax over all experts, the top k of
it, divided by their sum) with the capacity of Switch (Fedus et al. 2021), counted in the order of a sample's tokens.

Needs torch 2.8. Run from the repository root: `python scripts/moe_fixture.py tests/data/golden/moe`.
"""

import json
import math
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, FFN, LENGTH, VOCABULARY = 2, 8, 2, 12, 10, 12
SAMPLES, STEPS, RATE = 8, 6, 0.5


def save(tensors, path):
    """safetensors, without its package."""
    header, data = {}, b""
    kinds = {torch.float32: "F32", torch.int64: "I64"}
    for name, tensor in tensors.items():
        content = tensor.detach().contiguous().numpy().tobytes()
        offsets = [len(data), len(data) + len(content)]
        header[name] = dict(dtype=kinds[tensor.dtype], shape=list(tensor.shape), data_offsets=offsets)
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Mixture(torch.nn.Module):
    def __init__(self, experts, top_k, capacity, gated):
        super().__init__()
        self.top_k, self.gated = top_k, gated
        self.rows = min(LENGTH, math.ceil(top_k * LENGTH / experts * capacity))
        self.router = torch.nn.Linear(HIDDEN, experts, bias=False)
        weights = {"proj": (HIDDEN, FFN)}
        weights |= {"gate": (FFN, HIDDEN), "up": (FFN, HIDDEN)} if gated else {"fc": (FFN, HIDDEN)}
        self.experts = torch.nn.ParameterDict(
            {name: torch.nn.Parameter(torch.empty(experts, *shape)) for name, shape in weights.items()}
        )

    def expert(self, e, x):
        if self.gated:
            x = F.silu(x @ self.experts["gate"][e].T) * (x @ self.experts["up"][e].T)
        else:
            x = F.gelu(x @ self.experts["fc"][e].T)
        return x @ self.experts["proj"][e].T

    def forward(self, x):
        shares = F.softmax(self.router(x), dim=-1)
        weights, chosen = torch.topk(shares, self.top_k, dim=-1)
        if self.top_k > 1:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        self.dropped = 0
        order = shares.sort(dim=-1, descending=True).values
        self.gap = (order[..., self.top_k - 1] - order[..., self.top_k]).min().item()
        y = torch.zeros_like(x)
        for e in range(self.router.out_features):
            asked = chosen == e
            place = asked.any(dim=-1).long().cumsum(dim=1) - 1
            taken = asked & (place < self.rows)[..., None]
            self.dropped += int((asked & ~taken).sum())
            y = y + (weights * taken).sum(dim=-1, keepdim=True) * self.expert(e, x)
        return y


class Block(torch.nn.Module):
    def __init__(self, mixture, gated):
        super().__init__()
        norm = torch.nn.RMSNorm(HIDDEN, eps=1e-6) if gated else torch.nn.LayerNorm(HIDDEN)
        self.ln_1, self.ln_2 = norm, type(norm)(HIDDEN, eps=norm.eps)
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN, bias=not gated)
        self.proj = torch.nn.Linear(HIDDEN, HIDDEN, bias=not gated)
        self.moe = mixture

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).split(HIDDEN, dim=-1)
        heads = lambda t: t.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.moe(self.ln_2(x))


class Decoder(torch.nn.Module):
    def __init__(self, experts, top_k, capacity, gated):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = None if gated else torch.nn.Embedding(LENGTH, HIDDEN)
        mixture = lambda: Mixture(experts, top_k, capacity, gated)
        self.h = torch.nn.ModuleList(Block(mixture(), gated) for _ in range(LAYERS))
        self.ln_f = type(self.h[0].ln_1)(HIDDEN, eps=self.h[0].ln_1.eps)
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def ours(name):
    """The parameter's name in the preset."""
    for theirs, here in [(".qkv.", ".attn.qkv."), (".proj.weight", ".attn.proj.weight"), (".proj.bias", ".attn.proj.bias")]:
        if ".moe." not in name:
            name = name.replace(theirs, here)
    name = name.replace("positions.weight", "embedding.position_weight")
    return name if not ".experts." in name else name + ".weight"


def network(folder, name, experts, top_k, capacity, gated):
    torch.manual_seed(1)
    net = Decoder(experts, top_k, capacity, gated).double()
    for parameter in net.parameters():
        # Weights of single precision, so that both begin with the same.
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
        parameter.data = parameter.data.float().double()
    text = torch.randint(VOCABULARY, (SAMPLES, LENGTH + 1))
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    into = folder / name
    into.mkdir(parents=True, exist_ok=True)
    floats = lambda tensors: {ours(name): tensor.detach().float() for name, tensor in tensors}
    save(floats(net.named_parameters()), into / "weights.safetensors")
    save({"x": x, "y": y}, into / "data.safetensors")
    losses = []
    for step in range(STEPS):
        logits = net(x)
        if step == 0:
            dropped = sum(block.moe.dropped for block in net.h)
            save({"y": logits.detach().float()}, into / "logits.safetensors")
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        net.zero_grad()
        loss.backward()
        if step == 0:
            gradients = [(name, p.grad) for name, p in net.named_parameters()]
            save(floats(gradients), into / "gradients.safetensors")
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= RATE * parameter.grad
        losses.append(loss.item())
        # Or rounding would choose the experts.
        assert min(block.moe.gap for block in net.h) > 2e-5
    sizes = f"layers={LAYERS},hidden={HIDDEN},heads={HEADS},ffn={FFN},sequence={LENGTH},vocabulary={VOCABULARY}"
    model = f"transformer:{sizes},experts={experts},top_k={top_k},capacity={capacity}{',gated' if gated else ''}"
    told = dict(model=model, rate=RATE, samples=SAMPLES, dropped=dropped, losses=losses)
    (into / "expected.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{name}: {dropped} of {LAYERS * SAMPLES * LENGTH * top_k} places dropped, losses {losses[0]:.4f} .. {losses[-1]:.4f}")


def turned(x, base):
    """Rotary positions of [.., length, size], halves being pairs."""
    length, size = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    cos, sin = (torch.cat([f(angles)] * 2, dim=-1) for f in (torch.cos, torch.sin))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def checkpoint(config):
    """Random weights by the names and shapes of the hub's files."""
    h, q = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": (VOCABULARY, h), "model.norm.weight": (h,), "lm_head.weight": (VOCABULARY, h)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, shape in [("q", (q, h)), ("k", (kv, h)), ("v", (kv, h)), ("o", (h, q))]:
            shapes[f"{at}.self_attn.{name}_proj.weight"] = shape
        for name in ["input_layernorm", "post_attention_layernorm"]:
            shapes[f"{at}.{name}.weight"] = (h,)
        if config["model_type"] == "mixtral":
            module, names, inner = "block_sparse_moe", ["w1", "w3", "w2"], config["intermediate_size"]
        else:
            module, names, inner = "mlp", ["gate_proj", "up_proj", "down_proj"], config["moe_intermediate_size"]
            for name in ["q_norm", "k_norm"]:
                shapes[f"{at}.self_attn.{name}.weight"] = (config["head_dim"],)
        count = config.get("num_local_experts") or config["num_experts"]
        shapes[f"{at}.{module}.gate.weight"] = (count, h)
        for expert in range(count):
            for name, shape in zip(names, [(inner, h), (inner, h), (h, inner)]):
                shapes[f"{at}.{module}.experts.{expert}.{name}.weight"] = shape
    mean = lambda shape: 1.0 if len(shape) == 1 else 0.0
    return {name: mean(shape) + 0.5 * torch.randn(shape) for name, shape in shapes.items()}


def logits_of(config, weights, tokens):
    """After MixtralForCausalLM and Qwen3MoeForCausalLM of transformers."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    norm = lambda x, name: F.rms_norm(x, x.shape[-1:], w[f"{name}.weight"], config["rms_norm_eps"])
    heads, kv_heads, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    mixtral = config["model_type"] == "mixtral"
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        y = norm(x, f"{at}.input_layernorm")
        q, k, v = (y @ w[f"{at}.self_attn.{n}_proj.weight"].T for n in "qkv")
        q, k, v = (t.unflatten(-1, (-1, size)) for t in (q, k, v))
        if not mixtral:
            q, k = norm(q, f"{at}.self_attn.q_norm"), norm(k, f"{at}.self_attn.k_norm")
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        q, k = turned(q, config["rope_theta"]), turned(k, config["rope_theta"])
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + y @ w[f"{at}.self_attn.o_proj.weight"].T
        y = norm(x, f"{at}.post_attention_layernorm")
        module = f"{at}.block_sparse_moe" if mixtral else f"{at}.mlp"
        names = ["w1", "w3", "w2"] if mixtral else ["gate_proj", "up_proj", "down_proj"]
        shares = F.softmax(y @ w[f"{module}.gate.weight"].T, dim=-1)
        some, chosen = torch.topk(shares, config["num_experts_per_tok"], dim=-1)
        if mixtral or config["norm_topk_prob"]:
            some = some / some.sum(dim=-1, keepdim=True)
        for expert in range(shares.shape[-1]):
            gate, up, down = (w[f"{module}.experts.{expert}.{name}.weight"] for name in names)
            own = (some * (chosen == expert)).sum(dim=-1, keepdim=True)
            x = x + own * ((F.silu(y @ gate.T) * (y @ up.T)) @ down.T)
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def published(folder, name, **more):
    torch.manual_seed(len(name))
    config = dict(vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    config |= dict(intermediate_size=12, max_position_embeddings=16, rms_norm_eps=1e-5, hidden_act="silu", head_dim=4)
    config |= dict(model_type=name, num_experts_per_tok=2, rope_theta=1e6) | more
    into = folder / name
    into.mkdir(parents=True, exist_ok=True)
    (into / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    weights = checkpoint(config)
    save(weights, into / "model.safetensors")
    tokens = torch.randint(VOCABULARY, (3, 6))
    save({"x": tokens, "y": logits_of(config, weights, tokens).float()}, into / "logits.safetensors")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    network(folder, "mixtral", 4, 2, 1.25, True)
    network(folder, "switch", 4, 1, 1.0, False)
    published(folder / "hf", "mixtral", num_local_experts=4)
    published(folder / "hf", "qwen3_moe", num_experts=6, moe_intermediate_size=6, norm_topk_prob=True)
