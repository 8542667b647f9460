"""Plans: options, figures, timelines; what is refused, in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import pipewright as pw
from networks import CASES
from pipewright._runner import run


@pytest.fixture(scope="module")
def trace() -> pw.Trace:
    """Of the GPT."""
    torch.manual_seed(0)
    return pw.trace(CASES["gpt"].make(), CASES["gpt"].inputs(4))


def test_options_are_the_commands(trace: pw.Trace) -> None:
    plan = trace.plan(ranks=2, stages=4, schedule="interleaved:2", micro_batches=8, optimizer="adam")
    figures = plan.figures
    assert (figures["ranks"], figures["stages"], figures["micro_batches"]) == (2, 4, 8)
    assert plan.mini_batch == 8 * trace.samples
    assert "adam" in plan.text


def test_memory_bounds_the_plan(trace: pw.Trace) -> None:
    free = trace.plan(ranks=2, stages=2, schedule="gpipe", micro_batches=8)
    bound = max(free.figures["memory_bytes"]) * 3 // 4
    tight = trace.plan(ranks=2, stages=2, schedule="gpipe", micro_batches=8, memory=f"{bound}B")
    assert max(tight.figures["memory_bytes"]) <= bound and tight.recomputed


def test_a_plan_for_torch_has_a_schedule_of_torch(trace: pw.Trace) -> None:
    trace.plan(ranks=2).check_schedule()
    with pytest.raises(pw.PipewrightError, match="runs a stage on two ranks"):
        trace.plan(ranks=2, replicas=1, schedule="dualpipe").check_schedule()
    with pytest.raises(pw.PipewrightError, match="overlaps forward and backward"):
        trace.plan(ranks=2, replicas=1, schedule="dualpipev").check_schedule()
    with pytest.raises(pw.PipewrightError, match="several versions of weights"):
        trace.plan(ranks=2, replicas=1, schedule="pipedream").check_schedule()


def test_the_timeline_is_the_predicted_step(trace: pw.Trace) -> None:
    plan = trace.plan(ranks=2, stages=2, schedule="1f1b", micro_batches=4)
    actions = [[span.action for span in plan.timeline if span.rank == rank] for rank in range(2)]
    assert [row[:8] for row in actions] == plan.actions
    assert all(row[8:] == ["optimizer"] for row in actions)
    last = max(span.end for span in plan.timeline)
    assert last == pytest.approx(plan.figures["step_ns"] / 1e9)
    span = plan.timeline[0]
    assert (span.stage, span.kind, span.micro_batch) == (0, "F", 0)
    html = plan._repr_html_()
    assert html.startswith("<svg") and html.count("<rect") == len(plan.timeline) and "predicted" in html


def test_a_plan_is_shown_saved_and_read(trace: pw.Trace, tmp_path: Path, capsys: Any) -> None:
    plan = trace.plan(ranks=2, stages=2)
    plan.save(tmp_path / "plan.json")
    assert pw.Plan.load(tmp_path / "plan.json").text == plan.text
    plan.show()
    assert "critical path" in capsys.readouterr().out
    assert repr(plan).startswith("Gpt on 2 ranks, 2 stages")


def test_no_stage_is_empty(trace: pw.Trace) -> None:
    """A planner may put the sample alone on a stage."""
    values = json.loads(trace.plan(ranks=2, stages=4, schedule="interleaved:2").text)
    count = len(trace.nodes)
    for cuts, sizes in [
        ([1, 2, 3], [1, 1, 1, count - 3]),
        ([1, count, count + 1], [1, count - 3, 1, 1]),
        ([4, 5, count + 1], [3, 1, count - 5, 1]),
    ]:
        plan = pw.Plan(json.dumps(values | {"cuts": cuts}))
        assert [len(stage) for stage in plan.stages] == sizes
        assert sum(plan.stages, []) == [node["name"] for node in trace.nodes]


def test_a_machine_as_a_dictionary(trace: pw.Trace) -> None:
    cluster = json.loads(run(["cluster", "laptop"]))
    cluster["name"] = "mine"
    assert trace.plan(ranks=2, stages=2, cluster=cluster).figures["cluster"] == "mine"


def test_plans_of_presets_need_no_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import pipewright as pw
print(pw.plan("mlp4", ranks=2).figures["ranks"])
try:
    pw.trace
except pw.PipewrightError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ranks, error = done.stdout.splitlines()
    assert ranks == "2" and error.startswith("pipewright.trace needs PyTorch")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stages": 200, "ranks": 2}, "use at most"),
        ({"cluster": "moon"}, "no cluster is called `moon`; known: reedbush-l"),
        ({"cluster": "moon.json"}, "moon.json"),
        ({"schedule": "2f2b"}, "no schedule is called `2f2b`"),
        ({"ranks": 0}, "--ranks"),
        ({"stage": 2}, "--stage"),
        ({"mini_batch": 3, "micro_batches": 2, "stages": 2}, "3"),
        ({"memory": "1kB", "ranks": 2, "stages": 2, "schedule": "1f1b"}, "memory"),
    ],
)
def test_bad_options_are_one_sentence(trace: pw.Trace, options: dict[str, Any], words: str) -> None:
    with pytest.raises(pw.PipewrightError) as error:
        trace.plan(**options)
    assert words in str(error.value) and "\n" not in str(error.value), error.value


def test_a_broken_plan_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"version": 1}')
    with pytest.raises(pw.PipewrightError, match="plan.json: "):
        pw.Plan.load(tmp_path / "plan.json")
    with pytest.raises(pw.PipewrightError, match="of a preset, not of a module"):
        _ = pw.plan("mlp4", ranks=2).stages
    with pytest.raises(pw.PipewrightError, match="has no trace"):
        pw.plan("mlp4", ranks=2).pipeline(loss_fn=lambda output, target: output)
