"""Operations of a joint forward and backward graph, the storages they allocate and who reads them.

A *value* is one result of an operation, `(operation, result)`: a storage of its own. Views are no
operations: they belong to the value whose storage they share and are made again wherever it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import fx

from .._runner import PipewrightError

Value = tuple[int, int]

# Operators that return their first argument's storage though their schema does not say so.
_ALIASES = frozenset(
    {
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.alias.default,
        torch.ops.aten._reshape_alias.default,
        torch.ops.aten.lift_fresh.default,
    }
)


@dataclass(frozen=True)
class Cost:
    """What computing a node once takes: bytes of each result, of its workspace, microseconds.

    `alias` is the place of the argument whose storage the only result shares, if it does.
    """

    results: tuple[int, ...]
    workspace: int = 0
    time: float = 0.0
    alias: int | None = None


@dataclass
class Operation:
    """A computation of the joint graph."""

    node: fx.Node
    cost: Cost
    reads: frozenset[Value]
    backward: bool
    # The nodes that name its results: itself, or one `getitem` and more for each place.
    names: dict[int, list[fx.Node]] = field(default_factory=dict)

    @property
    def random(self) -> bool:
        """Whether it draws from a generator, so that a repetition must draw the same again."""
        return torch.Tag.nondeterministic_seeded in getattr(self.node.target, "tags", ())


@dataclass
class Joint:
    """A joint graph as operations in an order in which they can be computed.

    `order[:cut]` is the forward pass.
    """

    graph: fx.GraphModule
    operations: list[Operation]
    order: list[int]
    cut: int
    forward_outputs: list[fx.Node | None]
    backward_outputs: list[fx.Node | None]
    roots: dict[fx.Node, Value | fx.Node]
    # Inputs that the step writes: the backward pass may read them only as they were before.
    mutated: frozenset[fx.Node]
    # Results that only replace an input's content, and go when the forward pass ends.
    replaced: int

    @property
    def primals(self) -> list[fx.Node]:
        """Parameters, buffers and inputs."""
        return [n for n in self._placeholders() if not _is_tangent(n)]

    @property
    def tangents(self) -> list[fx.Node]:
        """Gradients of the forward pass's outputs."""
        return [n for n in self._placeholders() if _is_tangent(n)]

    def _placeholders(self) -> list[fx.Node]:
        return [n for n in self.graph.graph.nodes if n.op == "placeholder"]

    def value(self, node: fx.Node | None) -> Value | None:
        """The value behind a node, or nothing for parameters, inputs and constants."""
        root = None if node is None else self.roots[node]
        return root if isinstance(root, tuple) else None

    def values(self, nodes: Iterable[fx.Node | None]) -> list[Value]:
        """The values behind nodes, each once, in order."""
        found = (self.value(node) for node in nodes)
        return list(dict.fromkeys(value for value in found if value is not None))

    def bytes(self, value: Value) -> int:
        """Bytes of a value's storage."""
        operation, result = value
        return self.operations[operation].cost.results[result]

    def ancestors(self, nodes: Iterable[fx.Node | None]) -> frozenset[int]:
        """Operations that nodes follow from."""
        return _ancestors(self.operations, (self.roots[n] for n in nodes if n is not None))

    def is_view(self, node: fx.Node) -> bool:
        """Whether a node is neither a result itself nor an input."""
        root = self.roots[node]
        if isinstance(root, tuple):
            return node not in self.operations[root[0]].names[root[1]]
        return node is not root


def read_joint(
    graph: fx.GraphModule,
    cost_of: Callable[[fx.Node], Cost],
    *,
    forward_outputs: int,
    user_outputs: int,
) -> Joint:
    """Reads a joint graph whose first outputs are the forward pass's.

    Raises PipewrightError where the graph holds what cannot be computed again.
    """
    outputs: list[fx.Node | None] = list(graph.graph.output_node().args[0])  # type: ignore[arg-type]
    reader = _Reader(cost_of)
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            reader.roots[node] = node
            if node.op == "placeholder" and _is_tangent(node):
                reader.after_tangents.add(node)
        elif node.op == "call_function":
            reader.call(node)
        elif node.op != "output":
            raise PipewrightError(f"{node.format_node()} is no operator; call functions, not modules")
    forward = outputs[:forward_outputs]
    order, cut = _order(reader, forward)
    return Joint(
        graph=graph,
        operations=reader.operations,
        order=order,
        cut=cut,
        forward_outputs=forward,
        backward_outputs=outputs[forward_outputs:],
        roots=reader.roots,
        mutated=_mutated(graph, forward[: forward_outputs - user_outputs]),
        replaced=forward_outputs - user_outputs,
    )


