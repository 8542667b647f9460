"""Stages of a plan as modules: pieces of the exported graph.

What crosses to a later stage is relayed by all stages between. Views, masks and positions are computed again
by each stage that reads them; arguments of the module come to every stage that reads them by keyword.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from . import _split
from ._again import CHANGING
from ._change import state_of
from ._fold import Folded, Kind
from ._node import where
from ._place import place
from ._runner import PipewrightError

PREFIX = "argument_"
"""Before the names of the module's arguments, where they come by keyword."""


@dataclass
class Piece:
    """A stage."""

    module: fx.GraphModule
    receives: list[fx.Node]
    sends: list[fx.Node]

    @staticmethod
    def meta(nodes: Iterable[fx.Node], gradient: bool) -> tuple[torch.Tensor, ...]:
        """Shapes of tensors, contiguous as they cross, and whether they have a gradient."""
        values = (node.meta["val"] for node in nodes)
        return tuple(torch.empty(x.shape, dtype=x.dtype, device="meta", requires_grad=gradient) for x in values)


@dataclass
class Cut:
    """All stages of a division."""

    folded: Folded
    placed: dict[fx.Node, int]
    """The stage of each node that has one."""
    receives: list[list[fx.Node]]
    """What each stage receives from the one before."""
    keywords: list[str]
    """Arguments that stages other than the first read."""

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(self.receives)

    @property
    def outputs(self) -> list[fx.Node]:
        """What the module gives."""
        given = pytree.tree_leaves(self.folded.exported.graph.graph.output_node().args)
        return [x for x in given if isinstance(x, fx.Node)]

    def sends(self, stage: int) -> list[fx.Node]:
        """What a stage sends to the next one."""
        return self.receives[stage + 1] if stage + 1 < self.stages else []

    def piece(self, stage: int) -> Piece:
        """A stage as a module, with the parameters of the exported one."""
        return _Piece(self, stage).build()

    def states(self) -> dict[str, set[int]]:
        """Names of parameters and buffers, with the stages that read them."""
        found: dict[str, set[int]] = {}
        for node, stage in self.placed.items():
            for name in self.folded.states(node):
                found.setdefault(name, set()).add(stage)
        return found


def cut(folded: Folded, stages: list[list[str]]) -> Cut:
    """Divides a graph into stages, which are given by the names of their nodes.

    Raises:
        PipewrightError: where names or values do not allow it.
    """
    placed = place(folded, stages)
    last: dict[fx.Node, int] = {}
    arguments: set[fx.Node] = set()
    for node, stage in placed.items():
        for carrier in folded.carriers(node):
            if folded.owner(carrier) is not None:
                last[carrier] = max(last.get(carrier, 0), stage)
            elif stage > 0:
                arguments.add(carrier)
    order = {node: at for at, node in enumerate(folded.kinds)}
    receives: list[list[fx.Node]] = [[] for _ in stages]
    for carrier in sorted(last, key=order.__getitem__):
        owner = folded.owner(carrier)
        assert owner is not None
        for stage in range(placed[owner.node] + 1, last[carrier] + 1):
            receives[stage].append(carrier)
        if last[carrier] > placed[owner.node] and not folded.has_gradient[carrier]:
            raise PipewrightError(
                f"{where(folded.exported.name, carrier)}: its value crosses to another stage and has no gradient, "
                "which torch.distributed.pipelining cannot send; cut behind its last reader"
            )
    for stage, received in list(enumerate(receives))[1:]:
        if not received:
            raise PipewrightError(f"nothing crosses from stage {stage - 1} to stage {stage}; cut elsewhere")
    return Cut(folded, placed, receives, [x.name for x in folded.kinds if x in arguments])


def sent(value: torch.Tensor) -> torch.Tensor:
    """A value as it leaves a stage: contiguous, and a tensor that nobody else has.

    A received one that is relayed stays a leaf, and one that the backward pass reads must not be detached in
    place, as torch does with what a stage gives when its backward pass comes in two parts.
    """
    return value.clone(memory_format=torch.contiguous_format)


class _Received(torch.autograd.Function):
    """A received value, whose gradient is contiguous as it is sent back."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].contiguous()


def received(value: torch.Tensor) -> torch.Tensor:
    """A value as it comes to a stage."""
    apply: Any = _Received.apply
    result: torch.Tensor = apply(value)
    return result


class _Anchor(torch.autograd.Function):
    """A value, and zeros as gradients of others that a stage reads without a gradient."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        ctx.others = [(x.shape, x.dtype, x.device) for x in others]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = (torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.others)
        return (gradients[0], *zeros)


