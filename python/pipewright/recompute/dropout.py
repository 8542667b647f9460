"""Dropout with eager's bits on processors.

Eager multiplies by a mask whose factor has the type of what is dropped; the kernel of a trace by a number, which
has more digits. On devices eager runs that kernel itself.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

_DROPOUT = torch.ops.aten.native_dropout.default
# Gradient, mask, factor; eager's forward pass is the same product.
_PRODUCT = torch.ops.aten.native_dropout_backward.default


def as_eager(joint: fx.GraphModule) -> None:
    """Gives each dropout of a joint graph eager's factor."""
    for node in list(joint.graph.nodes):
        if node.target is _DROPOUT and 0 < node.args[1] < 1:
            source, share, *_ = node.args
            value = source.meta["val"]
            if value.device.type == "cpu" and value.is_floating_point():
                _factor(joint.graph, node, *_factors(share, value.dtype))


def _factors(share: float, dtype: torch.dtype) -> tuple[float, float]:
    """Eager's factor, and the one of the kernel as single and double precision have it."""
    with unset_fake_temporarily():
        one = torch.ones((), dtype=dtype)
        return float(one.div(1 - share)), float(one.mul(1 / (1 - share)))


def _factor(graph: fx.Graph, node: fx.Node, eager: float, kernel: float) -> None:
    results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    mask = results.get(1)
    if mask is None:
        return
    for user in list(mask.users):
        if user.target is _PRODUCT:
            user.update_arg(2, eager)
    dropped = results.get(0)
    # Of half precision both passes of the kernel round once, to what eager has.
    if dropped is not None and eager != kernel:
        with graph.inserting_after(mask):
            made = graph.call_function(_PRODUCT, (node.args[0], mask, eager))
        made.meta = dict(dropped.meta)
        dropped.replace_all_uses_with(made)
        graph.erase_node(dropped)
