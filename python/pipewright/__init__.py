"""Pipelines of PyTorch modules: traced, planned, shown and run. See docs/pytorch.md."""

from ._runner import PipewrightError

__all__ = ["PipewrightError"]
