"""Forward and backward graphs that run a sequence: operations again where it computes them again.

What the backward pass needs of the forward pass is saved as whole results, never as views of
them. Views are made again before their first reader and after each repetition of their base, so
that none holds an older copy.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import fx

from .draws import draw, draw_again
from .joint import Joint, Value
from .simulate import STATE_BYTES, Sequence, device_of, mutated_reads, repeated_draws


def emit(joint: Joint, run: Sequence) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The two graphs of a sequence, as a partitioner of AOTAutograd returns them."""
    forward, backward = _Pass(joint, run), _Pass(joint, run)
    for node in joint.primals:
        forward.env[node] = forward.graph.node_copy(node)
    for node in joint.tangents:
        backward.env[node] = backward.graph.node_copy(node)
    backward.before = next(iter(backward.env.values()), None)
    copies = {node: forward.copy_of(node) for node in mutated_reads(joint, run)}
    for place in range(run.cut):
        forward.operation(place)
    outputs = [None if node is None else forward.get(node) for node in joint.forward_outputs]
    backward.follows = True
    for place in range(run.cut, len(run.operations)):
        backward.operation(place)
    gradients = [None if node is None else backward.get(node) for node in joint.backward_outputs]
    saved = [
        forward.states[what] if isinstance(what, int) else copies.get(what, forward.env[what])
        for what in backward.saved
    ]
    _output(forward.graph, [*outputs, *saved])
    _output(backward.graph, gradients)
    return tuple(fx.GraphModule(joint.graph, p.graph) for p in (forward, backward))  # type: ignore[return-value]


class _Pass:
    """One of the two graphs while it is written."""

    def __init__(self, joint: Joint, run: Sequence) -> None:
        self.joint = joint
        self.run = run
        self.graph = fx.Graph()
        # The newest node here for each node of the joint graph.
        self.env: dict[fx.Node, fx.Node] = {}
        self.views: dict[Value, list[fx.Node]] = {}
        self.again = frozenset(repeated_draws(joint, run))
        self.states: dict[int, fx.Node] = {}
        # In the backward graph what is not there comes from the forward graph, before `before`.
        self.follows = False
        self.before: fx.Node | None = None
        # Values, and the states of random operations, in the order of the inputs.
        self.saved: list[fx.Node | int] = []

    def operation(self, place: int) -> None:
        """Computes the operation at a place of the sequence."""
        index = self.run.operations[place]
        operation = self.joint.operations[index]
        node = self._call(place, index, operation.node)
        for result, names in operation.names.items():
            # What was made of an older copy is not what later readers are to see.
            for view in self.views.pop((index, result), []):
                self.env.pop(view, None)
            for name in names:
                self.env.pop(name, None)
            if result not in self.run.kept[place]:
                continue
            made = node if names[0] is operation.node else self.graph.node_copy(names[0], lambda _: node)
            for name in names:
                self.env[name] = made

    def get(self, node: fx.Node) -> fx.Node:
        """A node here for one of the joint graph; views are made where they are missing."""
        if node in self.env:
            return self.env[node]
        if self.joint.is_view(node):
            made = self.graph.node_copy(node, self.get)
            value = self.joint.value(node)
            if value is not None:
                self.views.setdefault(value, []).append(node)
        elif node.op == "get_attr":
            made = self.graph.node_copy(node)
        else:
            assert self.follows, f"{node.name} is read before it is computed"
            made = self._input(node.name, node.meta)
            self.saved.append(node)
        self.env[node] = made
        return made

    def copy_of(self, node: fx.Node) -> fx.Node:
        """A copy of an input as it is before the step writes it."""
        made = self.graph.call_function(torch.ops.aten.clone.default, (self.env[node],))
        made.meta = dict(node.meta)
        return made

    def _call(self, place: int, index: int, node: fx.Node) -> fx.Node:
        if index not in self.again:
            return self.graph.node_copy(node, self.get)
        # Arguments first: they may need nodes of their own.
        args: tuple[Any, ...] = fx.map_arg(node.args, self.get)
        kwargs: dict[str, Any] = fx.map_arg(node.kwargs, self.get)
        device, operator = device_of(self.joint, index), cast(Any, node.target)
        if self.run.operations.index(index) == place:
            pair = self.graph.call_function(draw, (device, operator, *args), kwargs)
            state = self.graph.call_function(_first, (pair,))
            state.meta["val"] = _state(node, device)
            self.states[index] = state
            made = self.graph.call_function(_second, (pair,))
        else:
            state = self._state(index, node, device)
            made = self.graph.call_function(draw_again, (state, device, operator, *args), kwargs)
        made.meta = dict(node.meta)
        return made

    def _state(self, index: int, node: fx.Node, device: str) -> fx.Node:
        if index not in self.states:
            self.states[index] = self._input(f"state_{node.name}", {"val": _state(node, device)})
            self.saved.append(index)
        return self.states[index]

    def _input(self, name: str, meta: dict[str, Any]) -> fx.Node:
        """A saved tensor as an input, before the tangents."""
        assert self.before is not None, "a joint graph has tangents"
        with self.graph.inserting_before(self.before):
            made = self.graph.placeholder(name)
        made.meta = dict(meta)
        return made


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def _state(node: fx.Node, device: str) -> torch.Tensor:
    """A fake tensor like a generator's state."""
    value: Any = node.meta["val"]
    value = value if isinstance(value, torch.Tensor) else value[0]
    with value.fake_mode:
        return torch.empty(STATE_BYTES[torch.device(device).type], dtype=torch.uint8)


def _output(graph: fx.Graph, nodes: list[fx.Node | None]) -> None:
    graph.output(tuple(nodes))
    graph.lint()
