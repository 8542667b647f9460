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
    """One forward pass: the operations that read leaves, and the outputs that depend on no received value."""

    operations: list[Operation] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)
    ends: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Of the last stage: such outputs, each as a leaf that the loss reads, and as it came."""
    _rest: list[tuple[Any, torch.Tensor]] = field(default_factory=list)

    def inputs(self, outputs: Any, gradients: Any, received: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """I: the gradients of what was received. Outputs are tensors, or where these come from."""
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        gradients = tuple(map(torch.ones_like, outputs)) if gradients is None else tuple(gradients)
        wanted = [x for x in received if x.requires_grad]
        ends = [x for x, _ in self.ends]
        ways = [at for at, value in enumerate(outputs) if _is_trained(value)]
        given, starts = [gradients[at] for at in ways], [outputs[at] for at in ways]
        # A loss need not read all outputs, and what is frozen by now reads nothing.
        found: Sequence[torch.Tensor | None] = [None] * len(wanted + ends)
        if ways and found:
            found = torch.autograd.grad(starts, wanted + ends, given, retain_graph=True, allow_unused=True)
        self._rest = [(outputs[at], gradients[at]) for at in self.apart if at in ways]
        pairs = zip(self.ends, found[len(wanted) :], strict=True)
        self._rest += [(origin, gradient) for (_, origin), gradient in pairs if gradient is not None]
        # Losses and messages stay until the step ends; what W needs is here.
        for at, value in enumerate(outputs):
            if at not in self.apart and isinstance(value, torch.Tensor) and not value._is_view():
                value.detach_()
        return filled(found[: len(wanted)], wanted)

    def weights(self) -> None:
        """W: adds to the gradients of parameters."""
        origins = [x for x, _ in self._rest]
        found = [g for _, g in self._rest]
        for one in self.operations:
            known = [(edge, g) for edge, g in zip(one.results, one.gradients, strict=True) if g is not None]
            if not known or not one.leaves:
                continue
            edges, given = zip(*known, strict=True)
            grads = torch.autograd.grad(edges, one.leaves, given, allow_unused=True)
            for origin, grad in zip(one.origins, grads, strict=True):
                if grad is not None:
                    origins.append(origin)
                    found.append(grad)
        self.operations, self.ends, self._rest = [], [], []
        if origins:
            torch.autograd.backward(origins, found)


def _is_trained(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.requires_grad


def filled(gradients: Sequence[torch.Tensor | None], received: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Gradients to send: zeros of what does not reach the loss, as the sender waits for one."""
    pairs = zip(gradients, received, strict=True)
    return tuple(torch.zeros_like(x) if gradient is None else gradient for gradient, x in pairs)


_tape: Tape | None = None


def leaf(origin: torch.Tensor) -> torch.Tensor:
    """A leaf in place of a parameter that is trained."""
    return origin.detach().requires_grad_() if _tape is not None and origin.requires_grad else origin


def watched(result: Any, leaves: Sequence[torch.Tensor], origins: Sequence[torch.Tensor]) -> Any:
    """The result of an operation that has read leaves."""
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if _tape is not None and tensors:
        # The graph holds the hooks: they must not hold the graph.
        gradients: list[torch.Tensor | None] = [None] * len(tensors)
        for at, tensor in enumerate(tensors):
            tensor.register_hook(lambda gradient, at=at: gradients.__setitem__(at, gradient))
        edges = [get_gradient_edge(x) for x in tensors]
        pairs = [(x, origin) for x, origin in zip(leaves, origins, strict=True) if x is not origin]
        _tape.operations.append(Operation(edges, gradients, [x for x, _ in pairs], [x for _, x in pairs]))
    return result


class Stage(PipelineStage):
    """A stage whose backward passes may come in two parts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tapes: dict[int, Tape] = {}
        self._tape = Tape()
        self.in_parts = False
        """Set where the schedule has I and W."""

    @property
    def _is_divided(self) -> bool:
        # The first stage receives nothing: all of its backward pass is W.
        return self.in_parts and not self.is_first and not isinstance(self.submod, Again)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """The forward pass of a micro-batch."""
        global _tape
        if not self._is_divided:
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        _tape = self._tapes[fwd_chunk_id] = Tape()
        try:
            output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
            outputs = output if isinstance(output, tuple) else (output,)
            _tape.apart = [at for at, value in enumerate(outputs) if getattr(value, APART, False)]
            return output
        finally:
            _tape = None

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """B, or I."""
        if self._is_divided:
            self._tape = self._tapes.pop(bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[Any, Any]:
        """What `backward_one_chunk` and `backward_weight_one_chunk` have done: gradients, and what W needs."""
        if self._is_divided:
            if backward_type == "weight":
                bwd_kwargs["param_groups"].weights()
                return (), None
            tape, self._tape = self._tape, Tape()
            gradients = tape.inputs(bwd_kwargs["stage_output"], bwd_kwargs["output_grads"], bwd_kwargs["input_values"])
            if backward_type == "full":
                tape.weights()
            return gradients, tape
        if self.in_parts and not self.is_first:
            # What is computed again as a whole is so once, in I.
            if backward_type == "weight":
                return (), None
            backward_type = "full"
            if self.is_last and isinstance(bwd_kwargs["stage_output"], tuple):
                # I has the loss in a tuple, B has it bare.
                bwd_kwargs = bwd_kwargs | {"stage_output": bwd_kwargs["stage_output"][0]}
        found, groups = super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        if not self.is_first and found:
            received = bwd_kwargs["input_values"]
            at = [i for i, x in enumerate(received) if isinstance(x, torch.Tensor) and x.requires_grad]
            whole = dict(zip(at, filled([found[i] for i in at], [received[i] for i in at]), strict=True))
            found = tuple(whole.get(i, gradient) for i, gradient in enumerate(found))
        return found, groups


APART = "_pipewright_apart"


def apart(value: torch.Tensor) -> torch.Tensor:
    """Marks an output that depends on no received value."""
    setattr(value, APART, True)
    return value


def end(value: torch.Tensor) -> torch.Tensor:
    """The same of the last stage, whose loss may read other outputs too."""
    result = leaf(value)
    if _tape is not None and result is not value:
        _tape.ends.append((result, value))
    return result
