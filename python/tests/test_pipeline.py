"""Pipelines: ranks that train by a plan end where one process does; what cannot be divided is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pipewright as pw
from conftest import HERE, results, run_ranks
from networks import CASES, Twice
from pieces import difference
from pipewright._cut import cut

SCHEDULES = [("1f1b", 2), ("gpipe", 2), ("interleaved:2", 4), ("zb-v", 4), ("automatic", 2)]


def train(count: int, jobs: list[list[Any]]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Trains by each plan; a result for each."""
    found = results(run_ranks(count, HERE / "train.py", json.dumps(jobs)))
    assert len(found) == len(jobs), found
    return found


def check(found: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
    """Losses, parameters and buffers are those of eager training."""
    for name, options, result in found:
        about = f"{name} {options} {result}"
        assert result.get("losses", 1.0) < 1e-6 and result["moved"] > 1e-3, about
        assert result["state"] < 1e-6 and result["missing"] == [], about


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_as_one(name: str) -> None:
    plans = [{"ranks": 2, "replicas": 1, "schedule": s, "stages": n} for s, n in SCHEDULES]
    check(train(2, [[name, plan, 10] for plan in plans]))


def test_four_ranks_train_as_one() -> None:
    plans = [("gpt", "zb-v", 8), ("conv", "automatic", 4), ("encoder-decoder", "1f1b", 4), ("gpt", "hanayo:1", 8)]
    one = {"ranks": 4, "replicas": 1}
    check(train(4, [[name, one | {"schedule": schedule, "stages": stages}, 4] for name, schedule, stages in plans]))


def test_what_is_computed_again_changes_nothing() -> None:
    one = {"ranks": 2, "replicas": 1, "recompute": "full"}
    check(
        train(
            2,
            [
                ["conv", one | {"schedule": "1f1b", "stages": 2}, 4],
                ["conv", one | {"schedule": "zb-v", "stages": 4}, 4],
            ],
        )
    )


def test_replicas_average_their_gradients() -> None:
    found = results(run_ranks(4, HERE / "replicas.py"))
    assert found and all(result["losses"] < 1e-6 and result["state"] < 1e-6 for _, _, result in found), found


@pytest.mark.parametrize(("name", "schedule"), [("gpt", "1f1b"), ("gpt", "interleaved:2"), ("mlp", "gpipe")])
def test_replicas_divide_their_parameters(name: str, schedule: str) -> None:
    found = results(run_ranks(4, HERE / "replicas.py", name, schedule))
    assert found and all(result["losses"] < 1e-6 and result["state"] < 1e-6 for _, _, result in found), found
    # Rows are divided: of an odd number one replica has one more.
    assert all(0.4 < result["held"] < 0.6 for _, _, result in found), found


def test_replicas_of_one_stage_train_as_one() -> None:
    check(results(run_ranks(2, HERE / "train.py", json.dumps([["mlp", {"ranks": 2, "stages": 1, "replicas": 2}, 4]]))))


def test_every_cut_of_a_network_runs() -> None:
    """All cuts between two nodes, without processes: pieces give what the module gives, gradients too."""
    for name, case in CASES.items():
        torch.manual_seed(1)
        module = case.make()
        inputs = case.inputs(4)
        trace = pw.trace(module, inputs, repeats=1)
        names = [node["name"] for node in trace.nodes]
        for at in range(1, len(names)):
            try:
                divided = cut(trace.folded, [names[:at], names[at:]])
            except pw.PipewrightError as error:
                assert "nothing crosses" in str(error), f"{name} before {names[at]}: {error}"
                continue
            assert difference(module, divided, inputs) < 1e-5, f"{name} before {names[at]}"


def test_results_are_the_module_s() -> None:
    torch.manual_seed(0)
    module, x = Twice(), torch.randn(3, 4)
    trace = pw.trace(module, (x,))
    divided = cut(trace.folded, [["first"], ["second"]])
    pieces = [divided.piece(stage).module for stage in range(2)]
    got = pieces[1](*pieces[0](x))
    mean = module.mean.clone()
    module.mean.zero_()
    want = module(x)
    assert len(got) == 3 and all(map(torch.equal, got, want))
    assert torch.equal(mean, module.mean) and mean.abs().sum() > 0


class Noise(nn.Module):
    """Random numbers that two layers read."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(4)
        return self.b(self.a(x) + noise) + noise


class Frozen(nn.Module):
    """A layer without gradients before the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.a.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x)))


class Shared(nn.Module):
    """A batch norm that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.norm(self.a(x)))


@pytest.mark.parametrize(
    ("module", "before", "words"),
    [
        (Noise(), "b", "Noise: random numbers of `rand` are read on stages [0, 1]"),
        (Frozen(), "b", "Frozen.a: its value crosses to another stage and has no gradient"),
        (Frozen(), "c", None),
        (
            Shared(),
            "norm.batch_norm_2",
            "each of which would have its own; cut so that one stage has it",
        ),
    ],
)
def test_what_cannot_cross_is_refused(module: nn.Module, before: str, words: str | None) -> None:
    trace = pw.trace(module, (torch.randn(2, 4),))
    names = [node["name"] for node in trace.nodes]
    at = names.index(before)
    if words is None:
        assert cut(trace.folded, [names[:at], names[at:]]).stages == 2
        return
    with pytest.raises(pw.PipewrightError) as error:
        cut(trace.folded, [names[:at], names[at:]])
    assert words in str(error.value)


def test_a_plan_of_another_module_is_refused() -> None:
    trace = pw.trace(Frozen(), (torch.randn(2, 4),))
    with pytest.raises(pw.PipewrightError, match="only one of them has `head`"):
        cut(trace.folded, [["a", "b"], ["c", "head"]])


def test_ranks_are_told_what_does_not_fit(tmp_path: Path) -> None:
    told = run_ranks(2, HERE / "refused.py", str(tmp_path))
    for text in told:
        lines = [line.removeprefix("error ") for line in text.splitlines() if line.startswith("error ")]
        expected = [
            "the plan is for 4 ranks, torch.distributed has 2; start torchrun --nproc-per-node 4",
            "no cluster is called `moon`",
            "step got 3 samples of `x`, the plan has 16: 4 micro-batches of 4",
            "step got 2 inputs, SkipMlp was traced with 1",
            "step got torch.float32 [15] for a sample of `x`, the module was traced with torch.float32 [16]",
            "rank=7, but this process is rank",
            "fsdp=True divides parameters among replicas, and the plan has one: plan with replicas=2",
            "fsdp=True wants backward passes as a whole, and zb-h1 divides them: plan with schedule=1f1b",
        ]
        assert len(lines) == len(expected), text
        assert all(word in line for word, line in zip(expected, lines, strict=True)), text


def test_without_torchrun_one_is_told_so() -> None:
    trace = pw.trace(CASES["mlp"].make(), CASES["mlp"].inputs(4))
    with pytest.raises(pw.PipewrightError, match="torch.distributed is not initialised"):
        trace.plan(ranks=2, stages=2).pipeline(loss_fn=lambda output, target: output)
