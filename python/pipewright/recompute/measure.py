"""Costs of operations: bytes of results and workspaces, and times, from running each by itself.

Operations of the same operator with arguments of the same shapes are run once for all. No more
memory is taken than the largest of them needs, so steps that do not fit as they stand are
measured too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.flop_counter import flop_registry

from .joint import Cost
from .peak import peak_bytes

# The caching allocator of CUDA rounds up to these.
_CUDA_BLOCK = 512
_REPETITIONS = 3
# Of an estimated time: operations and bytes a microsecond, as of one core of a server.
_FLOPS, _BYTES = 50e3, 10e3


class Costs:
    """Costs by operator and arguments; `estimate` takes times from shapes in place of a clock, so
    that every run and every machine has the same."""

    def __init__(self, *, estimate: bool) -> None:
        self.estimate = estimate
        self.known: dict[str, Cost] = {}

    def of(self, node: fx.Node) -> Cost:
        """The cost of a call of an operator."""
        key = _key(node)
        if key not in self.known:
            with _real(node):
                self.known[key] = self._run(node)
        return self.known[key]

    def _run(self, node: fx.Node) -> Cost:
        real = {argument: _real_value(argument) for argument in node.all_input_nodes}
        args, kwargs = fx.map_arg((node.args, node.kwargs), real.__getitem__)

        def call() -> Any:
            return node.target(*args, **kwargs)  # type: ignore[operator]

        try:
            results = _tensors(call())
        except Exception:
            # Some fake results have other types than real ones, which their readers do not take.
            sizes = tuple(_bytes(result) for result in _tensors(node.meta["val"]))
            return Cost(sizes, time=_estimate(node, sizes))
        storages = [_storage(argument) for argument in real.values()]
        if len(results) == 1 and results[0] is not None and _storage(results[0]) in storages:
            return Cost((0,), alias=storages.index(_storage(results[0])))
        sizes = tuple(_bytes(result) for result in results)
        device = next((r.device for r in results if r is not None), torch.device("cpu"))
        del results
        workspace = max(0, peak_bytes(call, device) - sum(sizes))
        duration = _estimate(node, sizes) if self.estimate else _clock(call, device)
        return Cost(sizes, workspace, duration)


@contextlib.contextmanager
def _real(node: fx.Node) -> Iterator[None]:
    """Runs real operators from inside a trace, and leaves generators as they are."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    devices = {v.device for v in values if isinstance(v, torch.Tensor)}
    kinds = {device.type for device in devices} | {"cpu"}
    cards = [device.index or 0 for device in devices if device.type == "cuda"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(unset_fake_temporarily())
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=cards))
        for kind in kinds:
            # Casts are operators of the graph already.
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _key(node: fx.Node) -> str:
    """The operator, with tensors as their layouts and everything else as it is."""

    def layout(argument: fx.Node) -> Any:
        return _Layout(argument.meta.get("val"), node.all_input_nodes.index(argument))

    described = fx.map_arg((node.args, node.kwargs), layout)
    return f"{node.target}{described}"


class _Layout:
    """An argument's layout, and which of the node's inputs it is, as part of a text."""

    def __init__(self, value: object, place: int) -> None:
        self.value, self.place = value, place

    def __repr__(self) -> str:
        if isinstance(self.value, torch.Tensor):
            t = self.value
            return f"<{self.place} {t.dtype} {t.device} {tuple(t.shape)} {t.stride()}>"
        return f"<{self.place} {self.value!r}>"


def _real_value(node: fx.Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return [_filled(v) for v in value] if isinstance(value, (list, tuple)) else value
    return _filled(value)


def _filled(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout: floats one half, integers zero, so that every index exists."""
    reach = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
    elements = max(0 if value.numel() == 0 else reach, 1)
    number: float = 0.5 if value.dtype.is_floating_point or value.dtype.is_complex else 0
    base = torch.full((elements,), number, dtype=value.dtype, device=value.device)
    return base.as_strided(value.shape, value.stride())


def _tensors(result: Any) -> list[torch.Tensor | None]:
    """An operator's results, with nothing for those that are no tensors."""
    found = result if isinstance(result, (list, tuple)) else [result]
    return [r if isinstance(r, torch.Tensor) else None for r in found]


def _storage(value: object) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _bytes(tensor: torch.Tensor | None) -> int:
    if tensor is None:
        return 0
    size = int(tensor.untyped_storage().nbytes())
    return size if tensor.device.type != "cuda" else -(-size // _CUDA_BLOCK) * _CUDA_BLOCK


def _clock(call: Callable[[], Any], device: torch.device) -> float:
    """Microseconds of a call, the least of several."""
    wait = (lambda: None) if device.type == "cpu" else torch.get_device_module(device).synchronize
    least = float("inf")
    for _ in range(_REPETITIONS):
        wait()
        begun = time.perf_counter()
        call()
        wait()
        least = min(least, time.perf_counter() - begun)
    return least * 1e6


def _estimate(node: fx.Node, sizes: tuple[int, ...]) -> float:
    read = sum(_size(n.meta.get("val")) for n in node.all_input_nodes)
    flops = 0
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is not None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        flops = count(*args, **kwargs, out_val=node.meta.get("val"))
    return 1.0 + max(flops / _FLOPS, (read + sum(sizes)) / _BYTES)


def _size(value: object) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
