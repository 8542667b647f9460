"""Networks that change values and buffers in place, beside their two pieces."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import pipewright as pw
from pipewright._again import Again
from pipewright._cut import cut

Forward = Callable[["Net", torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """Two layers and buffers, with a forward pass that is given."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("n", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))
        self._forward = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, x)


def trained(module: nn.Module, inputs: list[torch.Tensor]) -> dict[str, Any]:
    """Results, gradients and buffers of micro-batches, one after the other."""
    torch.manual_seed(5)
    outputs = []
    for x in inputs:
        outputs.append(module(x))
        outputs[-1].square().sum().backward()
    return _found(module, outputs)


def in_pieces(module: nn.Module, inputs: list[torch.Tensor], before: str, again: bool = False) -> dict[str, Any]:
    """The same by two pieces, of which the second begins at a node; backward passes come behind all forward passes."""
    trace = pw.trace(module, (inputs[0],), repeats=0)
    names = [node["name"] for node in trace.nodes]
    at = names.index(before)
    divided = cut(trace.folded, [names[:at], names[at:]])
    pieces: list[nn.Module] = [divided.piece(stage).module for stage in range(2)]
    if again:
        pieces = [Again(piece) for piece in pieces]
    argument = {f"argument_{name}": name for name in divided.keywords}
    passes = []
    torch.manual_seed(5)
    for x in inputs:
        sent = pieces[0](x)
        received = [value.detach().requires_grad_() for value in sent]
        passes.append((sent, received, pieces[1](*received, **dict.fromkeys(argument, x))))
    for sent, received, output in passes:
        output.square().sum().backward()
        torch.autograd.backward(sent, [value.grad for value in received])
    return _found(module, [output for _, _, output in passes])


def _found(module: nn.Module, outputs: list[torch.Tensor]) -> dict[str, Any]:
    values = {str(at): output.detach() for at, output in enumerate(outputs)}
    values |= {f"gradient of {name}": x.grad for name, x in module.named_parameters()}
    return values | dict(module.named_buffers())


def difference(forward: Forward, before: str = "b", again: bool = False) -> float:
    """The largest difference of pieces from one process; as a share of the largest value."""
    module = Net(forward)
    inputs = [torch.randn(4, 8) for _ in range(3)]
    want = trained(copy.deepcopy(module), inputs)
    got = in_pieces(module, inputs, before, again)
    assert want.keys() == got.keys()
    off = 0.0
    for name, value in want.items():
        assert (value is None) == (got[name] is None), name
        if value is not None:
            assert value.dtype == got[name].dtype, name
            off = max(off, ((value - got[name]).abs().max() / value.abs().max().clamp(min=1e-30)).item())
    return off
