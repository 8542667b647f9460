"""Reports of plans: what was predicted before training, and what a measured step took."""

from __future__ import annotations

from dataclasses import dataclass

from .budget import size_text
from .search import Plan


@dataclass
class Report:
    """Peak of live tensor bytes and time of one forward and backward pass, gradients included.

    Bytes count what is above the level before the step; times are in seconds.
    """

    # The budget in bytes, and the least that any sequence needs.
    budget: int
    least: int
    # With recomputation, and without.
    peak: int
    peak_without: int
    time: float
    time_without: float
    # Computations of the step, and how many of them are repetitions.
    computations: int
    repeated: int
    # Bytes of parameters, buffers and inputs, which no sequence changes.
    resident: int
    # Of a real step, once `measure` has run it.
    measured_peak: int | None = None
    measured_time: float | None = None

    def rows(self) -> list[tuple[str, str, str]]:
        """What the report shows: a name, bytes and times."""
        rows = [
            ("without recomputation", size_text(self.peak_without), f"{1e3 * self.time_without:.1f} ms"),
            ("predicted", size_text(self.peak), f"{1e3 * self.time:.1f} ms"),
        ]
        if self.measured_peak is not None and self.measured_time is not None:
            measured = f"{1e3 * self.measured_time:.1f} ms"
            rows.append(("measured", size_text(self.measured_peak), measured))
        rows.append(("budget", size_text(self.budget), ""))
        rows.append(("no sequence below", size_text(self.least), ""))
        return rows

    def __str__(self) -> str:
        lines = [f"{name:24}{size:>12}{time:>14}".rstrip() for name, size, time in self.rows()]
        return "\n".join([*lines, f"{self.repeated} of {self.computations} computations are repetitions"])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{size}</td><td>{time}</td></tr>"
            for name, size, time in self.rows()
        )
        note = f"{self.repeated} of {self.computations} computations are repetitions"
        return f"<table><tr><th></th><th>memory</th><th>time</th></tr>{cells}</table><p>{note}</p>"


def report_of(plan: Plan, resident: int) -> Report:
    """The report of a plan."""
    computations = len(plan.run.operations)
    return Report(
        budget=plan.budget,
        least=plan.least,
        peak=plan.prediction.peak,
        peak_without=plan.without.peak,
        time=plan.prediction.time / 1e6,
        time_without=plan.without.time / 1e6,
        computations=computations,
        repeated=computations - len(set(plan.run.operations)),
        resident=resident,
    )