def anchored(value: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """The value; every received tensor gets a gradient, as the sender waits for one."""
    apply: Any = _Anchor.apply
    result: torch.Tensor = apply(value, *others)
    return result


class _Piece:
    """A stage while it is built."""

    def __init__(self, cut: Cut, stage: int) -> None:
        self.cut, self.stage, self.folded = cut, stage, cut.folded
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        # What depends on a received value, and what depends on a parameter, which may be frozen now.
        self.follows = set(cut.receives[stage])
        self.learns: set[fx.Node] = set()
        self.parameters = self.folded.parameters
        self.changing = self.folded.changing()

    def build(self) -> Piece:
        receives, sends = self.cut.receives[self.stage], self.cut.sends(self.stage)
        self._arguments(receives)
        last = self.stage == self.cut.stages - 1
        outputs = self.cut.outputs if last else sends
        # All in the module's order: a buffer that changes is read before and after.
        for node in self._needed(outputs):
            self._copy(node)
        results = [self.graph.call_function(sent, (self.copies[node],)) for node in outputs]
        is_apart = [node not in self.follows for node in outputs]
        unread = tuple(self.copies[node] for node in self._without_gradient(receives, outputs))
        if unread:
            at = is_apart.index(False) if False in is_apart else 0
            results[at] = self.graph.call_function(anchored, (results[at], *unread))
        for at, value in enumerate(results):
            if is_apart[at]:
                results[at] = self.graph.call_function(_split.end if last else _split.apart, (value,))
        single = last and self.folded.exported.is_single
        self.graph.output(results[0] if single else tuple(results))
        root = self.folded.exported.graph
        module = fx.GraphModule(root, self.graph, f"{self.folded.exported.name}Stage{self.stage}")
        own = {str(x.target) for x in self.copies if x.op == "get_attr"}
        module.meta[CHANGING] = sorted(own & self.changing.keys())
        return Piece(module, receives, sends)

    def _needed(self, outputs: list[fx.Node]) -> list[fx.Node]:
        """The stage's own nodes, and what is computed again for them."""
        own = [node for node in self.folded.kinds if self.cut.placed.get(node) == self.stage]
        stack = [node for node in own if self.folded.kinds[node] is not Kind.OUTPUT] + outputs
        found: set[fx.Node] = set()
        while stack:
            node = stack.pop()
            if node not in found and node not in self.copies:
                found.add(node)
                stack.extend(node.all_input_nodes)
        return [node for node in self.folded.kinds if node in found]

    def _arguments(self, receives: list[fx.Node]) -> None:
        inputs = self.folded.exported.tensors
        for node in inputs if self.stage == 0 else receives:
            self.copies[node] = self.graph.placeholder(node.name)
        for node in inputs:
            if node.name in self.cut.keywords:
                given = self.graph.placeholder(PREFIX + node.name, default_value=None)
                self.copies.setdefault(node, given)
        for node in receives:
            self.copies[node] = self.graph.call_function(received, (self.copies[node],))

    def _copy(self, node: fx.Node) -> None:
        inputs = node.all_input_nodes
        copies = {read: self.copies[read] for read in inputs}
        if self._keeps(node):
            for read in inputs:
                if state_of(read) in self.changing:
                    copies[read] = self.graph.call_function(torch.clone, (copies[read],))
        if any(x in self.learns for x in inputs) or (node.op == "get_attr" and node.target in self.parameters):
            self.learns.add(node)
        origins: list[fx.Node] = []
        if any(read in self.follows for read in inputs):
            self.follows.add(node)
            origins = [x for x in inputs if x not in self.follows and x in self.learns]
        given = [copies[x] for x in origins]
        leaves = [self.graph.call_function(_split.leaf, (x,)) for x in given]
        copies |= dict(zip(origins, leaves, strict=True))
        copy = self.graph.node_copy(node, copies.__getitem__)
        if origins:
            copy = self.graph.call_function(_split.watched, (copy, leaves, given))
        self.copies[node] = copy

    def _keeps(self, node: fx.Node) -> bool:
        """Whether the backward pass reads what a node reads: until then other micro-batches change buffers."""
        is_trained = self.folded.kinds[node] is Kind.COMPUTATION and self.folded.has_gradient[node]
        return is_trained and not self.folded.updated(node)

    def _without_gradient(self, receives: list[fx.Node], results: list[fx.Node]) -> list[fx.Node]:
        """Received values of which no result depends with a gradient."""
        reached: set[fx.Node] = set()
        stack = [node for node in results if self.folded.has_gradient[node]]
        while stack:
            node = stack.pop()
            if node in reached or not self.folded.has_gradient[node]:
                continue
            reached.add(node)
            if node not in receives:
                stack.extend(node.all_input_nodes)
        return [node for node in receives if node not in reached]
