"""Measurement of an exported graph, node by node: times, bytes, and what backward passes keep."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import torch
from torch import fx, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from ._export import Exported, where
from ._fold import Folded, Folder, Kind
from ._node import attribute
from ._runner import PipewrightError


Part = TypeVar("Part")

Moment: TypeAlias = Any
"""Nanoseconds, or an event of CUDA."""

ENOUGH = 50_000_000
"""Nanoseconds that each of several runs should take; shorter ones are repeated more often."""
MOST = 10
"""How much more often at most."""


@dataclass
class Cost:
    """What a computation takes. Times in nanoseconds, of one batch."""

    output_bytes: int
    shape: list[int]
    dtype: str
    forward: int = 0
    input_gradient: int = 0
    weight_gradient: int = 0
    keeps: list[fx.Node] = field(default_factory=list)
    """Computations whose values its backward pass reads."""
    saved_bytes: int = 0
    """What the forward pass makes for the backward pass besides."""


class Clock:
    """Times of a device: the processor's clock, or events of CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def least(self, work: Callable[[], object], repeats: int) -> int:
        """Nanoseconds of the fastest of several runs, after one that does not count."""
        work()
        return min(self._once(work) for _ in range(repeats))

    def typical(self, work: Callable[[], object], repeats: int) -> int:
        """Nanoseconds of the median of several runs."""
        return int(statistics.median(first for first, _ in self.parts(work, lambda _: None, repeats)))

    def parts(self, first: Callable[[], Part], second: Callable[[Part], object], repeats: int) -> list[tuple[int, int]]:
        """Nanoseconds of two parts that take turns, in several runs after one that does not count.

        Of short ones there are as many as tell what is usual.
        """
        second(first())
        times: list[tuple[int, int]] = []
        while len(times) < repeats or (sum(map(sum, times)) < repeats * ENOUGH and len(times) < MOST * repeats):
            begin = self.now()
            value = first()
            middle = self.now()
            second(value)
            del value
            end = self.now()
            times.append((self.between(begin, middle), self.between(middle, end)))
        return times

    def _once(self, work: Callable[[], object]) -> int:
        begin = self.now()
        work()
        return self.between(begin, self.now())

    def now(self) -> Moment:
        """This moment."""
        if not self._cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Moment, end: Moment) -> int:
        """Nanoseconds from one moment to another."""
        if not self._cuda:
            return int(end - begin)
        end.synchronize()
        return int(begin.elapsed_time(end) * 1e6)


