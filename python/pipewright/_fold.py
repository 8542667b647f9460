"""Folded graph: computations whose values cross between stages, with all else attached to them.

Views belong to the value that they show. What has no gradient and needs no parameter (masks, positions) is
free: whoever reads it computes it again. Changes of buffers stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ._change import changed_states, changes, state_of
from ._export import Exported
from ._inline import changed_arguments
from ._node import module_path, where
from ._runner import PipewrightError


class Kind(Enum):
    """What a node of the exported graph is."""

    INPUT = "input"
    """An argument of the module."""
    STATE = "state"
    """A parameter, a buffer, a constant."""
    VIEW = "view"
    FREE = "free"
    CHANGE = "change"
    """A change of a buffer."""
    COMPUTATION = "computation"
    OUTPUT = "output"


@dataclass(eq=False, repr=False)
class Computation:
    """A node of the plan's graph."""

    name: str
    node: fx.Node
    module: str
    inputs: list[Computation] = field(default_factory=list)
    """Those whose values it reads, each once."""
    parameters: list[str] = field(default_factory=list)
    trained: bool = True
    """Whether its value has a gradient."""

    @property
    def op(self) -> str:
        """Such as `aten.linear.default`."""
        return str(self.node.target)


@dataclass(repr=False)
class Folded:
    """An exported graph with its computations."""

    exported: Exported
    kinds: dict[fx.Node, Kind]
    computations: list[Computation]
    of: dict[fx.Node, Computation]
    """By the node that computes."""
    has_gradient: dict[fx.Node, bool]

    def carriers(self, node: fx.Node) -> Iterator[fx.Node]:
        """The tensors of computations that a node's arguments are made of, and arguments of the module."""
        seen: set[fx.Node] = set()
        stack = list(reversed(node.all_input_nodes))
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if self.is_carrier(at):
                yield at
            else:
                stack.extend(reversed(at.all_input_nodes))

    def is_carrier(self, node: fx.Node) -> bool:
        """Whether a node is a tensor that a computation gives, or an argument."""
        if self.kinds[node] is Kind.COMPUTATION:
            return not is_tuple(node)
        if self.kinds[node] is Kind.INPUT:
            return True
        return self.owner(node) is not None and is_tuple(node.all_input_nodes[0])

    def owner(self, node: fx.Node) -> Computation | None:
        """The computation that a tensor comes from: its own, or the one of which it is one of several results."""
        if node in self.of:
            return self.of[node]
        if self.kinds[node] is Kind.VIEW and len(node.all_input_nodes) == 1:
            return self.of.get(node.all_input_nodes[0])
        return None

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by all of their names."""
        return dict(self.exported.graph.named_parameters(remove_duplicate=False))

    def changing(self) -> dict[str, fx.Node]:
        """Buffers that the forward pass changes, with the last node that does so."""
        found: dict[str, fx.Node] = {}
        for node, kind in self.kinds.items():
            if kind is Kind.CHANGE:
                found |= dict.fromkeys(changed_states(node), node)
            elif kind is Kind.COMPUTATION:
                found |= dict.fromkeys(self.updated(node), node)
        return found

    def updated(self, computation: fx.Node) -> set[str]:
        """Buffers that a computation changes, of which its schema does not say so."""
        op, known = str(computation.target), self.parameters
        if "batch_norm" in op or "instance_norm" in op:
            return {name for name in self.states(computation) if name not in known}
        changed = changed_arguments(self.exported.graph, computation)
        return {name for name in map(state_of, changed) if name is not None}

    def states(self, node: fx.Node) -> Iterator[str]:
        """Names of parameters and buffers that a node reads, through views and free nodes."""
        stack, seen = list(node.all_input_nodes), set()
        while stack:
            at = stack.pop()
            if at in seen or self.is_carrier(at):
                continue
            seen.add(at)
            if self.kinds[at] is Kind.STATE:
                yield str(at.target)
            stack.extend(at.all_input_nodes)


def is_tuple(node: fx.Node) -> bool:
    """Whether a node has several results."""
    return isinstance(node.meta.get("val"), (list, tuple))


class Folder:
    """Sorts nodes as they are run, one by one, in order."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self.kinds: dict[fx.Node, Kind] = {}
        self.has_gradient: dict[fx.Node, bool] = {}
        self._needs_parameter: dict[fx.Node, bool] = {}

    def add(self, node: fx.Node, value: Any, arguments: list[torch.Tensor]) -> Kind:
        """Takes the next node with its value and the tensors among its arguments."""
        tensors = [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
        gradient = any(x.requires_grad for x in tensors)
        self.has_gradient[node] = gradient
        inputs = node.all_input_nodes
        needs = isinstance(value, nn.Parameter) or any(
            (self._needs_parameter[x] and not self.has_gradient[x]) or self._is_frozen(x) for x in inputs
        )
        self._needs_parameter[node] = needs
        self.kinds[node] = kind = self._kind(node, tensors, arguments, gradient, needs)
        return kind

    def _is_frozen(self, node: fx.Node) -> bool:
        """Whether a parameter is read, which is no value of the graph."""
        return self.kinds[node] is Kind.STATE and self._needs_parameter[node]

    def _kind(
        self,
        node: fx.Node,
        tensors: list[torch.Tensor],
        arguments: list[torch.Tensor],
        gradient: bool,
        needs_parameter: bool,
    ) -> Kind:
        if node.op == "placeholder":
            return Kind.INPUT
        if node.op == "get_attr":
            return Kind.STATE
        if node.op == "output":
            return Kind.OUTPUT
        if changes(node):
            return Kind.CHANGE
        shown = {x.untyped_storage().data_ptr() for x in arguments}
        if tensors and all(x.untyped_storage().data_ptr() in shown for x in tensors if x.numel()):
            return Kind.VIEW
        floating = any(x.is_floating_point() for x in tensors)
        if gradient or (floating and needs_parameter):
            return Kind.COMPUTATION
        if changed_arguments(self.exported.graph, node):
            raise PipewrightError(
                f"{where(self.exported.name, node)}: a buffer is changed in a region that computes nothing trained "
                "(torch.autocast); change it outside of the region"
            )
        return Kind.FREE

    def finish(self) -> Folded:
        """All nodes have come."""
        nodes = [node for node, kind in self.kinds.items() if kind is Kind.COMPUTATION]
        names = _names(nodes)
        of = {node: Computation(names[node], node, module_path(node)[0]) for node in nodes}
        folded = Folded(self.exported, self.kinds, list(of.values()), of, self.has_gradient)
        known = folded.parameters
        for computation in folded.computations:
            read = (folded.owner(x) for x in folded.carriers(computation.node))
            computation.inputs = list(dict.fromkeys(x for x in read if x is not None))
            states = dict.fromkeys(folded.states(computation.node))
            computation.parameters = sorted(name for name in states if name in known)
            computation.trained = self.has_gradient[computation.node]
        return folded


def _names(nodes: list[fx.Node]) -> dict[fx.Node, str]:
    """A module's path where the module is one computation, else with the operation's name behind it."""
    alone: dict[str, int] = {}
    for node in nodes:
        path, _ = module_path(node)
        alone[path] = alone.get(path, 0) + 1
    names: dict[fx.Node, str] = {}
    taken: set[str] = set()
    for node in nodes:
        path, _ = module_path(node)
        op = str(node.target).split(".")[1] if "." in str(node.target) else node.name
        name = path if path and alone[path] == 1 and not _has_parts(path, alone) else f"{path}.{op}"
        name = base = name.lstrip(".")
        number = 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        names[node] = name
    return names


def _has_parts(path: str, paths: dict[str, int]) -> bool:
    return any(other.startswith(path + ".") for other in paths)
