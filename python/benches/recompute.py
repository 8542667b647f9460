"""Bench of recomputation: steps of `pw.recompute` beside PyTorch's own ways, at measured peaks.

    OMP_NUM_THREADS=1 python python/benches/recompute.py [gpt|llama|resnet|unet ..]

Peaks are sums of the allocator's events above the level before a step, gradients included. Times
are medians of 9 steps; the ways take turns, so that other work on the machine meets all of them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import pipewright as pw
from pipewright.recompute.boxed import boxed
from pipewright.recompute.peak import peak_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recompute_networks import Case, Gpt, Llama, ResNet, UNet  # noqa: E402

STEPS = 9
SECONDS = 5.0
SHARES = (0.7, 0.5, 0.4, 0.3)
THEIRS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MIB = 1 << 20
# What selective checkpointing keeps: the expensive operators.
_aten = torch.ops.aten
KEPT = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
]


def _text(module: nn.Module) -> Case:
    return module, (torch.randint(0, 512, (8, 128)), torch.randint(0, 512, (8, 128)))


NETWORKS: dict[str, Callable[[], Case]] = {
    "gpt": lambda: _text(Gpt(layers=6, width=256)),
    "llama": lambda: _text(Llama(layers=6, width=256)),
    "resnet": lambda: (ResNet(), (torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))),
    "unet": lambda: (UNet(16), (torch.randn(8, 3, 64, 64), torch.randint(0, 2, (8, 64, 64)))),
}


@dataclass
class Way:
    """One way to run a step."""

    name: str
    module: nn.Module
    run: Callable[..., Tensor]
    peak: int = 0
    predicted: int | None = None
    bits: bool = False
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def step(self, arguments: tuple[Tensor, ...]) -> None:
        """Forward and backward pass, with fresh gradients."""
        self.module.zero_grad()
        self.run(*arguments).backward()

    def timed(self, arguments: tuple[Tensor, ...]) -> None:
        """One step by both clocks."""
        begun, busy = time.perf_counter(), time.process_time()
        self.step(arguments)
        self.wall.append(time.perf_counter() - begun)
        self.cpu.append(time.process_time() - busy)

    def look(self, arguments: tuple[Tensor, ...], expected: list[Tensor] | None) -> list[Tensor]:
        """Peak, and whether gradients and buffers have eager's bits after one step."""
        self.step(arguments)
        state = [p.grad for p in self.module.parameters() if p.grad is not None]
        state = [t.clone() for t in [*state, *self.module.buffers()]]
        self.bits = expected is None or all(map(torch.equal, state, expected))
        self.module.zero_grad()
        self.peak = peak_bytes(lambda: self.step(arguments))
        return state


class Checkpointed(nn.Module):
    """A block that `torch.utils.checkpoint` runs again."""

    def __init__(self, block: nn.Module, **more: Any) -> None:
        super().__init__()
        self.block, self.more = block, more

    def forward(self, x: Tensor) -> Tensor:
        """The block's result."""
        result: Tensor = checkpoint(self.block, x, use_reentrant=False, **self.more)
        return result


def checkpointed(name: str, module: nn.Module, **more: Any) -> Way:
    """Every block checkpointed; of a U-Net every level."""
    for part in ("blocks", "down", "up"):
        blocks = getattr(module, part, None)
        for i, block in enumerate(blocks or ()):
            blocks[i] = Checkpointed(block, **more)  # type: ignore[index]
    return Way(name, module, module)


def partitioned(budget: float, module: nn.Module) -> Way:
    """PyTorch's partitioner with an activation memory budget, in the same executor as ours."""
    compiler = aot_autograd(
        fw_compiler=lambda graph, _: boxed(graph),
        partition_fn=min_cut_rematerialization_partition,
        decompositions={},
    )
    step = torch.compile(module, backend=compiler, fullgraph=True, dynamic=False)

    def run(*arguments: Tensor) -> Tensor:
        with config.patch(activation_memory_budget=budget, donated_buffer=False):
            loss: Tensor = step(*arguments)
        return loss

    return Way(f"activation_memory_budget={budget}", module, run)


def ours(share: float, module: nn.Module, arguments: tuple[Tensor, ...]) -> Way | str:
    """`pw.recompute`, or why there is none."""
    try:
        f = pw.recompute(module, arguments, budget=share, seconds=SECONDS)
    except pw.PipewrightError as error:
        return str(error)
    return Way(f"pw.recompute, budget={share}", module, f, predicted=f.report.peak)


def ways_of(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[list[Way], list[Way], dict[float, str]]:
    """All ways to be timed; every budget of PyTorch's; budgets of ours that were refused."""
    fresh = functools.partial(copy.deepcopy, module)
    selective = functools.partial(create_selective_checkpoint_contexts, KEPT)
    eager = Way("eager", other := fresh(), other)
    expected = eager.look(arguments, None)
    ways = [eager, checkpointed("checkpoint, each block", fresh())]
    ways.append(checkpointed("selective checkpoint, each block", fresh(), context_fn=selective))
    refused: dict[float, str] = {}
    for share in SHARES:
        way = ours(share, fresh(), arguments)
        if isinstance(way, str):
            refused[share] = way
        else:
            ways.append(way)
    for way in ways[1:]:
        way.look(arguments, expected)
    theirs = []
    for budget in THEIRS:
        torch.compiler.reset()
        theirs.append(partitioned(budget, fresh()))
        # Its backward pass may read running statistics that the forward pass has written.
        with contextlib.suppress(RuntimeError):
            theirs[-1].look(arguments, expected)
    return ways, theirs, refused


def table(name: str) -> None:
    """The table of one network."""
    torch.manual_seed(0)
    module, arguments = NETWORKS[name]()
    ways, theirs, refused = ways_of(module, arguments)
    compared = []
    for way in ways:
        if way.predicted is not None:
            below = [other for other in theirs if 0 < other.peak <= way.peak * 1.005]
            compared += [max(below, key=lambda other: other.peak)] if below else []
    ways += [way for way in theirs if way in compared]
    for _ in range(STEPS):
        for way in ways:
            way.timed(arguments)
    whole, base = ways[0].peak, statistics.median(ways[0].cpu)
    print(f"\n{name}\n")
    print("| | peak MiB | % | predicted MiB | ms, wall | ms, CPU | % of CPU | eager's bits |")
    print("|---|---|---|---|---|---|---|---|")
    for way in sorted(ways, key=lambda way: -way.peak):
        wall, cpu = statistics.median(way.wall), statistics.median(way.cpu)
        predicted = "" if way.predicted is None else f"{way.predicted / MIB:.2f}"
        print(
            f"| {way.name} | {way.peak / MIB:.2f} | {100 * way.peak / whole:.1f} | {predicted} "
            f"| {1e3 * wall:.0f} | {1e3 * cpu:.0f} | {100 * cpu / base:.0f} | {'yes' if way.bits else 'no'} |"
        )
    for share, why in refused.items():
        print(f"\nbudget={share}: {why}.")
    print("\n| activation_memory_budget | " + " | ".join(str(budget) for budget in THEIRS) + " |")
    print("|---" * (len(THEIRS) + 1) + "|")
    peaks = (f"{100 * way.peak / whole:.0f}" if way.peak else "fails" for way in theirs)
    print("| peak, % of eager's | " + " | ".join(peaks) + " |", flush=True)


def main() -> None:
    """All tables, or those of the named networks."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, medians of {STEPS} steps")
    for name in sys.argv[1:] or NETWORKS:
        table(name)


if __name__ == "__main__":
    main()
