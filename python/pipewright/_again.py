"""Recomputation of a whole stage in its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Again(nn.Module):
    """A stage that keeps nothing but what it receives, by torch.utils.checkpoint."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The stage's forward pass, which its backward pass begins with."""
        return checkpoint(self.stage, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), self._second()

    @contextmanager
    def _second(self) -> Iterator[None]:
        # The first time has updated running statistics.
        kept = [(buffer, buffer.clone()) for buffer in self.stage.buffers()]
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, old in kept:
                    buffer.copy_(old)
