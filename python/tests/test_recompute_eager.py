"""What `pw.recompute` has of eager besides the bits of a step: gradients that are None, hooks, smaller batches."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

import pipewright as pw
from recompute_networks import equal, gradients

QUICK: dict[str, Any] = {"moves": 2_000, "times": "estimated"}

pytestmark = pytest.mark.usefixtures("one_thread")


class Heads(nn.Module):
    """Two outputs, of which a loss may use one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x).relu()
        return self.first(h).flatten(1), self.second(h).transpose(1, 2)


def same(module: Heads, other: Heads) -> bool:
    """Whether gradients have the same bits.

    But for a sum over the gradient of a transposed output: torch 2.15 lays that out otherwise than eager, and adds it
    up in another order.
    """
    bias, reference = module.second.bias.grad, other.second.bias.grad
    if bias is not None and reference is not None:
        assert torch.allclose(bias, reference, rtol=1e-5, atol=1e-9)
        bias.copy_(reference)
    return equal(gradients(module), gradients(other))


@pytest.mark.parametrize("used", [[0], [1], [0, 1]])
@pytest.mark.parametrize("is_backend", [False, True])
def test_parameters_behind_an_unused_output_get_no_gradient(used: list[int], is_backend: bool) -> None:
    module, x = Heads(), torch.randn(4, 3, 8, 8)
    other = copy.deepcopy(module)
    f: Any = pw.recompute(module, budget=1.0, **QUICK)
    if is_backend:
        f = torch.compile(module, backend=pw.recompute_backend(budget=1.0, **QUICK), fullgraph=True, dynamic=False)
    for run in (f, other):
        for _ in range(2):
            outputs = run(x)
            torch.autograd.backward([outputs[at].square().mean() for at in used])
    without = [name for name, p in module.named_parameters() if p.grad is None]
    assert without == [name for name, p in other.named_parameters() if p.grad is None]
    assert bool(without) == (len(used) == 1)
    assert same(module, other)


def test_both_backward_passes_of_a_retained_graph_count() -> None:
    module, x = Heads(), torch.randn(4, 3, 8, 8)
    other = copy.deepcopy(module)
    for run in (pw.recompute(module, budget=1.0, **QUICK), other):
        first, second = run(x)
        first.square().mean().backward(retain_graph=True)
        second.square().mean().backward()
    assert same(module, other)


def test_a_smaller_batch_may_have_what_a_larger_one_had() -> None:
    layers = [layer for _ in range(8) for layer in (nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU())]
    module = nn.Sequential(*layers, nn.Linear(128, 10))
    f = pw.recompute(module, budget=0.5, **QUICK)
    most = f.trace(torch.randn(256, 128)).budget
    least = f.trace(torch.randn(16, 128))
    assert least.peak <= least.budget == most
    with pytest.raises(pw.PipewrightError, match=r"cannot be met: no sequence needs less than"):
        pw.recompute(module, torch.randn(16, 128), budget=0.5, **QUICK)


class Scaled(nn.Module):
    """A Python number as an argument, and one that the module counts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x: Tensor, scale: float = 1.0, counts: bool = False) -> Tensor:
        if counts:
            self.calls += 1
            scale = scale * self.calls
        loss: Tensor = (self.linear(x) * scale).sum()
        return loss


@pytest.mark.parametrize("name", ["kwargs['scale']", "args[1]", "module.calls"])
def test_a_number_that_varies_is_named(name: str) -> None:
    f, x = pw.recompute(Scaled(), budget=1.0, **QUICK), torch.randn(4, 8)
    with torch._dynamo.config.patch(recompile_limit=2), pytest.raises(pw.PipewrightError) as error:
        for call in range(3):
            if name == "module.calls":
                f(x, counts=True)
            elif name == "args[1]":
                f(x, 0.5 * call)
            else:
                f(x, scale=0.5 * call)
    assert str(error.value).startswith(f"`{name}` had more values than there may be plans"), error.value


def test_hooks_of_submodules_count_whenever_they_come() -> None:
    module, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)
    other = copy.deepcopy(module)
    f = pw.recompute(module, x, budget=1.0, **QUICK)
    found = []
    for run, owner in ((f, module), (other, other)):
        hook = owner[0].register_forward_hook(lambda _, __, result: result * 2)
        results = [run(x)]
        results[0].sum().backward()
        hook.remove()
        found.append([*results, *gradients(owner), run(x)])
    assert equal(*found)
    module[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(pw.PipewrightError, match=r"a submodule has a backward hook, .* use hooks of parameters$"):
        f(x)


@pytest.mark.parametrize("share", [0.1, 0.15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("budget", [1.0, 0.85])
def test_dropout_has_eagers_bits_in_every_precision(share: float, dtype: Any, budget: float) -> None:
    """Single precision rounds 1 / 0.85 otherwise than eager, half precision its digits."""
    layers = [layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(share))]
    module, x = nn.Sequential(*layers).to(dtype), torch.randn(512, 32).to(dtype)
    other = copy.deepcopy(module)
    found = []
    for run, owner in ((pw.recompute(module, budget=budget, **QUICK), module), (other, other)):
        torch.manual_seed(3)
        loss = run(x).float().square().mean()
        loss.backward()
        found.append([loss, *gradients(owner)])
    assert equal(*found)


def test_dropout_under_autocast_has_eagers_bits() -> None:
    module, x = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 8)), torch.randn(64, 32)
    other = copy.deepcopy(module)
    found = []
    for run, owner in ((pw.recompute(module, budget=1.0, **QUICK), module), (other, other)):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(x).float().square().mean()
        loss.backward()
        found.append([loss, *gradients(owner)])
    assert equal(*found)