class _Reader:
    """The state of one pass over a graph's nodes."""

    def __init__(self, cost_of: Callable[[fx.Node], Cost]) -> None:
        self.cost_of = cost_of
        self.operations: list[Operation] = []
        self.roots: dict[fx.Node, Value | fx.Node] = {}
        self.of: dict[fx.Node, int] = {}
        self.after_tangents: set[fx.Node] = set()

    def call(self, node: fx.Node) -> None:
        if any(n in self.after_tangents for n in node.all_input_nodes):
            self.after_tangents.add(node)
        source = node.args[0] if node.args else None
        if node.target is operator.getitem and isinstance(source, fx.Node):
            self._result(node, source)
            return
        if _is_view(node) and isinstance(source, fx.Node):
            self.roots[node] = self.roots[source]
            return
        _refuse(node)
        cost = self.cost_of(node)
        if cost.alias is not None:
            self.roots[node] = self.roots[node.all_input_nodes[cost.alias]]
            return
        reads = (self.roots.get(n) for n in node.all_input_nodes)
        index = len(self.operations)
        self.of[node] = index
        operation = Operation(
            node=node,
            cost=cost,
            reads=frozenset(root for root in reads if isinstance(root, tuple)),
            backward=node in self.after_tangents,
        )
        self.operations.append(operation)
        if _is_tensor(node):
            operation.names[0] = [node]
            self.roots[node] = (index, 0)

    def _result(self, node: fx.Node, source: fx.Node) -> None:
        index = self.of.get(source)
        if index is None:
            # One of the views that an operator such as `split` returns.
            self.roots[node] = self.roots[source]
            return
        place = node.args[1]
        assert isinstance(place, int)
        self.operations[index].names.setdefault(place, []).append(node)
        self.roots[node] = (index, place)


def _is_tangent(node: fx.Node) -> bool:
    return "tangents" in str(node.target)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_view(node: fx.Node) -> bool:
    return node.target in _ALIASES or bool(getattr(node.target, "is_view", False))


def _refuse(node: fx.Node) -> None:
    """Refuses what is no function of its arguments alone."""
    value = node.meta.get("val")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise PipewrightError(
            f"{node.name} is a size that is not fixed; use tensors of fixed shapes and compile with dynamic=False"
        )
    if any(isinstance(t, torch.Tensor) and t.layout != torch.strided for t in _flat(value)):
        raise PipewrightError(
            f"{node.target} returns a sparse tensor; use dense ones, as nn.Embedding(.., sparse=False) does"
        )
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        raise PipewrightError(
            f"{node.target} writes to a tensor in place and cannot be computed again; "
            "use the operator that returns a new tensor"
        )


def _ancestors(operations: list[Operation], roots: Iterable[Value | fx.Node]) -> frozenset[int]:
    found: set[int] = set()
    stack = list(roots)
    while stack:
        root = stack.pop()
        if isinstance(root, tuple) and root[0] not in found:
            found.add(root[0])
            stack.extend(operations[root[0]].reads)
    return frozenset(found)


def _flat(value: object) -> Iterable[object]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _order(reader: _Reader, forward: list[fx.Node | None]) -> tuple[list[int], int]:
    """The graph's own order with whatever forward outputs need before the cut."""
    needed = _ancestors(reader.operations, (reader.roots[n] for n in forward if n is not None))
    first = next((i for i, o in enumerate(reader.operations) if o.backward), len(reader.operations))
    before = [i for i, o in enumerate(reader.operations) if i < first or i in needed or (o.random and not o.backward)]
    early = set(before)
    return before + [i for i in range(len(reader.operations)) if i not in early], len(before)


def _mutated(graph: fx.GraphModule, written: list[fx.Node | None]) -> frozenset[fx.Node]:
    """Inputs whose new content may be among `written`.

    The partitioner is not told which input an output replaces. One of another shape or type it
    cannot be; taking one too many costs a copy of what the backward pass reads of it.
    """

    def kind(node: fx.Node) -> tuple[object, ...]:
        value = node.meta["val"]
        return (tuple(value.shape), value.dtype, value.device)

    kinds = {kind(node) for node in written if node is not None and _is_tensor(node)}
    inputs = (n for n in graph.graph.nodes if n.op == "placeholder" and not _is_tangent(n))
    return frozenset(n for n in inputs if _is_tensor(n) and kind(n) in kinds)
