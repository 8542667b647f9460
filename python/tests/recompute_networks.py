"""Networks of the kinds that people train, small enough for tests; each returns its loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = tuple[nn.Module, tuple[Tensor, ...]]


class Attention(nn.Module):
    """Self-attention; rotary positions where asked for."""

    def __init__(self, width: int, heads: int, *, causal: bool, rotary: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal, self.rotary = heads, causal, rotary
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, 2))
        q, k, v = heads
        if self.rotary:
            q, k = rotated(q), rotated(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        result: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return result


def rotated(x: Tensor) -> Tensor:
    """Rotary positions (RoPE) of heads."""
    length, half = x.shape[-2], x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(length, device=x.device)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    """A block of GPT-2 or of a vision transformer."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        result: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return result


class Gpt(nn.Module):
    """A decoder like GPT-2."""

    def __init__(self, layers: int = 4, width: int = 128, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(512, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal=True, dropout=dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 512, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


class RmsNorm(nn.Module):
    """Division by the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class LlamaBlock(nn.Module):
    """A block of LLaMA: RMS norm, rotary positions, SwiGLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.attention = Attention(width, 4, causal=True, rotary=True, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        result: Tensor = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return result


class Llama(nn.Module):
    """A decoder like LLaMA."""

    def __init__(self, layers: int = 3, width: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(512, width)
        self.blocks = nn.ModuleList(LlamaBlock(width) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, 512, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.tokens(x)
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


class Vit(nn.Module):
    """A vision transformer."""

    def __init__(self, layers: int = 4, width: int = 96) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, 3, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.token.expand(x.shape[0], -1, -1), h), 1) + self.positions
        return F.cross_entropy(self.head(self.norm(self.blocks(h))[:, 0]), y)


class Bottleneck(nn.Module):
    """A block of ResNet-50, activations in place."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.skip: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return F.relu(self.norm3(self.conv3(y)) + self.skip(x), inplace=True)


class ResNet(nn.Module):
    """A residual network of bottleneck blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        shapes = [(16, 8, 1), (32, 8, 1), (32, 16, 2), (64, 16, 1), (64, 32, 2), (128, 32, 1)]
        self.blocks = nn.Sequential(*(Bottleneck(*shape) for shape in shapes))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.blocks(self.stem(x)).mean((2, 3))), y)


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net: every level's values are read again on the way up."""

    def __init__(self, width: int = 8, levels: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths, widths[1:], strict=False))[::-1]
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(_double(2 * a, a) for a, _ in pairs)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        kept = []
        for level, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for grow, layer in zip(self.grow, self.up, strict=True):
            x = layer(torch.cat((kept.pop(), grow(x)), 1))
        return F.cross_entropy(self.head(x), y)


def _text(module: nn.Module, batch: int = 4) -> Case:
    return module, (torch.randint(0, 512, (batch, 128)), torch.randint(0, 512, (batch, 128)))


def _images(module: nn.Module, batch: int) -> Case:
    return module, (torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,)))


def gradients(module: nn.Module) -> list[Tensor]:
    """Copies of a module's gradients."""
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def equal(left: list[Tensor], right: list[Tensor]) -> bool:
    """Whether two lists of tensors have the same bits."""
    return len(left) == len(right) and all(map(torch.equal, left, right))


def near(measured: int | None, predicted: int) -> bool:
    """Whether a measured peak is within 2 % of the predicted one."""
    return measured is not None and abs(measured / predicted - 1) < 0.02


NETWORKS: dict[str, Callable[[], Case]] = {
    "gpt": lambda: _text(Gpt()),
    "gpt-dropout": lambda: _text(Gpt(dropout=0.1)),
    "llama": lambda: _text(Llama()),
    "vit": lambda: _images(Vit(), 8),
    "resnet": lambda: _images(ResNet(), 16),
    "unet": lambda: (UNet(), (torch.randn(4, 3, 32, 32), torch.randint(0, 2, (4, 32, 32)))),
}
