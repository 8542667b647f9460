"""Random operations whose repetitions draw what they drew first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def draw(device: str, operator: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """Runs an operator; returns its generator's state from before, and the result."""
    state = _state(device)
    return state, operator(*args, **kwargs)


def draw_again(state: torch.Tensor, device: str, operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs an operator from a state, and leaves the generator as it is."""
    now = _state(device)
    _restore(device, state)
    try:
        return operator(*args, **kwargs)
    finally:
        _restore(device, now)


def _state(device: str) -> torch.Tensor:
    kind = torch.device(device).type
    return torch.get_rng_state() if kind == "cpu" else torch.get_device_module(kind).get_rng_state(device)


def _restore(device: str, state: torch.Tensor) -> None:
    kind = torch.device(device).type
    if kind == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(kind).set_rng_state(state, device)
