"""Bits, peaks and refusals of `pw.recompute` on five kinds of networks at three budgets."""

from __future__ import annotations

import copy
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import pipewright as pw  # noqa: E402
from pipewright.recompute.module import Recompute  # noqa: E402
from recompute_networks import NETWORKS, Case, equal, gradients, near  # noqa: E402

# 30 % is less than one convolution with its workspace takes there.
BELOW = {("resnet", 0.3), ("unet", 0.3)}


@cache
def network(name: str) -> Case:
    """A network and arguments, the same for every test."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return NETWORKS[name]()


def step(module: nn.Module, arguments: tuple[Tensor, ...]) -> list[Tensor]:
    """The loss of one step."""
    torch.manual_seed(1)
    loss: Tensor = module(*arguments)
    loss.backward()
    return [loss.detach()]


def state(module: nn.Module) -> list[Tensor]:
    """Gradients and buffers."""
    return [*gradients(module), *(buffer.clone() for buffer in module.buffers())]


@cache
def eager(name: str) -> tuple[list[Tensor], list[Tensor]]:
    """What eager computes: the loss; gradients and buffers. It repeats itself, or the test is void."""
    module, arguments = network(name)
    runs = []
    for _ in range(2):
        one = copy.deepcopy(module)
        runs.append((step(one, arguments), state(one)))
    assert equal(runs[0][0], runs[1][0]) and equal(runs[0][1], runs[1][1])
    return runs[0]


@pytest.mark.parametrize("budget", [0.7, 0.5, 0.3])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "gpt-dropout"])
def test_a_budget_is_kept_with_eagers_bits(name: str, budget: float) -> None:
    module, arguments = network(name)
    module = copy.deepcopy(module)

    def made() -> Recompute:
        return pw.recompute(module, arguments, budget=budget, moves=200_000, times="estimated")

    if (name, budget) in BELOW:
        with pytest.raises(pw.PipewrightError, match=r"cannot be met: no sequence needs less than .* %\); give"):
            made()
        return
    f = made()
    assert f.report.measured_peak is None, "the peak is told before anything ran"
    assert f.report.peak <= budget * f.report.peak_without
    loss = step(f, arguments)
    expected = eager(name)
    assert equal(loss, expected[0])
    assert equal(state(module), expected[1])
    report = f.measure(*arguments)
    assert report.measured_peak is not None and near(report.measured_peak, report.peak)
    assert report.measured_peak <= budget * report.peak_without
    assert equal(state(module), expected[1]), "measuring leaves nothing behind"


@pytest.mark.parametrize("budget", [0.7, 0.5, 0.35])
def test_dropout_draws_again_what_it_drew(budget: float) -> None:
    test_a_budget_is_kept_with_eagers_bits("gpt-dropout", budget)


@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_without_recomputation_the_peak_is_eagers(name: str) -> None:
    from pipewright.recompute.peak import peak_bytes

    module, arguments = network(name)
    module = copy.deepcopy(module)
    real = peak_bytes(lambda: step(module, arguments))
    module.zero_grad()
    report = pw.recompute(module, arguments, budget=1.0).measure(*arguments)
    assert report.repeated == 0
    assert near(real, report.peak_without)
    assert near(report.measured_peak, report.peak)
