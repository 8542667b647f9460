"""A rank of the tests that gives steps what they take in other ways, and prints a result for each."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from refused import told
from torch import nn
from torch.nn import functional as F

import pipewright as pw

COUNT, SAMPLES = 4, 4
ALL = COUNT * SAMPLES


class Base(nn.Module):
    """Layers, and state that no pass reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.stage, self.unread = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(8).eval()
        self.kept = nn.Buffer(torch.full((2,), 7.0))
        self.passing = nn.Buffer(torch.zeros(2), persistent=False)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.first(x)))


class Named(Base):
    """Arguments by position and by name."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.stage(self.body(x) * scale + shift)
        return logits


class OwnLoss(Base):
    """Its loss, a scalar, and logits."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.stage(self.body(x))
        return F.cross_entropy(logits, y), logits


class Scalar(OwnLoss):
    """Its loss alone."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, y)[0]


class Plain(Base):
    """Logits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.stage(self.body(x))
        return logits


Loss = Callable[[Any, Any], torch.Tensor]


def pipelined(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Loss, **options: Any) -> Any:
    """The pipeline of a module that is traced with the first samples."""
    cut = {name: value[:SAMPLES] for name, value in kwargs.items()}
    trace = pw.trace(module, tuple(x[:SAMPLES] for x in args), cut, repeats=0)
    made = {"ranks": 2, "stages": 2, "micro_batches": COUNT, "schedule": "1f1b"} | options
    return trace.plan(**made).pipeline(loss_fn=loss)


def chunk(value: Any, at: int) -> Any:
    """A micro-batch."""
    part = slice(at * SAMPLES, (at + 1) * SAMPLES)
    return torch.utils._pytree.tree_map(lambda x: x[part], value)


def compare(name: str, module: nn.Module, args: Any, kwargs: Any, target: Any, loss: Loss, **options: Any) -> None:
    """A step, with arguments in another order, against micro-batches in one process."""
    eager = copy.deepcopy(module)
    pipeline = pipelined(module, args, kwargs, loss, **options)
    parts = [(chunk(args, at), chunk(kwargs, at), chunk(target, at)) for at in range(COUNT)]
    want = sum(loss(eager(*a, **k), t) / COUNT for a, k, t in parts)
    assert isinstance(want, torch.Tensor)
    want.backward()
    got = pipeline.step(*args, target=target, **dict(reversed(kwargs.items())))
    wanted = dict(eager.named_parameters())
    off = [(x.grad - wanted[at].grad).abs().max().item() for at, x in pipeline.named_parameters()]
    state = pipeline.state_dict()
    again = copy.deepcopy(module)
    missing = str(again.load_state_dict(state))
    if got is not None:
        result = {"loss": abs(got.item() - want.item()), "gradients": max(off), "loaded": missing}
        print("result", json.dumps([name, {}, result]), flush=True)


def arguments() -> None:
    """Names, targets, losses of modules."""
    x, y = torch.randn(ALL, 8), torch.randint(0, 4, (ALL,))
    scale, shift = torch.rand(ALL, 1), torch.rand(ALL, 1)
    compare("names", Named(), (x,), {"scale": scale, "shift": shift}, y, F.cross_entropy)
    compare("again", Named(), (x,), {"scale": scale, "shift": shift}, y, F.cross_entropy, recompute="full")
    compare("scalar", Scalar(), (x, y), {}, y, lambda output, _: output)
    compare("loss and logits", OwnLoss(), (x, y), {}, y, lambda output, _: output[0], schedule="gpipe")
    compare(
        "tuple",
        Plain(),
        (x,),
        {},
        (y, scale),
        lambda o, t: (F.cross_entropy(o, t[0], reduction="none") * t[1][:, 0]).mean(),
    )
    compare("dictionary", Plain(), (x,), {}, {"y": y}, lambda o, t: F.cross_entropy(o, t["y"]))
    named = pipelined(Named(), (x, scale), {"shift": shift}, F.cross_entropy)
    # Given by name what was traced by position.
    one = named.step(x, target=y, shift=shift, scale=scale)
    if one is not None:
        eager, whole = copy.deepcopy(named._module), (x, scale, shift, y)
        parts = [chunk(whole, at) for at in range(COUNT)]
        want = torch.stack([F.cross_entropy(eager(a, b, shift=c), t) for a, b, c, t in parts]).mean()
        result = {"loss": abs(one.item() - want.item()), "gradients": 0.0}
        print("result", json.dumps(["by name", {}, result]), flush=True)
    told(lambda: named.step(x, scale, target=y, shfit=shift))
    told(lambda: named.step(x, scale, target=y))
    told(lambda: named.step(x, 2.0, target=y, shift=shift))
    for target in (y[:4], torch.cat([y, y]), None, (y, y[:3]), y.tolist()):
        told(partial(named.step, x, scale, target=target, shift=shift))


def replicas() -> None:
    """Frozen layers, and one that only one replica's loss reads."""
    layers = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("a", "b", "c", "frozen")})
    layers["frozen"].requires_grad_(False)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            h = self.layers["frozen"](self.layers["a"](x))
            return h, self.layers["b"](h), self.layers["c"](h)

    rank = dist.get_rank()

    def loss(output: Any, _: Any) -> torch.Tensor:
        used = output if rank == 1 else output[:1]
        return torch.stack([value.square().mean() for value in used[:2]]).sum()

    x = torch.randn(ALL, 8)
    pipeline = pipelined(Net(), (x,), {}, loss, stages=1, replicas=2)
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.1, weight_decay=0.5)
    before = {name: value.clone() for name, value in pipeline.state_dict().items()}
    for _ in range(2):
        pipeline.step(x, target=x)
    once = {name: p.grad for name, p in pipeline.named_parameters()}
    optimizer.step()
    after = pipeline.state_dict()
    result = {
        "none": sorted(name for name, grad in once.items() if grad is None),
        "kept": sorted(name for name, value in before.items() if torch.equal(value, after[name])),
    }
    print("result", json.dumps(["replicas", {}, result]), flush=True)


def main() -> None:
    """`given.py arguments` or `given.py replicas`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    {"arguments": arguments, "replicas": replicas}[sys.argv[1]]()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
