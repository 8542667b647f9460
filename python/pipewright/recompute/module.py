"""Module that runs another one within a memory budget."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo import config
from torch.utils import _pytree as pytree

from .._runner import PipewrightError
from .backend import Backend
from .peak import peak_bytes
from .planner import Planner
from .report import Report
from .trace import Stopped, compiled, refused, stopping

_REPETITIONS = 3


class Recompute(nn.Module):
    """A module that trains within a memory budget.

    `module` is the one it runs; parameters and buffers are that one's. There is one plan for each
    set of shapes of the arguments, made when they come first.
    """

    def __init__(self, module: nn.Module, planner: Planner) -> None:
        super().__init__()
        self.module = module
        self._backend = Backend(planner, self._before)
        self._step = compiled(module, self._backend)
        self._stop = False
        self._report: Report | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles plan again: what was compiled runs this module.
        return Recompute, (self.module, self._backend.planner)

    @property
    def report(self) -> Report:
        """The report of the plan that ran last, or was traced last."""
        if self._report is None:
            raise PipewrightError("nothing is planned yet: run a step, or call trace(..) with its arguments")
        return self._report

    @property
    def reports(self) -> list[Report]:
        """Reports of all plans, one for each set of shapes."""
        return list(self._backend.reports)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module."""
        # DDP around this module would have dynamo divide the step where its buckets end. Hooks that come to
        # submodules after the plan are part of the step too.
        with refused(self._step), config.patch(optimize_ddp=False, skip_nnmodule_hook_guards=False):
            return self._step(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Report:
        """Plans for these arguments; the module does not run."""
        self._stop = True
        try:
            with stopping(), torch.set_grad_enabled(True):
                self.forward(*args, **kwargs)
        finally:
            self._stop = False
        return self.report

    def measure(self, *args: Any, **kwargs: Any) -> Report:
        """Runs a few steps of forward and backward pass and reports their peak and the least time.

        Gradients, buffers and generators are as before afterwards.
        """
        report = self.trace(*args, **kwargs)
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))

        def step() -> None:
            _train(self(*args, **kwargs))
            if device.type != "cpu":
                torch.get_device_module(device).synchronize(device)

        with _restored(self.module, (args, kwargs)):
            report.measured_peak = peak_bytes(step, device)
        with _restored(self.module, (args, kwargs)):
            times = []
            for _ in range(_REPETITIONS):
                begun = time.perf_counter()
                step()
                times.append(time.perf_counter() - begun)
            report.measured_time = min(times)
        return report

    def _before(self, report: Report | None) -> None:
        """What comes before each forward pass."""
        self._report = report or self._report
        if self._stop:
            if report is None:
                raise PipewrightError("no argument or parameter requires a gradient: there is nothing to recompute")
            raise Stopped


def _train(result: Any) -> None:
    """The backward pass from all that a module returned."""
    ends = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])


@contextlib.contextmanager
def _restored(module: nn.Module, arguments: Any) -> Iterator[None]:
    """Puts back gradients, buffers and generators."""
    leaves = [*module.parameters(), *pytree.tree_leaves(arguments)]
    tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.is_leaf and t.requires_grad]
    gradients = [tensor.grad for tensor in tensors]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    for tensor in tensors:
        tensor.grad = None
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
