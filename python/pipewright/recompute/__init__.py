"""Recomputation for PyTorch: modules that train within a memory budget. See docs/pytorch-recompute.md.

PyTorch is imported when the first of these functions is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from .._runner import PipewrightError

if TYPE_CHECKING:
    import torch

    from .backend import Backend
    from .module import Recompute
    from .tradeoffs import Pareto

__all__ = ["pareto", "recompute", "recompute_backend"]


def recompute(
    module: torch.nn.Module,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: float | int | str | None = None,
    fit: str | torch.device | None = None,
    reserve: int | str | None = None,
    seconds: float = 5.0,
    moves: int | None = None,
    seed: int = 1,
    times: Literal["measured", "estimated"] = "measured",
) -> Recompute:
    """A module that computes what `module` does, with at most the given peak of live tensor bytes
    in forward and backward pass, gradients included.

    Args:
        args, kwargs: example arguments; with them the plan is made at once, else at the first call.
        budget: a share of the peak without recomputation (0.5, "50%"; the default is a half), or
            bytes ("8GiB").
        fit: a device in place of a budget: "h100", or torch.device("cuda"). Parameters, buffers,
            inputs and `reserve` are taken off its memory.
        reserve: bytes for the optimizer; default: two values for each parameter, as Adam keeps.
        seconds: how long a sequence is searched.
        moves, seed: how much is searched, in place of seconds.
        times: "measured" runs each operator; "estimated" takes times from shapes. With it and
            `moves` the plan is the same on every machine.

    Raises:
        PipewrightError: where the module cannot be traced or the budget cannot be met.
    """
    _require_module(module)
    from .module import Recompute

    planner = _planner(budget, fit, reserve, seconds, moves, seed, times, type(module).__name__)
    made = Recompute(module, planner)
    if args is not None or kwargs is not None:
        made.trace(*_tuple(args), **(kwargs or {}))
    return made


def recompute_backend(
    *,
    budget: float | int | str | None = None,
    fit: str | torch.device | None = None,
    reserve: int | str | None = None,
    seconds: float = 5.0,
    moves: int | None = None,
    seed: int = 1,
    times: Literal["measured", "estimated"] = "measured",
) -> Backend:
    """The same as a backend of `torch.compile`; `report` is there after the first step.

    Every graph is planned for itself: compile with fullgraph=True, so that there is one, and with
    dynamic=False.
    """
    planner = _planner(budget, fit, reserve, seconds, moves, seed, times, "step")
    from .backend import Backend

    return Backend(planner)


def pareto(
    module: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    seconds: float = 5.0,
    moves: int | None = None,
    seed: int = 1,
    times: Literal["measured", "estimated"] = "measured",
) -> Pareto:
    """Trade-offs between memory and time of a module's step, found in one search."""
    _require_module(module)
    from .tradeoffs import pareto_of

    planner = _planner(None, None, None, seconds, moves, seed, times, type(module).__name__)
    return pareto_of(module, _tuple(args), dict(kwargs or {}), planner)


def _planner(
    budget: float | int | str | None,
    fit: str | torch.device | None,
    reserve: int | str | None,
    seconds: float,
    moves: int | None,
    seed: int,
    times: Literal["measured", "estimated"],
    name: str,
) -> Any:
    _require_torch()
    from .planner import planner_of
    from .search import Effort

    return planner_of(budget, fit, reserve, Effort(seconds, moves, seed), times, name)


def _tuple(args: Any) -> tuple[Any, ...]:
    if args is None:
        return ()
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _require_module(module: object) -> None:
    _require_torch()
    import torch

    if not isinstance(module, torch.nn.Module):
        raise PipewrightError(f"{module!r} is no torch.nn.Module: give the module to train")


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise PipewrightError(
            "pipewright.recompute needs PyTorch, which is not installed: pip install 'pipewright[torch]'"
        ) from error
