"""Recorded timelines: every action of the plan, in a file that the command reads."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import pipewright as pw
from conftest import HERE, run_ranks
from networks import CASES
from pipewright import _timeline
from pipewright._runner import run

STEPS = 2


def test_a_trace_has_every_action(tmp_path: Path) -> None:
    run_ranks(2, HERE / "recorded.py", str(tmp_path), str(STEPS))
    text = (tmp_path / "trace.json").read_text()
    plan = pw.Plan.load(tmp_path / "plan.json")
    for step in range(STEPS):
        spans = _timeline.read(text, step)
        for rank, row in enumerate(plan.actions):
            own = [span for span in spans if span.rank == rank]
            assert [span.action for span in own] == [*row, "optimizer"]
            assert all(a.end <= b.start for a, b in pairwise(own))
        before = {span.action: span.end for span in spans}
        after = {span.action: span.start for span in spans}
        assert all(before[f"{s}F{m}"] <= after[f"{s + 1}F{m}"] for s in range(3) for m in range(4))
    told = json.loads(run(["calibrate", tmp_path / "trace.json", "--json"]))
    passes = {(row["stage"], row["pass"]): row["count"] for row in told["stages"]}
    assert passes[3, "F"] == 4 * STEPS and passes[0, "W"] == 4 * STEPS and passes[0, "U"] == STEPS
    torch.manual_seed(0)
    trace = pw.trace(CASES["gpt"].make(), CASES["gpt"].inputs(4), repeats=1)
    cluster = pw.calibrate(tmp_path / "trace.json", plan)
    again = trace.plan(cluster=cluster, ranks=2, stages=4, schedule="zb-v", micro_batches=4, replicas=1)
    assert again.figures["cluster"].endswith("calibrated")
    measured, preset = json.loads((tmp_path / "cluster.json").read_text()), json.loads(run(["cluster", "laptop"]))
    assert measured["devices_per_node"] == 2 and measured["nodes"] == 1
    assert measured["local"] != preset["local"] and min(measured["local"].values()) > 0
    assert measured["network"] == preset["network"] and measured["device"]["memory"] > 0
    # Two ranks with a thread each leave gloo's threads a core, or not.
    assert measured["blocking_sends"] is (len(os.sched_getaffinity(0)) < 4)
    # Nothing is left on the stages.
    assert "Stage" in (tmp_path / "clean").read_text()


def test_links_are_between_ranks() -> None:
    with pytest.raises(pw.PipewrightError, match="start torchrun with 2 or more"):
        pw.cluster()
