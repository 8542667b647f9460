"""A rank of the tests: networks that change buffers, whose losses read a part, and whose layers are frozen late."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import pipewright as pw


class Counter(nn.Module):
    """A buffer that the backward pass reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        x = torch.tanh(self.layers[0](x) * self.n)
        for layer in self.layers[1:]:
            x = layer(x)
        return x


class Aux(nn.Module):
    """Two results of which the loss reads the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.other = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.layers[0](x).relu()
        y = h
        for layer in self.layers[1:]:
            y = layer(y).sin()
        return y, h, self.other(y)


class Penalty(nn.Module):
    """A result that only the last stage's parameters reach."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for layer in self.layers:
            x = layer(x).sin()
        return x, self.layers[-1].weight.square().sum()


def mlp() -> nn.Module:
    """Layers with even numbers are trained."""
    width = (nn.Linear(8, 8) for _ in range(4))
    return nn.Sequential(*(x for layer in width for x in (layer, nn.ReLU())))


MAKE: dict[str, Any] = {"aux": Aux, "penalty": Penalty, "counter": Counter, "mlp": mlp}


def loss_fn(output: Any, target: torch.Tensor) -> torch.Tensor:
    """Of the first result; the second one counts where it is a number."""
    if not isinstance(output, tuple):
        return functional.cross_entropy(output, target)
    loss = functional.cross_entropy(output[0], target)
    return loss + output[1] if output[1].dim() == 0 else loss


def compare(name: str, schedule: str, frozen: str, recompute: str) -> float:
    """The largest difference of this rank's gradients and buffers from those of one process."""
    torch.manual_seed(0)
    module = MAKE[name]()
    how, _, layer = frozen.partition(" ")
    late = [int(layer)] if layer else []
    for at in late:
        module[at].requires_grad_(how == "freeze")
    stages = 4 if schedule in ("zb-v", "interleaved") else 2
    trace = pw.trace(module, (torch.randn(4, 8),), repeats=0)
    plan = trace.plan(ranks=2, stages=stages, micro_batches=4, schedule=schedule, recompute=recompute)
    pipeline = plan.pipeline(loss_fn=loss_fn)
    for at in late:
        module[at].requires_grad_(how != "freeze")
    alone = copy.deepcopy(module)
    x, y = torch.randn(16, 8), torch.randint(0, 8, (16,))
    pipeline.step(x, target=y)
    for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
        (loss_fn(alone(part), target) / 4).backward()
    wanted = dict(alone.named_parameters())
    off = 0.0
    for key, parameter in pipeline.named_parameters():
        got, want = parameter.grad, wanted[key].grad
        assert want is None or got is not None, f"{key} has no gradient"
        got, want = (torch.zeros(()) if value is None else value for value in (got, want))
        off = max(off, (got - want).abs().max().item())
    state = pipeline.state_dict()
    return max([off] + [(state[key] - value).abs().max().item() for key, value in alone.named_buffers()])


def main() -> None:
    """Arguments: a JSON list of [network, schedule, layer that is frozen or not after the trace, recomputation]."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for job in json.loads(sys.argv[1]):
        print("result", json.dumps([job, compare(*job)]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
