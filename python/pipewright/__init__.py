"""Pipelines of PyTorch modules: traced, planned, shown and run. See docs/pytorch.md."""

from ._runner import PipewrightError
from .recompute import pareto, recompute, recompute_backend

__all__ = ["PipewrightError", "pareto", "recompute", "recompute_backend"]
