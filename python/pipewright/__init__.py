"""Pipelines of PyTorch modules: traced, planned, shown and run. See docs/pytorch.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._explore import Explorer
from ._plan import Plan, plan
from ._runner import PipewrightError
from ._timeline import Span
from .recompute import pareto, recompute, recompute_backend

if TYPE_CHECKING:
    from ._links import cluster
    from ._pipeline import Pipeline
    from ._record import calibrate, record
    from ._trace import Trace, trace

__all__ = [
    "Explorer",
    "Pipeline",
    "PipewrightError",
    "Plan",
    "Span",
    "Trace",
    "calibrate",
    "cluster",
    "pareto",
    "plan",
    "record",
    "recompute",
    "recompute_backend",
    "trace",
]

# What needs torch is imported when it is asked for: plans are made and shown without it.
_WITH_TORCH = {
    "Pipeline": "_pipeline",
    "Trace": "_trace",
    "calibrate": "_record",
    "cluster": "_links",
    "record": "_record",
    "trace": "_trace",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        module = importlib.import_module(f".{_WITH_TORCH[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "torch":
            raise
        raise PipewrightError(
            f"pipewright.{name} needs PyTorch, which is not installed: pip install 'pipewright[torch]'"
        ) from error
    return getattr(module, name)
