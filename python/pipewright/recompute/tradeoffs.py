"""Trade-offs between memory and time of a module's step, as data and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from .._runner import PipewrightError
from .joint import Joint
from .module import Recompute
from .planner import Planner
from .report import Report, report_of
from .search import front, plain_plan, resident_bytes
from .simulate import Sequence


@dataclass(frozen=True)
class Point:
    """One trade-off: bytes at the peak and seconds of a step, and both as shares of the plain step."""

    memory: int
    time: float
    memory_share: float
    time_share: float


@dataclass(frozen=True, repr=False)
class Pareto:
    """Trade-offs from the least memory to the least time."""

    points: list[Point]
    svg: str

    def __str__(self) -> str:
        rows = (f"{100 * p.memory_share:8.1f} %{100 * p.time_share:10.1f} %" for p in self.points)
        return "\n".join([f"{'memory':>10}{'time':>12}", *rows])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.svg


class _Curve(Planner):
    """A planner that finds all trade-offs and plans the plain step."""

    found: Pareto | None = None

    def plan(self, joint: Joint, kind: str = "") -> tuple[Sequence, Report]:
        """The plain sequence."""
        predictions, without, svg = front(joint, self.effort, self.name)
        points: list[Point] = []
        for p in sorted(predictions, key=lambda p: (p.peak, p.time)):
            if not points or p.time / 1e6 < points[-1].time:
                share = p.peak / max(without.peak, 1), p.time / without.time
                points.append(Point(p.peak, p.time / 1e6, *share))
        self.found = Pareto(points, svg)
        plan = plain_plan(joint)
        return plan.run, report_of(plan, resident_bytes(joint))


def pareto_of(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], planner: Planner) -> Pareto:
    """The trade-offs of a module's step with these arguments; the module does not run."""
    curve = _Curve(planner.goal, planner.effort, "measured", planner.name)
    curve.costs = planner.costs
    Recompute(module, curve).trace(*args, **kwargs)
    if curve.found is None:
        raise PipewrightError("no graph was traced: give a module that computes something from its arguments")
    return curve.found
