"""Two pieces of a module, one behind the other, beside the module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pipewright._cut import Cut


def difference(module: nn.Module, divided: Cut, inputs: tuple[Any, ...]) -> float:
    """The largest difference of output and gradients, as a share of the largest value of each.

    Raises:
        AssertionError: where a value that crosses, or its gradient, is not as it must be sent.
    """
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    module.zero_grad(set_to_none=True)
    output = module(*inputs)
    output.sum().backward()
    want = [output.detach(), *(x.grad for x in module.parameters())]
    module.zero_grad(set_to_none=True)
    module.load_state_dict(buffers, strict=False)
    again = _pieces(divided, inputs)
    got = [again, *(x.grad for x in module.parameters())]
    module.zero_grad(set_to_none=True)
    return max(_relative(a, b) for a, b in zip(got, want, strict=True))


def _pieces(divided: Cut, inputs: tuple[Any, ...]) -> torch.Tensor:
    first, second = (divided.piece(stage).module for stage in range(2))
    exported = divided.folded.exported
    arguments = dict(zip((x.name for x in exported.inputs), inputs, strict=True))
    sent = first(*(arguments[x.name] for x in exported.tensors))
    assert all(x.is_contiguous() and x.requires_grad for x in sent)
    received = [x.detach().requires_grad_() for x in sent]
    output: torch.Tensor = second(*received, **{f"argument_{x}": arguments[x] for x in divided.keywords})
    output.sum().backward()
    gradients = [x.grad for x in received]
    assert all(x is not None and x.is_contiguous() for x in gradients)
    torch.autograd.backward(sent, gradients)
    return output.detach()


def _relative(got: torch.Tensor | None, want: torch.Tensor | None) -> float:
    if got is None or want is None:
        assert got is want, "one of them has no gradient"
        return 0.0
    return ((got - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()
