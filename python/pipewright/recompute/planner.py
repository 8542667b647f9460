"""Planner of sequences for joint graphs: a budget, the effort of the search, costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from .._runner import PipewrightError
from .budget import Budget, read_budget, read_bytes, size_text
from .joint import Joint
from .measure import Costs
from .report import Report, report_of
from .search import Effort, device_bytes, find, resident_bytes
from .simulate import Sequence

Times = Literal["measured", "estimated"]
# Adam keeps two values for each parameter.
_ADAM = 2


@dataclass(frozen=True)
class Fit:
    """A device whose memory is the budget, less what stays there and what is reserved."""

    device: str | torch.device
    # Bytes; nothing: two values for each parameter, as Adam keeps.
    reserve: int | None

    def budget(self, joint: Joint) -> Budget:
        """The bytes that are left for a step."""
        resident = resident_bytes(joint)
        reserve = _ADAM * _parameters(joint) if self.reserve is None else self.reserve
        try:
            device = torch.device(self.device)
        except RuntimeError:
            return Budget(size=device_bytes(str(self.device), resident + reserve))
        if device.type != "cuda" or not torch.cuda.is_available():
            raise PipewrightError(
                f"fit={str(self.device)!r} has no memory of its own here: "
                "name a device such as 'h100', or give a budget in bytes"
            )
        memory = torch.cuda.get_device_properties(device).total_memory
        left = memory - resident - reserve
        if left <= 0:
            raise PipewrightError(
                f"{device} has {size_text(memory)}, and parameters, inputs and optimizer alone take "
                f"{size_text(resident + reserve)}; divide the model first"
            )
        return Budget(size=left)


class Planner:
    """Plans each joint graph it is given."""

    def __init__(self, goal: Budget | Fit, effort: Effort, times: Times, name: str) -> None:
        self.goal = goal
        self.effort = effort
        self.costs = Costs(estimate=times == "estimated")
        self.name = name
        # The most bytes that a share was, by what is computed: another shape, whose share cannot be met, may have them.
        self._allowed: dict[str, int] = {}

    def plan(self, joint: Joint, kind: str = "") -> tuple[Sequence, Report]:
        """The sequence to run, and its report; `kind` is the same for other shapes of one computation."""
        budget = self.goal if isinstance(self.goal, Budget) else self.goal.budget(joint)
        plan = find(joint, budget, self.effort, self.name, self._allowed.get(kind, 0))
        if budget.share is not None:
            self._allowed[kind] = max(plan.budget, self._allowed.get(kind, 0))
        return plan.run, report_of(plan, resident_bytes(joint))


def planner_of(
    budget: float | int | str | None,
    fit: str | torch.device | None,
    reserve: int | str | None,
    effort: Effort,
    times: Times,
    name: str,
) -> Planner:
    """The planner of a user's arguments."""
    if budget is not None and fit is not None:
        raise PipewrightError("budget and fit are two budgets: give one of them")
    if times not in ("measured", "estimated"):
        raise PipewrightError(f"times={times!r} is unknown: give 'measured' or 'estimated'")
    if fit is None:
        return Planner(read_budget(0.5 if budget is None else budget), effort, times, name)
    bytes_kept = None if reserve is None else read_bytes(reserve, "reserve")
    return Planner(Fit(fit, bytes_kept), effort, times, name)


def _parameters(joint: Joint) -> int:
    """Bytes of inputs that get gradients."""
    pairs = zip(joint.primals, joint.backward_outputs, strict=False)
    values = (primal.meta["val"] for primal, gradient in pairs if gradient is not None)
    return sum(int(value.untyped_storage().nbytes()) for value in values)
