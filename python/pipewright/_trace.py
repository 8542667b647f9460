"""Traces of modules: forward and backward pass as a graph with measured times and bytes."""

from __future__ import annotations

import inspect
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ._export import Exported, export, reason
from ._fold import Folded
from ._malloc import keep_freed
from ._measure import Clock, Cost, measure, untouched
from ._runner import PipewrightError
from ._within import Within

if TYPE_CHECKING:
    from ._plan import Plan

FORMAT = "pipewright-graph/1"


@dataclass(repr=False)
class Trace:
    """A module's graph with what its nodes take, for one micro-batch."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    folded: Folded
    costs: dict[fx.Node, Cost]
    device: str
    step: float
    """Seconds of a measured step, forward and backward; 0 where nothing was measured."""
    spread: float
    """By which share two measurements of it differ."""

    @property
    def name(self) -> str:
        """The module's class."""
        return self.folded.exported.name

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.module.parameters())
        if parameters >= 1e6:
            size = f"{parameters / 1e6:.1f} M parameters"
        else:
            size = f"{parameters:,} parameters"
        known = f"{len(self.folded.computations)} computations, {size}, micro-batch of {self.samples}"
        if self.step <= 0:
            return f"{self.name}: {known}, not measured"
        spread = f"{self.spread:.1%} between two traces"
        return f"{self.name}: {known}; {self.step * 1e3:.2f} ms a step on {self.device}, {spread}"

    @property
    def samples(self) -> int:
        """Samples of the micro-batch."""
        return self.folded.exported.samples

    def matched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Leaves of arguments in the order of the traced ones; they are matched by name, as Python does.

        Raises:
            PipewrightError: where they are not the traced ones.
        """
        nodes = self.folded.exported.inputs
        form = pytree.tree_structure((self.args, self.kwargs))
        signature = inspect.signature(self.module.forward)
        traced = _by_name(signature, *pytree.tree_unflatten(nodes, form))
        try:
            given = _by_name(signature, args, kwargs)
            other = sorted(traced.keys() ^ given)
            why = ", ".join(f"`{x}` is {'missing' if x in traced else 'none of them'}" for x in other)
        except TypeError as error:
            given, why = {}, str(error)
        if why:
            raise PipewrightError(
                f"step got {len(pytree.tree_leaves((args, kwargs)))} inputs, {self.name} was traced with {len(nodes)}: "
                f"{why}; give the same ones"
            )
        names = {node: name for name, node in traced.items()}
        return [given[names[node]] for node in nodes]

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The nodes as the file has them."""
        state = self.folded.exported.graph.state_dict(keep_vars=True)
        names = {x.node: x.name for x in self.folded.computations}
        rows = []
        for x in self.folded.computations:
            cost = self.costs[x.node]
            rows.append(
                {
                    "name": x.name,
                    "op": x.op,
                    "module": x.module,
                    "inputs": [read.name for read in x.inputs],
                    "shape": cost.shape,
                    "dtype": cost.dtype,
                    "output_bytes": cost.output_bytes,
                    "forward_ns": cost.forward,
                    "input_gradient_ns": cost.input_gradient,
                    "weight_gradient_ns": cost.weight_gradient,
                    "parameters": [_parameter(name, state[name]) for name in x.parameters],
                    "keeps": [names[kept] for kept in cost.keeps],
                    "saved_bytes": cost.saved_bytes,
                }
            )
        return rows

    def to_json(self) -> str:
        """The text that `save` writes, a node a line."""
        head = {
            "format": FORMAT,
            "name": self.name,
            "samples": self.samples,
            "torch": torch.__version__,
            "device": self.device,
            "step_ns": round(self.step * 1e9),
            "spread": round(self.spread, 4),
        }
        rows = ",\n  ".join(json.dumps(row) for row in self.nodes)
        return json.dumps(head)[:-1] + f', "nodes": [\n  {rows}\n]}}\n'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph for `pipewright plan --model FILE` and for the explorer."""
        Path(path).write_text(self.to_json())

    def plan(self, **options: Any) -> Plan:
        """A plan, see `pipewright.Plan.make`."""
        from ._plan import make

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"{self.name}.graph.json")
            self.save(file)
            return make(str(file), self, options)


def _by_name(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """The leaves of a call's arguments: `x`, and `x[0]` where it is a tuple."""
    arguments = signature.bind(*args, **kwargs).arguments
    leaves = {name: pytree.tree_leaves_with_path(value) for name, value in arguments.items()}
    return {name + pytree.keystr(path): leaf for name, found in leaves.items() for path, leaf in found}


def _parameter(name: str, value: torch.Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "bytes": value.numel() * value.element_size(),
    }


def trace(
    module: nn.Module,
    args: Sequence[Any] | torch.Tensor,
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[..., torch.Tensor] | None = None,
    target: Any = None,
    device: str | torch.device | None = None,
    repeats: int = 3,
) -> Trace:
    """Exports `module(*args, **kwargs)` and measures it, forward and backward, on its device.

    The example is one micro-batch; its samples lie along the first axis. Where `loss` is given,
    `loss(output, target)` (without a target `loss(output)`) counts to the last node. Buffers, gradients and
    random numbers are left as they were. Under torch.distributed all ranks measure at the same time, as
    they will compute; the plan is made of what rank 0 found. On a processor the process keeps freed memory from
    then on, as in pipelines: new pages in each pass would be measured with it.

    Raises:
        PipewrightError: where the module cannot be exported.
    """
    args = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    given: tuple[tuple[Any, ...], dict[str, Any], Any] = (args, dict(kwargs or {}), target)
    if device is not None:
        try:
            module = module.to(device)
            given = pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), given)
        except (AssertionError, RuntimeError) as error:
            raise PipewrightError(
                f"device={str(device)!r}: {reason(error)}; leave it out to measure where the module is"
            ) from error
    exported = export(module, given[0], given[1])
    here = _device(module, exported)
    clock = Clock(here)
    if repeats and here.type == "cpu":
        keep_freed()
    folded, costs = measure(exported, clock, repeats)
    if not folded.computations:
        raise PipewrightError(f"{exported.name}: nothing in it is trained, so there is nothing to plan")
    found = Trace(module, given[0], given[1], folded, costs, _describe(here), 0.0, 0.0)
    if repeats:
        _whole(found, clock, repeats, loss, given[2])
    return found


