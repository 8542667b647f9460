"""Recomputation of a whole stage in its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from typing import Any

import torch
from torch import fx, nn
from torch.utils.checkpoint import checkpoint

CHANGING = "pipewright_changing"
"""In a stage's `meta`: names of the buffers that its forward pass changes."""


class Again(nn.Module):
    """A stage that keeps nothing but what it receives, by torch.utils.checkpoint."""

    def __init__(self, stage: fx.GraphModule) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The stage's forward pass, which its backward pass begins with."""
        return checkpoint(self.stage, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), self._second(self._state())

    @contextmanager
    def _second(self, before: list[torch.Tensor]) -> Iterator[None]:
        # The first time has changed buffers, and other micro-batches have since: it is the same once more.
        now = self._state()
        self._put(before)
        try:
            yield
        finally:
            self._put(now)

    def _changing(self) -> list[torch.Tensor]:
        return [attrgetter(name)(self.stage) for name in self.stage.meta[CHANGING]]

    def _state(self) -> list[torch.Tensor]:
        return [buffer.detach().clone() for buffer in self._changing()]

    def _put(self, state: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for buffer, value in zip(self._changing(), state, strict=True):
                buffer.copy_(value)
