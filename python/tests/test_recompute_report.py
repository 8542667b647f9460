"""Reports, trade-offs and devices of `pw.recompute`; the same answer every time."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import pipewright as pw  # noqa: E402
from recompute_networks import NETWORKS  # noqa: E402

QUICK: dict[str, Any] = {"moves": 20_000, "times": "estimated"}


def test_a_report_is_a_table_for_people() -> None:
    module, arguments = NETWORKS["gpt"]()
    f = pw.recompute(module, arguments, budget="12MiB", **QUICK)
    text = str(f.report)
    assert f.report.budget == 12 << 20 and f.report.peak <= 12 << 20
    assert "budget                      12.0 MiB" in text and "measured" not in text
    f.measure(*arguments)
    assert "measured" in str(f.report)
    assert f.report._repr_html_().count("<tr>") == 6
    assert f.report.measured_time is not None and f.report.measured_time > 0


def test_the_same_moves_give_the_same_plan() -> None:
    module, arguments = NETWORKS["gpt"]()
    first, second = (pw.recompute(module, arguments, budget=0.5, **QUICK).report for _ in range(2))
    assert first == second


def test_times_are_measured_where_nothing_else_is_said() -> None:
    module, arguments = NETWORKS["vit"]()
    report = pw.recompute(module, arguments, seconds=0.5).report
    assert report.peak <= report.budget == report.peak_without // 2
    assert report.time > report.time_without > 0


def test_trade_offs_are_data_and_a_picture() -> None:
    module, arguments = NETWORKS["gpt"]()
    found = pw.pareto(module, arguments, **QUICK)
    memory, time = ([getattr(p, name) for p in found.points] for name in ("memory", "time"))
    assert memory == sorted(memory) and time == sorted(time, reverse=True) and len(memory) > 5
    assert found.points[-1].memory_share == 1.0 and found.points[0].memory_share < 0.5
    assert found._repr_html_().startswith("<svg") and found._repr_html_() == found.svg
    assert "100.0 %" in str(found)


def test_a_step_without_a_backward_operation_has_one_trade_off() -> None:
    class Shift(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    found = pw.pareto(Shift(), torch.randn(2, 3, requires_grad=True), **QUICK)
    assert [point.time_share for point in found.points] == [1.0]


def test_a_budget_from_the_curve_is_met() -> None:
    module, arguments = NETWORKS["gpt"]()
    point = pw.pareto(module, arguments, **QUICK).points[0]
    report = pw.recompute(module, arguments, budget=point.memory, **QUICK).report
    assert report.peak <= point.memory


def test_a_device_is_a_budget() -> None:
    module, arguments = NETWORKS["gpt"]()
    report = pw.recompute(module, arguments, fit="h100", **QUICK).report
    parameters = sum(p.numel() * 4 for p in module.parameters())
    inputs = sum(a.numel() * 8 for a in arguments)
    assert report.repeated == 0 and report.resident == parameters + inputs
    more = pw.recompute(module, arguments, fit="h100", reserve="1GiB", **QUICK).report
    # By default two values for each parameter are reserved, as Adam keeps.
    assert report.budget - more.budget == (1 << 30) - 2 * parameters
