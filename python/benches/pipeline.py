"""Bench of pipelines: predicted and measured steps, cut as planned and by layer count as torchtitan does.

    OMP_NUM_THREADS=1 python python/benches/pipeline.py [gpt|gpt-vocabulary|vit|residual|vgg|narrowing ..]

Two gloo ranks with a thread each, 1F1B, 8 micro-batches. Both divisions run in the same processes and take
turns, so that other work on the machine meets both, and so do steps and traces: five times three steps of each, from a
barrier to the last rank's end, between two traces. Their mean predicts these steps; figures are medians. `error of passes`
is that of all passes of both ranks together, as they were recorded in the same steps: what the error of a step has besides are
waits, which grow where equal passes take unequal times. `traces apart`, largest to smallest, is the machine's part.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import pipewright as pw
from pipewright._timeline import Span, read

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from networks import Block  # noqa: E402

RANKS, MICRO_BATCHES, ROUNDS, STEPS = 2, 8, 5, 3


class Layers(nn.Module):
    """What comes in, layers of the same kind, and what comes out."""

    def __init__(self, first: nn.Module, layers: list[nn.Module], last: nn.Module) -> None:
        super().__init__()
        self.first, self.layers, self.last = first, nn.ModuleList(layers), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.last(x)
        return out


class Tokens(nn.Module):
    """An embedding with positions."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.tokens(x) + self.positions
        return out


