"""Times of computations within a whole step.

Alone and again and again a computation finds its arguments in caches: in a step it does not, and what is large
suffers less from that than what is small. So shares of a step come from steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ._fold import Folded, Kind
from ._measure import Clock, Moment
from ._node import attribute

Spans = dict[fx.Node, list[tuple[Moment, Moment]]]
"""By computation, from when to when something of it ran."""


class Within:
    """Steps of an exported graph in which each computation's part is noted."""

    def __init__(self, folded: Folded, clock: Clock, loss: Callable[..., Any] | None, given: tuple[Any, ...]) -> None:
        self._folded, self._clock, self._loss, self._given = folded, clock, loss, given
        self._graph = folded.exported.graph
        self._wanted = [x for x in self._graph.parameters() if x.requires_grad]
        nodes = self._graph.graph.nodes
        last = {x: node for node in nodes for x in node.all_input_nodes}
        self._dying: dict[fx.Node, list[fx.Node]] = {}
        for x, node in last.items():
            self._dying.setdefault(node, []).append(x)
        self._runs: list[tuple[Spans, Spans]] = []

    def step(self) -> None:
        """A forward and a backward pass."""
        outputs = self._forward()
        ones = [torch.ones_like(x) for x in outputs]
        torch.autograd.grad(outputs, self._wanted, ones, allow_unused=True)

    def times(self) -> dict[fx.Node, tuple[int, int]]:
        """By computation, nanoseconds of the forward and of the backward pass: medians of the steps."""
        passes = [[run[i] for run in self._runs] for i in range(2)]
        return {x: (self._median(passes[0], x), self._median(passes[1], x)) for x in self._folded.of}

    def _median(self, runs: list[Spans], node: fx.Node) -> int:
        return int(statistics.median(sum(self._clock.between(*span) for span in spans.get(node, ())) for spans in runs))

    def _forward(self) -> list[torch.Tensor]:
        forward, backward = Spans(), Spans()
        self._runs.append((forward, backward))
        values: dict[fx.Node, Any] = {}
        owners: dict[Any, fx.Node] = {}
        given = iter(self._folded.exported.values)
        output: Any = None
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                value = next(given)
                values[node] = value.detach() if isinstance(value, torch.Tensor) else value
            elif node.op == "get_attr":
                values[node] = attribute(self._graph, node)
            elif node.op == "output":
                output = fx.map_arg(node.args[0], values.__getitem__)
            else:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                target: Any = node.target
                values[node] = self._noted(forward, node, partial(target, *args, **kwargs))
                if self._folded.kinds[node] is Kind.COMPUTATION:
                    self._own(backward, owners, node, values[node])
            for x in self._dying.get(node, []):
                del values[x]
        last = self._folded.computations[-1].node
        if self._loss is not None:
            leaves = pytree.tree_leaves(output)
            result = leaves[0] if self._folded.exported.is_single else tuple(leaves)
            loss = partial(self._loss, result, *self._given)
            output = self._noted(forward, last, loss)
            self._own(backward, owners, last, output)
        return [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]

    def _noted(self, spans: Spans, node: fx.Node, work: Callable[[], Any]) -> Any:
        begin = self._clock.now()
        value = work()
        spans.setdefault(node, []).append((begin, self._clock.now()))
        return value

    def _own(self, spans: Spans, owners: dict[Any, fx.Node], node: fx.Node, value: Any) -> None:
        """Has what the backward pass runs for `value`, and for no value before it, count to `node`."""
        leaves = (x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor))
        stack = [x.grad_fn for x in leaves]
        while stack:
            at = stack.pop()
            if at is None or at in owners or at.name().endswith("AccumulateGrad"):
                continue
            owners[at] = node
            self._watch(spans, node, at)
            stack += [x for x, _ in at.next_functions]

    def _watch(self, spans: Spans, node: fx.Node, at: Any) -> None:
        begin: list[Moment] = []

        def before(_: Any) -> None:
            begin.append(self._clock.now())

        def after(_: Any, __: Any) -> None:
            spans.setdefault(node, []).append((begin.pop(), self._clock.now()))

        at.register_prehook(before)
        at.register_hook(after)
