"""Memory budgets as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._runner import PipewrightError

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_TEXT = re.compile(r"([0-9]*\.?[0-9]+)\s*(%|[a-z]*)", re.IGNORECASE)
_HOW = "give a share such as 0.5 or '50%' of the peak without recomputation, or bytes such as '8GiB'"


@dataclass(frozen=True)
class Budget:
    """A share of the peak without recomputation, or bytes."""

    share: float | None = None
    size: int | None = None

    def bytes(self, peak: int) -> int:
        """Bytes, where the peak without recomputation is `peak`."""
        if self.share is not None:
            return int(self.share * peak)
        assert self.size is not None
        return self.size


def read_budget(budget: float | int | str) -> Budget:
    """Reads a budget: 0.5, '50%', '8GiB', 12345678."""
    wrong = PipewrightError(f"budget={budget!r} is none: {_HOW}")
    if isinstance(budget, bool) or not isinstance(budget, (int, float, str)):
        raise wrong
    if isinstance(budget, float):
        return _share(budget, wrong)
    if isinstance(budget, int):
        # 1 is everything, as 1.0 is; nobody means one byte.
        return _share(float(budget), wrong) if budget <= 1 else Budget(size=budget)
    match = _TEXT.fullmatch(budget.strip())
    if match is None:
        raise wrong
    number, unit = float(match[1]), match[2].lower()
    if unit == "%":
        return _share(number / 100, wrong)
    if not unit and "." in match[1]:
        return _share(number, wrong)
    if unit not in _UNITS and unit:
        raise wrong
    size = int(number * _UNITS.get(unit, 1))
    if size == 0:
        raise wrong
    return Budget(size=size)


def read_bytes(size: int | str, name: str) -> int:
    """Reads bytes: 12345678, '8GiB'."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = _TEXT.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise PipewrightError(f"{name}={size!r} is no size: give bytes such as 12345678 or '8GiB'")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def size_text(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def _share(share: float, wrong: PipewrightError) -> Budget:
    if not 0 < share <= 1:
        raise wrong
    return Budget(share=share)