class Patches(nn.Module):
    """Patches of images in a row."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.patches(x).flatten(2).transpose(1, 2)
        return out


class Residual(nn.Module):
    """Two convolutions with batch norm beside a shortcut, which halves the image where the width grows."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        step = 1 if width == out else 2
        self.conv1, self.norm1 = nn.Conv2d(width, out, 3, step, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Identity() if width == out else nn.Conv2d(width, out, 1, step, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Mean(nn.Module):
    """The mean over places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


@dataclass
class Case:
    """A network with one micro-batch."""

    make: Callable[[], nn.Module]
    samples: int
    inputs: Callable[[int], torch.Tensor]
    classes: int
    length: int = 0
    """Targets of a sample, 0 for one class."""

    def target(self, samples: int) -> torch.Tensor:
        """Classes to be learned."""
        return torch.randint(0, self.classes, (samples, self.length) if self.length else (samples,))


def gpt(vocabulary: int) -> Case:
    """Six blocks; with a large vocabulary the head is as long as several of them."""
    width, length = 256, 128
    head = lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))
    make = lambda: Layers(Tokens(vocabulary, length, width), [Block(width, causal=True) for _ in range(6)], head())
    return Case(make, 4, lambda n: torch.randint(0, vocabulary, (n, length)), vocabulary, length)


def vit() -> Case:
    """Equal blocks."""
    head = lambda: nn.Sequential(Mean(), nn.Linear(192, 10))
    make = lambda: Layers(Patches(4, 192), [Block(192) for _ in range(6)], head())
    return Case(make, 8, lambda n: torch.randn(n, 3, 32, 32), 10)


def residual() -> Case:
    """ResNet-18's blocks at a quarter of its width."""
    widths = (32, 32, 32, 64, 64, 128, 128, 256, 256)
    stem = lambda: nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    head = lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    blocks = lambda: [Residual(a, b) for a, b in zip(widths, widths[1:], strict=False)]
    return Case(lambda: Layers(stem(), blocks(), head()), 8, lambda n: torch.randn(n, 3, 32, 32), 10)


def vgg() -> Case:
    """VGG's convolutions at half of their width: long at the begin, short at the end."""
    plan = ((3, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2), (64, 128, 1), (128, 128, 2), (128, 256, 1), (256, 256, 2))

    def layer(width: int, out: int, pool: int) -> nn.Module:
        parts = [nn.Conv2d(width, out, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*parts, nn.MaxPool2d(2)) if pool == 2 else nn.Sequential(*parts)

    head = lambda: nn.Sequential(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    make = lambda: Layers(nn.Identity(), [layer(*x) for x in plan], head())
    return Case(make, 8, lambda n: torch.randn(n, 3, 32, 32), 10)


def narrowing() -> Case:
    """Linear layers that halve."""
    widths = (1024, 1024, 1024, 512, 512, 256, 256, 256)
    layers = lambda: [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, widths[1:], strict=False)]
    make = lambda: Layers(nn.Linear(1024, 1024), layers(), nn.Linear(256, 10))
    return Case(make, 64, lambda n: torch.randn(n, 1024), 10)


CASES: dict[str, Callable[[], Case]] = {
    "gpt": lambda: gpt(512),
    "gpt-vocabulary": lambda: gpt(8192),
    "vit": vit,
    "residual": residual,
    "vgg": vgg,
    "narrowing": narrowing,
}


def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over samples, and positions where there are some."""
    return functional.cross_entropy(output.flatten(0, -2), target.flatten())


def by_layer_count(trace: pw.Trace, layers: int) -> str:
    """The first node of the second stage, as torchtitan's `generate_llm_fqn_per_model_part` counts.

    What comes in and what comes out count as a layer each, and the first stages take what is left over.
    """
    count = layers + 2
    first = count // RANKS + (1 if count % RANKS else 0) - 1
    inside = f"layers.{first}."
    return next(x["name"] for x in trace.nodes if x["module"].startswith(inside) or x["module"] == inside[:-1])


def step_time(pipeline: Any, optimizer: torch.optim.Optimizer, data: Any) -> float:
    """Seconds from a barrier until the last rank has updated its parameters."""
    dist.barrier()
    begin = time.perf_counter()
    optimizer.zero_grad()
    pipeline.step(data[0], target=data[1])
    optimizer.step()
    took = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def recorded(pipeline: Any, optimizer: torch.optim.Optimizer, data: Any) -> Step:
    """A step and its passes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        with pw.record(pipeline, path):
            step = step_time(pipeline, optimizer, data)
        return Step(step, passes(read(path.read_text())) if path.exists() else 0.0)


def passes(spans: list[Span]) -> float:
    """Seconds of all passes, of all ranks."""
    return sum(span.end - span.start for span in spans if span.kind != "O")


@dataclass
class Step:
    """Seconds of a step, from begin to end and of all its passes together."""

    whole: float
    passes: float


@dataclass
class Round:
    """Steps between two traces, by way of cutting, and what each of the traces predicts."""

    predicted: list[tuple[Step, Step]]
    steps: list[list[Step]]

    def error(self, way: int, of: Callable[[Step], float]) -> float:
        """By how much the mean of both predictions is off."""
        return statistics.mean(map(of, self.predicted[way])) / statistics.median(map(of, self.steps[way])) - 1


def measured(name: str) -> None:
    """Two rows of the table, by both ranks."""
    case = CASES[name]()
    torch.manual_seed(0)
    module = case.make()
    inputs, target = case.inputs(case.samples), case.target(case.samples)
    here = pw.cluster()
    traced = lambda: pw.trace(module, (inputs,), loss=loss_fn, target=target)
    options = {"micro_batches": MICRO_BATCHES, "schedule": "1f1b", "cluster": here, "optimizer": "sgd"}
    trace = traced()
    by_count = by_layer_count(trace, len(module.layers))
    plans = [trace.plan(ranks=RANKS, stages=RANKS, **options), trace.plan(cuts=[by_count], **options)]
    cuts = [plan.stages[1][0] for plan in plans]

    def predicted(trace: pw.Trace) -> list[Step]:
        plans = [trace.plan(cuts=[cut], **options) for cut in cuts]
        return [Step(plan.figures["step_ns"] / 1e9, passes(plan.timeline)) for plan in plans]

    data = case.inputs(case.samples * MICRO_BATCHES), case.target(case.samples * MICRO_BATCHES)
    pipelines = [plan.pipeline(loss_fn=loss_fn) for plan in plans]
    ways = [(pipeline, torch.optim.SGD(pipeline.parameters(), lr=1e-4)) for pipeline in pipelines]
    for way in ways:
        step_time(*way, data)
    traces, rounds, before = [trace], [], predicted(trace)
    for _ in range(ROUNDS):
        steps: list[list[Step]] = [[], []]
        for turn in range(STEPS):
            for way in (0, 1) if turn % 2 else (1, 0):
                steps[way].append(recorded(*ways[way], data))
        traces.append(traced())
        after = predicted(traces[-1])
        rounds.append(Round(list(zip(before, after, strict=True)), steps))
        before = after
    if dist.get_rank() == 0:
        report(name, cuts, rounds, [trace.step for trace in traces])
    dist.barrier()


def report(name: str, cuts: list[str], rounds: list[Round], traces: list[float]) -> None:
    """Prints two rows; of `traces` the seconds of their steps."""
    median = statistics.median
    for way, cut in enumerate(cuts):
        predicted = median(step.whole for x in rounds for step in x.predicted[way])
        steps = median(step.whole for x in rounds for step in x.steps[way])
        errors = [median(x.error(way, of) for x in rounds) for of in (lambda x: x.whole, lambda x: x.passes)]
        cells = [("planned", "by layers")[way], cut, f"{1e3 * predicted:.1f}", f"{1e3 * steps:.1f}"]
        cells += [f"{100 * error:+.1f} %" for error in errors]
        if way == 0:
            pairs = (pair for x in rounds for pair in zip(*x.steps, strict=True))
            ratio = median(planned.whole / by_count.whole for planned, by_count in pairs)
            cells += [f"{ratio:.3f}", f"{100 * (max(traces) / min(traces) - 1):.1f} %"]
        print(f"| {' | '.join([name, *cells, *[''] * (8 - len(cells))])} |", flush=True)


def main() -> None:
    """Starts the ranks, or is one of them."""
    names = sys.argv[1:] or list(CASES)
    if "RANK" not in os.environ:
        print("| network | cut | at | predicted ms | measured ms | error | error of passes | planned / by layers | traces apart |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        ranks = ["-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", "29511"]
        sys.exit(subprocess.run([sys.executable, *ranks, __file__, *names], check=False).returncode)
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    # A core each, as the prediction has it.
    os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    dist.init_process_group("gloo")
    for name in names:
        measured(name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
