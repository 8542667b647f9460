"""Backward passes in two parts: gradients of what a stage receives first (I), those of parameters later (W).

torch's own division counts some gradients twice where a parameter's way to the loss meets the received values
more than once (torch 2.8, a decoder that attends to a relayed memory). Here the graph itself is divided: an
operation that depends on a received value reads parameters, and what only depends on them, through leaves of
its own. I never goes there. W takes the gradient that I has left at each such operation down to its leaves,
and from all of them at once to the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.distributed.pipelining import PipelineStage
from torch.utils import _pytree as pytree

from ._again import Again


@dataclass
class Operation:
    """One that reads leaves, in one forward pass."""

    results: list[GradientEdge]
    gradients: list[torch.Tensor | None]
    """Of the results, once I has been there."""
    leaves: list[torch.Tensor]
    origins: list[torch.Tensor]
    """What the leaves stand for."""


@dataclass
class Tape:
    """The operations of one forward pass that read leaves."""

    operations: list[Operation] = field(default_factory=list)

    def weights(self, outputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """W: adds to the gradients of parameters. `outputs` are those that depend on no received value."""
        origins, found = list(outputs), list(gradients)
        for one in self.operations:
            known = [(edge, g) for edge, g in zip(one.results, one.gradients, strict=True) if g is not None]
            if not known:
                continue
            edges, given = zip(*known, strict=True)
            grads = torch.autograd.grad(edges, one.leaves, given, allow_unused=True)
            for origin, grad in zip(one.origins, grads, strict=True):
                if grad is not None:
                    origins.append(origin)
                    found.append(grad)
        self.operations.clear()
        if origins:
            torch.autograd.backward(origins, found)


_tape: Tape | None = None


def leaf(origin: torch.Tensor) -> torch.Tensor:
    """A leaf in place of a parameter."""
    return origin if _tape is None else origin.detach().requires_grad_()


def watched(result: Any, leaves: Sequence[torch.Tensor], origins: Sequence[torch.Tensor]) -> Any:
    """The result of an operation that has read leaves."""
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if _tape is not None and tensors:
        # The graph holds the hooks: they must not hold the graph.
        gradients: list[torch.Tensor | None] = [None] * len(tensors)
        for at, tensor in enumerate(tensors):
            tensor.register_hook(lambda gradient, at=at: gradients.__setitem__(at, gradient))
        edges = [get_gradient_edge(x) for x in tensors]
        _tape.operations.append(Operation(edges, gradients, list(leaves), list(origins)))
    return result


class Stage(PipelineStage):
    """A stage whose backward passes may come in two parts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tapes: dict[int, Tape] = {}
        self._rest: dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        self.in_parts = False
        """Set where the schedule has I and W."""

    @property
    def _is_divided(self) -> bool:
        # The first stage receives nothing: all of its backward pass is W. One that is computed again is so as a whole.
        return self.in_parts and not self.is_first and not isinstance(self.submod, Again)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """The forward pass of a micro-batch."""
        global _tape
        if self._is_divided:
            _tape = self._tapes[fwd_chunk_id] = Tape()
        try:
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        finally:
            _tape = None

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """B, or I."""
        if not self._is_divided:
            # What is computed again as a whole is so once: W finds nothing left to do.
            whole = full_backward or not self.is_first
            super().backward_one_chunk(bwd_chunk_id, loss=loss, full_backward=whole, last_backward=last_backward)
            return
        results, received = self.fwd_cache.pop(bwd_chunk_id)
        if self.is_last:
            outputs, gradients = (loss,), (torch.ones_like(loss),)
        else:
            outputs, gradients = results, self._retrieve_recv_grads(bwd_chunk_id)
        wanted = [x for x in received if x.requires_grad]
        grads = torch.autograd.grad(outputs, wanted, gradients, retain_graph=True)
        self.bwd_cache[bwd_chunk_id] = grads
        apart = [(x, g) for x, g in zip(outputs, gradients, strict=True) if _is_apart(x)]
        self._rest[bwd_chunk_id] = ([x for x, _ in apart], [g for _, g in apart])
        # Losses, results and messages stay until the step ends; what W needs is on the tape.
        for value in (*results, *outputs):
            if not _is_apart(value) and not value._is_view():
                value.detach_()
        if full_backward:
            self.backward_weight_one_chunk(bwd_chunk_id)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """W."""
        if self._is_divided:
            self._tapes.pop(bwd_chunk_id).weights(*self._rest.pop(bwd_chunk_id))
        elif self.is_first:
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)


APART = "_pipewright_apart"


def apart(value: torch.Tensor) -> torch.Tensor:
    """Marks an output that depends on no received value."""
    setattr(value, APART, True)
    return value


def _is_apart(value: torch.Tensor) -> bool:
    return getattr(value, APART, False)
