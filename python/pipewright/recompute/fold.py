"""Files for the search: a joint graph as `recompute-graph/1`, and its answers as operations.

An operation is one node with the bytes of its largest result and of those that are read only where
that one is read. Every other result is a node of no time behind it, so that one of them may live
on without the others. Small ones that the forward pass leaves to the backward pass are no nodes:
they are always kept, and their bytes are those of `tangents`. Three kinds of nodes hold the order
together: `tangents` stands between forward and backward pass, `end` reads all that lives to the
end of the step, and `draw` follows each random operation, so that numbers are drawn in the order
of the plain step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .joint import Joint, Operation, Value
from .simulate import plain

# A result of at most this part of the operation's largest one is small.
_SMALL = 8


@dataclass
class Folded:
    """A graph's file, and which operation each of its nodes computes."""

    file: dict[str, Any]
    # None for nodes that compute nothing.
    operations: list[int | None]
    tangents: int

    def sequence(self, nodes: Iterable[int]) -> tuple[list[int], int]:
        """Operations of a sequence of nodes, and how many of them are in the forward pass."""
        found: list[int] = []
        cut = 0
        for node in nodes:
            operation = self.operations[node]
            if node == self.tangents:
                cut = len(found)
            elif operation is not None:
                found.append(operation)
        return found, cut


def fold(joint: Joint, model: str, resident: int) -> Folded:
    """The graph of a joint graph; `resident` bytes are there from the beginning."""
    return _Fold(joint).run(model, resident)


@dataclass
class _Fold:
    joint: Joint
    nodes: list[dict[str, Any]] = field(default_factory=list)
    operations: list[int | None] = field(default_factory=list)
    place: dict[Value, int] = field(default_factory=dict)
    tangents: int | None = None
    drawn: int | None = None
    ends: frozenset[Value] = frozenset()
    readers: dict[Value, set[int]] = field(default_factory=dict)
    outputs: frozenset[Value] = frozenset()
    early: frozenset[int] = frozenset()
    small: int = 0

    def run(self, model: str, resident: int) -> Folded:
        joint = self.joint
        run = plain(joint)
        user = joint.forward_outputs[joint.replaced :]
        ends = joint.values([*user, *joint.backward_outputs])
        self.ends = frozenset(ends)
        for index, operation in enumerate(joint.operations):
            for value in operation.reads:
                self.readers.setdefault(value, set()).add(index)
        self.outputs = frozenset(joint.values(joint.forward_outputs))
        self.early = joint.ancestors(joint.forward_outputs)
        for step, index in enumerate(run.operations):
            if step == run.cut:
                self.cut()
            self.operation(index, sorted(run.kept[step]))
        if self.tangents is None:
            self.cut()
        held = [self.place[value] for value in ends]
        assert self.tangents is not None
        self.add(0, 0.0, [*held, self.tangents], "end", output="end", output_bytes=0)
        sources = [{"bytes": resident}]
        file = {"format": "recompute-graph/1", "model": model, "sources": sources, "nodes": self.nodes}
        return Folded(file, self.operations, self.tangents)

    def cut(self) -> None:
        """The node between the passes: all forward outputs are there, tangents come in."""
        joint = self.joint
        size = self.small + sum(int(n.meta["val"].untyped_storage().nbytes()) for n in joint.tangents)
        inputs = [self.place[value] for value in joint.values(joint.forward_outputs)]
        if self.drawn is not None:
            inputs.append(self.drawn)
        self.tangents = self.add(size, 0.0, inputs, "tangents", once=True)

    def operation(self, index: int, kept: list[int]) -> None:
        operation = self.joint.operations[index]
        results = operation.cost.results
        # What lives to the end of the step stands apart: it must not hold the rest.
        main = max(kept, key=lambda r: ((index, r) not in self.ends, results[r]), default=None)
        joined = [r for r in kept if r == main or self.goes_with(index, r, main)]
        inputs = [self.place[value] for value in operation.reads if value in self.place]
        if operation.backward and self.tangents is not None:
            inputs.append(self.tangents)
        if operation.random and self.drawn is not None:
            inputs.append(self.drawn)
        node = self.add(
            sum(results[result] for result in joined),
            operation.cost.time,
            inputs,
            operation.node.name,
            op=str(operation.node.target),
            phase=_phase(operation),
            # Results that nobody reads are there for as long.
            workspace=operation.cost.workspace + sum(results) - sum(results[r] for r in kept),
            rng=operation.random,
            once=(index, main) in self.ends,
        )
        self.operations[node] = index
        for result in kept:
            value = (index, result)
            if result in joined:
                self.place[value] = node
            elif results[result] * _SMALL <= results[main or 0] and self.is_left(value):
                self.small += results[result]
            else:
                name = f"{operation.node.name}[{result}]"
                once = value in self.ends
                at = self.add(results[result], 0.0, [node], name, once=once, phase=_phase(operation))
                self.place[value] = at
        if operation.random:
            phase = _phase(operation)
            self.drawn = self.add(0, 0.0, [node], f"draw {node}", phase=phase)

    def goes_with(self, index: int, result: int, main: int | None) -> bool:
        """Whether a result is read only where the main one is."""
        if main is None or (index, result) in self.outputs | self.ends:
            return False
        readers = self.readers.get((index, result), set())
        return readers <= self.readers.get((index, main), set())

    def is_left(self, value: Value) -> bool:
        """Whether the forward pass computes a value in any case and only the backward pass reads it."""
        readers = self.readers.get(value, set())
        late = all(self.joint.operations[reader].backward for reader in readers)
        return value[0] in self.early and value not in self.outputs and late

    def add(self, size: int, time: float, inputs: list[int], name: str, **more: Any) -> int:
        node = len(self.nodes)
        inputs = sorted(set(inputs))
        entry = {"id": node, "bytes": size, "time": time, "inputs": inputs, "name": name, **more}
        self.nodes.append(entry)
        self.operations.append(None)
        return node


def _phase(operation: Operation) -> str:
    return "B" if operation.backward else "F"