def measure(exported: Exported, clock: Clock, repeats: int) -> tuple[Folded, dict[fx.Node, Cost]]:
    """Runs every node once for its sizes and, unless `repeats` is 0, some more times for its time."""
    run = _Run(exported, clock, repeats)
    with untouched(exported.graph):
        for node in exported.graph.graph.nodes:
            run.node(node)
    return run.folder.finish(), run.costs


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Leaves buffers and random numbers as they were."""
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    devices = sorted({x.device.index or 0 for x in module.parameters() if x.is_cuda})
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, old in kept:
                buffer.copy_(old)


class _Run:
    def __init__(self, exported: Exported, clock: Clock, repeats: int) -> None:
        self.folder = Folder(exported)
        self.costs: dict[fx.Node, Cost] = {}
        self._exported, self._clock, self._repeats = exported, clock, repeats
        self._values: dict[fx.Node, Any] = {}
        # Whose storage a value is: of a view, that of what it shows.
        self._base: dict[fx.Node, fx.Node] = {}
        # Values that are kept for the backward pass and are nobody's: counted where they are kept first.
        self._counted: set[fx.Node] = set()
        self._given = iter(exported.values)
        self._last = {x: node for node in exported.graph.graph.nodes for x in node.all_input_nodes}

    def node(self, node: fx.Node) -> None:
        """Runs the next node."""
        arguments = self._tensors(node)
        value, saved = self._value(node)
        kind = self.folder.add(node, value, [x for x, _ in arguments])
        self._base[node] = node
        if kind is Kind.VIEW:
            shown = {_pointer(x): base for x, base in arguments}
            first = next(x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor))
            self._base[node] = shown.get(_pointer(first), node)
        if kind is Kind.COMPUTATION:
            cost = self.costs[node] = _sizes(value)
            self._keep(node, cost, value, arguments, saved)
            if self._repeats:
                self._time(node, cost, value, arguments)
        self._values[node] = _leaves(value) if node.op == "call_function" else value
        for read in node.all_input_nodes:
            if self._last[read] is node:
                del self._values[read]

    def _tensors(self, node: fx.Node) -> list[tuple[torch.Tensor, fx.Node]]:
        """Tensors among the arguments, with whose storage they are."""
        return [
            (x, self._base[read])
            for read in node.all_input_nodes
            for x in pytree.tree_leaves(self._values[read])
            if isinstance(x, torch.Tensor)
        ]

    def _value(self, node: fx.Node) -> tuple[Any, list[torch.Tensor]]:
        if node.op == "placeholder":
            given = next(self._given)
            return (given.detach() if isinstance(given, torch.Tensor) else given), []
        if node.op == "get_attr":
            return attribute(self._exported.graph, node), []
        if node.op == "output":
            return fx.map_arg(node.args[0], self._values.__getitem__), []
        if node.op != "call_function":
            raise PipewrightError(
                f"{where(self._exported.name, node)}: torch.export left a call of {node.target}; control flow "
                "inside of the module cannot be divided"
            )
        saved: list[torch.Tensor] = []

        def pack(x: torch.Tensor) -> torch.Tensor:
            saved.append(x)
            return x

        with saved_tensors_hooks(pack, lambda x: x):
            return self._call(node), saved

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        target: Any = node.target
        return target(*args, **kwargs)

    def _keep(
        self,
        node: fx.Node,
        cost: Cost,
        value: Any,
        arguments: list[tuple[torch.Tensor, fx.Node]],
        saved: list[torch.Tensor],
    ) -> None:
        owners = {_pointer(x): base for x, base in arguments}
        owners |= {_pointer(x): node for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)}
        for pointer, x in {_pointer(x): x for x in saved}.items():
            owner = owners.get(pointer)
            kind = Kind.COMPUTATION if owner is node else owner and self.folder.kinds[owner]
            if owner is not None and kind is Kind.COMPUTATION:
                cost.keeps.append(owner)
            elif owner is None or (kind is not Kind.STATE and owner not in self._counted):
                cost.saved_bytes += x.untyped_storage().nbytes()
                if owner is not None:
                    self._counted.add(owner)

    def _time(self, node: fx.Node, cost: Cost, value: Any, arguments: list[tuple[torch.Tensor, fx.Node]]) -> None:
        least = self._clock.least
        cost.forward = least(lambda: self._call(node), self._repeats)
        outputs = [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor) and x.requires_grad]
        if not outputs:
            return
        wanted = [(x, base) for x, base in arguments if x.requires_grad]
        inputs = [x for x, base in wanted if self.folder.kinds[base] is not Kind.STATE]
        ones = [torch.ones_like(x) for x in outputs]

        def gradients(of: list[torch.Tensor]) -> int:
            work = torch.autograd.grad
            return least(lambda: work(outputs, of, ones, retain_graph=True, allow_unused=True), self._repeats)

        whole = gradients([x for x, _ in wanted])
        both = 0 < len(inputs) < len(wanted)
        cost.input_gradient = min(gradients(inputs), whole) if both else (whole if inputs else 0)
        cost.weight_gradient = whole - cost.input_gradient


def _pointer(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _leaves(value: Any) -> Any:
    """The same tensors without history."""
    plain = lambda x: x.detach().requires_grad_(x.requires_grad)
    return pytree.tree_map_only(torch.Tensor, plain, value)


def _sizes(value: Any) -> Cost:
    tensors = [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
    sizes = {_pointer(x): x.untyped_storage().nbytes() for x in tensors}
    shape, dtype = list(tensors[0].shape), str(tensors[0].dtype).removeprefix("torch.")
    return Cost(sum(sizes.values()), shape, dtype)
