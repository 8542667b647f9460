"""Networks of the tests: each has something that makes it hard to cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class SkipMlp(nn.Module):
    """A skip from the first to the last layer; a change in place."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.middle = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = y = self.first(x)
        for layer in self.middle:
            y = y + self.act(layer(y))
        return self.last(y + first)


class ResidualConv(nn.Module):
    """Batch norm, whose statistics are buffers."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        conv = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b))
        self.stem = conv(3, width)
        self.blocks = nn.ModuleList(conv(width, width) for _ in range(4))
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(x))
        for block in self.blocks:
            x = x + self.act(block(x))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    """A block of a transformer; attends to `memory` where it is given."""

    def __init__(self, width: int, causal: bool = False, cross: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.q = nn.Linear(width, width) if cross else None
        self.kv = nn.Linear(width, 2 * width) if cross else None
        self.causal = causal

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, causal: bool) -> torch.Tensor:
        heads = lambda x: x.unflatten(-1, (4, -1)).transpose(1, 2)
        y = functional.scaled_dot_product_attention(heads(q), heads(k), heads(v), mask, is_causal=causal)
        return y.transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, memory: Any = None, mask: Any = None) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(self.attend(q, k, v, mask, self.causal))
        if self.q is not None and self.kv is not None:
            k, v = self.kv(memory).chunk(2, -1)
            x = x + self.attend(self.q(x), k, v, None, False)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Positions that are made inside, the head's weights those of the embedding."""

    def __init__(self, layers: int = 3, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(64, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, causal=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 64, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Vit(nn.Module):
    """A class token, which is a parameter that no input reaches."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 5, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class EncoderDecoder(nn.Module):
    """Two inputs, a mask that several blocks read, a value that many stages relay."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(64, width), nn.Embedding(64, width)
        self.encoder = nn.ModuleList(Block(width) for _ in range(2))
        self.decoder = nn.ModuleList(Block(width, causal=True, cross=True) for _ in range(2))
        self.head = nn.Linear(width, 64)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = (source != 0)[:, None, None, :]
        x = self.source(source)
        for block in self.encoder:
            x = block(x, mask=mask)
        y = self.target(target)
        for block in self.decoder:
            y = block(y, memory=x)
        return self.head(y).flatten(0, 1)


class Masked(nn.Module):
    """An argument without a batch axis that every block reads, and one that is a number."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, factor: float) -> torch.Tensor:
        x = self.embedding(tokens) * factor
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(x).flatten(0, 1)


class Twice(nn.Module):
    """A tuple in which one value stands twice, and a change of a buffer by a value."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.first(x)
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        y = self.second(x)
        return y, x, y


@dataclass
class Case:
    """A network with its data."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    target: Callable[[int], torch.Tensor]


def tokens(low: int, length: int) -> Callable[[int], torch.Tensor]:
    """Random tokens; 0 stands for padding."""
    return lambda n: torch.randint(low, 64, (n, length))


def images(side: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Random images."""
    return lambda n: (torch.randn(n, 3, side, side),)


def classes(n: int) -> torch.Tensor:
    """Random classes."""
    return torch.randint(0, 10, (n,))


CASES = {
    "mlp": Case(SkipMlp, lambda n: (torch.randn(n, 16),), classes),
    "conv": Case(ResidualConv, images(8), classes),
    "gpt": Case(Gpt, lambda n: (tokens(0, 16)(n),), tokens(0, 16)),
    "vit": Case(Vit, images(8), classes),
    "masked": Case(Masked, lambda n: (tokens(0, 8)(n), torch.randn(8, 8), 0.5), tokens(0, 8)),
    "encoder-decoder": Case(EncoderDecoder, lambda n: (tokens(0, 12)(n), tokens(0, 8)(n)), tokens(0, 8)),
}


def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy of logits in rows."""
    return functional.cross_entropy(output, target.flatten())
