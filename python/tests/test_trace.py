"""Traces: what they say of a module, and which modules they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import networks
import pipewright as pw
from networks import CASES, loss_fn
from pipewright._measure import Clock
from pipewright._runner import run
from pipewright._within import Within


def traced(name: str, **options: Any) -> pw.Trace:
    """A trace of a network of the tests."""
    torch.manual_seed(0)
    case = CASES[name]
    return pw.trace(case.make(), case.inputs(4), **options)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_has_all_nodes(name: str, tmp_path: Path) -> None:
    trace = traced(name)
    file = tmp_path / "model.graph.json"
    trace.save(file)
    nodes = json.loads(file.read_text())["nodes"]
    assert all(node["forward_ns"] > 0 for node in nodes)
    run(["plan", "--model", file, "--stages", "2", "--ranks", "2", "-o", tmp_path / "plan.json"])
    plan = pw.Plan.load(tmp_path / "plan.json", trace)
    assert sorted(sum(plan.stages, [])) == sorted(node["name"] for node in nodes)


def test_names_are_the_modules() -> None:
    names = [node["name"] for node in traced("gpt").nodes]
    assert names[:3] == ["tokens", "positions", "add"]
    assert {"blocks.0.qkv", "blocks.2.down", "blocks.1.scaled_dot_product_attention", "head"} <= set(names)


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_what_eager_keeps(name: str) -> None:
    trace = traced(name)
    kept = {x for node in trace.nodes for x in node["keeps"]}
    told = sum(node["saved_bytes"] + node["output_bytes"] * (node["name"] in kept) for node in trace.nodes)
    own = {x.untyped_storage().data_ptr() for x in trace.module.state_dict().values()}
    real: dict[int, int] = {}
    alive = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            real[storage.data_ptr()] = storage.nbytes()
            alive.append(x)
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        alive.append(trace.module(*trace.args))
    assert told == sum(real.values())


def test_nothing_is_left_behind() -> None:
    case = CASES["conv"]
    module = case.make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    inputs = case.inputs(4)
    state = torch.get_rng_state()
    pw.trace(module, inputs, loss=loss_fn, target=torch.zeros(4, dtype=torch.long))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(x.grad is None for x in module.parameters())


def test_a_loss_counts_to_the_last_node() -> None:
    bare, trace = traced("gpt"), traced("gpt", loss=loss_fn, target=torch.zeros(4, 16, dtype=torch.long))
    assert trace.nodes[-1]["saved_bytes"] > bare.nodes[-1]["saved_bytes"]
    assert trace.step > 0 and trace.spread >= 0
    # What nodes take is what the step takes: forward, backward, gradients added to those that are there.
    times = ("forward_ns", "input_gradient_ns", "weight_gradient_ns")
    nodes = sum(node[time] for node in trace.nodes for time in times)
    assert abs(nodes - trace.step * 1e9) <= 3 * len(trace.nodes)


class Ticks(Clock):
    """Each look is a nanosecond later."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.ticks = 0

    def now(self) -> int:
        self.ticks += 1
        return self.ticks


def backward_functions(value: torch.Tensor) -> int:
    """How many functions autograd runs for a value; that it adds to a parameter's gradient is none."""
    seen, stack = set(), [value.grad_fn]
    while stack:
        at = stack.pop()
        if at is not None and at not in seen and not at.name().endswith("AccumulateGrad"):
            seen.add(at)
            stack += [x for x, _ in at.next_functions]
    return len(seen)


@pytest.mark.parametrize("name", CASES)
def test_each_computation_has_its_part_of_a_step(name: str) -> None:
    trace = traced(name, repeats=0)
    loss = lambda output: output.sum()
    within = Within(trace.folded, Ticks(), loss, ())
    for _ in range(2):
        within.step()
    computations, times = trace.folded.computations, within.times()
    forward = [times[x.node][0] for x in computations]
    assert forward == [1] * (len(forward) - 1) + [2], "the last one has the loss"
    assert all((times[x.node][1] > 0) == x.trained for x in computations)
    # As the module has them; the graph has no change in place, which may cost one more.
    functions = backward_functions(loss(trace.module(*trace.args)))
    assert sum(backward for _, backward in times.values()) == functions


def test_the_fixture_of_core_is_such_a_file() -> None:
    path = Path(__file__).parents[2] / "tests/data/profiles/pytorch/gpt.graph.json"
    fixture = json.loads(path.read_text())
    torch.manual_seed(0)
    trace = pw.trace(networks.Gpt(2, 64), CASES["gpt"].inputs(4))
    times = {"forward_ns", "input_gradient_ns", "weight_gradient_ns", "saved_bytes"}
    plain = lambda nodes: [{k: v for k, v in node.items() if k not in times} for node in nodes]
    assert plain(trace.nodes) == plain(fixture["nodes"])


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(pw.PipewrightError, match="device='moon': .*leave it out"):
        traced("mlp", device="moon")


class Branches(nn.Module):
    """Control flow that depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


class Changes(nn.Module):
    """A part of a value is changed, and the whole is read."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y[:, 0].mul_(2)
        return y.sum(1)


class Pairs(nn.Module):
    """A result that is no tensor."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": x}


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Branches(), ["Branches: torch.export does not get through", "torch.where"]),
        (Changes(), ["Changes: `mul_` changes a value in place", "y = f(x)"]),
        (Pairs(), ["Pairs: the result must be a tensor"]),
        (nn.Linear(3, 4), ["Linear: torch.export does not get through", "run on the example"]),
        (nn.ReLU(), ["ReLU: nothing in it is trained"]),
    ],
)
def test_what_cannot_be_traced_is_refused(module: nn.Module, words: list[str]) -> None:
    with pytest.raises(pw.PipewrightError) as error:
        pw.trace(module, (torch.randn(2, 4),))
    text = str(error.value)
    assert all(word in text for word in words) and "\n" not in text, text
