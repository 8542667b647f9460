"""Kernels that a trace takes apart though eager runs them whole, put together again.

`silu_backward` and `mish_backward` are formulas of other operators to a trace, and kernels of
their own on devices. The formulas round otherwise, take longer and hold more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

_WHOLE: tuple[Any, ...] = (
    torch.ops.aten.silu_backward.default,
    torch.ops.aten.mish_backward.default,
)


def assemble(joint: fx.GraphModule) -> None:
    """Replaces each formula in a joint graph by its kernel."""
    for kernel in _WHOLE:
        found = replace_pattern_with_filters(joint, _formula(kernel), _call(kernel))
        for match in found:
            (made,) = match.replacements
            value: Any = made.args[1]
            # Gradients have the shape, the type and the strides of what they are of.
            made.meta["val"] = torch.empty_like(value.meta["val"])


def _formula(kernel: Any) -> fx.GraphModule:
    """What a trace makes of a kernel of a gradient and an input."""

    def call(gradient: torch.Tensor, value: torch.Tensor) -> Any:
        return kernel(gradient, value)

    with unset_fake_temporarily():
        arguments = torch.zeros(2, 2), torch.zeros(2, 2)
        return make_fx(torch.func.functionalize(call), tracing_mode="fake")(*arguments)


def _call(kernel: Any) -> fx.GraphModule:
    graph = fx.Graph()
    gradient, value = graph.placeholder("gradient"), graph.placeholder("value")
    graph.output(graph.call_function(kernel, (gradient, value)))
    return fx.GraphModule({}, graph)