def _device(module: nn.Module, exported: Exported) -> torch.device:
    tensors = [*module.parameters(), *(x for x in exported.values if isinstance(x, torch.Tensor))]
    return tensors[0].device if tensors else torch.device("cpu")


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


def _whole(trace: Trace, clock: Clock, repeats: int, loss: Callable[..., torch.Tensor] | None, target: Any) -> None:
    """Measures loss and whole step; nodes get what they take within it, their two gradients as they share it alone.

    Micro-batches after the first add their gradients to those that are there, so the step does.
    """
    graph = trace.folded.exported.graph
    wanted = [x for x in graph.parameters() if x.requires_grad]
    sums: list[torch.Tensor] = []
    given = () if target is None else (target,)

    def forward() -> list[torch.Tensor]:
        output = trace.module(*trace.args, **trace.kwargs)
        output = output if loss is None else loss(output, *given)
        return [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]

    def backward(outputs: list[torch.Tensor]) -> None:
        ones = [torch.ones_like(x) for x in outputs]
        add(torch.autograd.grad(outputs, wanted, ones, allow_unused=True))

    def add(gradients: Sequence[torch.Tensor | None]) -> None:
        for old, new in zip(sums, gradients, strict=True):
            if new is not None:
                old.add_(new)

    try:
        with untouched(trace.module):
            sums += [torch.zeros_like(x) for x in wanted]
            others = [torch.zeros_like(x) for x in wanted]
            if loss is not None:
                _loss(trace, clock, repeats, loss, given)
            # A pipeline's step has many of these one after the other, slow ones too, so it takes as long as their mean
            # says; and the forward pass is one between backward passes: alone it gets memory that its caches still have.
            steps, again = (clock.parts(forward, backward, 2 * repeats) for _ in range(2))
            adding = clock.typical(lambda: add(others), 2 * repeats)
            within = Within(trace.folded, clock, loss, given)
            clock.parts(within.step, lambda _: None, 2 * repeats)
    except torch.OutOfMemoryError:
        # That is what pipelines are for: nodes alone fit.
        return
    first, second, whole = (_mean(map(sum, times)) for times in (steps, again, steps + again))
    there = _mean(forward for forward, _ in steps + again)
    trace.step, trace.spread = whole / 1e9, abs(first - second) / whole
    # Parts are within the whole, however much else the machine did meanwhile.
    there = min(there, whole - 2)
    adding = min(adding, whole - there - 1)
    _divide(trace, within.times(), there, whole - there - adding)
    _add(trace, adding)


def _divide(trace: Trace, parts: dict[fx.Node, tuple[int, int]], there: int, back: int) -> None:
    """Gives nodes their parts of the forward and of the backward pass, which take so many nanoseconds in all."""
    forwards = there / max(sum(forward for forward, _ in parts.values()), 1)
    backwards = back / max(sum(backward for _, backward in parts.values()), 1)
    for node, (forward, backward) in parts.items():
        cost = trace.costs[node]
        alone = cost.input_gradient + cost.weight_gradient
        share = cost.input_gradient / alone if alone else 1.0
        cost.forward = round(forward * forwards)
        cost.input_gradient = round(backward * backwards * share)
        cost.weight_gradient = round(backward * backwards * (1 - share))


def _mean(times: Iterable[int]) -> int:
    return int(statistics.fmean(times))


def _add(trace: Trace, adding: int) -> None:
    """Gives the time of adding gradients to the nodes that have them, by their bytes."""
    state = trace.folded.exported.graph.state_dict(keep_vars=True)
    sizes = {x.node: sum(state[name].nbytes for name in x.parameters) for x in trace.folded.computations}
    for node, bytes_ in sizes.items():
        trace.costs[node].weight_gradient += round(adding * bytes_ / max(sum(sizes.values()), 1))


def _loss(trace: Trace, clock: Clock, repeats: int, loss: Callable[..., torch.Tensor], given: tuple[Any, ...]) -> None:
    """Adds what the loss takes to the last node."""
    with torch.no_grad():
        output = trace.module(*trace.args, **trace.kwargs)
    output = pytree.tree_map_only(torch.Tensor, lambda x: x.detach().requires_grad_(x.is_floating_point()), output)
    leaves = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]
    own = {x.untyped_storage().data_ptr() for x in leaves}
    saved: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        value = loss(output, *given)
    cost = trace.costs[trace.folded.computations[-1].node]
    cost.saved_bytes += sum(saved.values())
    cost.forward += clock.least(lambda: loss(output, *given), repeats)
    grad = torch.autograd.grad
    cost.input_gradient += clock.least(lambda: grad(value, leaves, retain_graph=True, allow_unused=True), repeats)
