"""Training with `pw.recompute`: optimizers, autocast, hooks, DDP, shapes, evaluation."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import pipewright as pw  # noqa: E402
from conftest import run_ranks  # noqa: E402
from recompute_networks import NETWORKS, Gpt, equal, gradients, near  # noqa: E402

QUICK: dict[str, Any] = {"moves": 20_000, "times": "estimated"}

pytestmark = pytest.mark.usefixtures("one_thread")


def train(f: nn.Module, module: nn.Module, arguments: tuple[Tensor, ...], steps: int = 3, **more: Any) -> list[Tensor]:
    """Steps of AdamW; losses, then all parameters and buffers."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, **more)
    context = more.pop("context", nullcontext)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        with context():
            loss = f(*arguments)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [*losses, *(t.detach().clone() for t in module.state_dict().values())]


@pytest.mark.parametrize("name", ["gpt-dropout", "resnet"])
def test_three_steps_of_adamw_have_eagers_bits(name: str) -> None:
    module, arguments = NETWORKS[name]()
    other = copy.deepcopy(module)
    f = pw.recompute(module, budget=0.6, **QUICK)
    assert equal(train(f, module, arguments), train(other, other, arguments))
    assert f.report.repeated > 0


def test_a_torch_compile_backend_does_the_same() -> None:
    module, arguments = NETWORKS["gpt"]()
    other = copy.deepcopy(module)
    backend = pw.recompute_backend(budget=0.5, **QUICK)
    f = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
    assert equal(train(f, module, arguments), train(other, other, arguments))
    assert backend.report is not None and backend.report.repeated > 0


@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_autocast_has_eagers_bits(name: str) -> None:
    module, arguments = NETWORKS[name]()
    other = copy.deepcopy(module)
    f = pw.recompute(module, budget=0.7, **QUICK)
    results = []
    for run, owner in ((f, module), (other, other)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(*arguments)
        loss.backward()
        results.append([loss, *gradients(owner), *owner.buffers()])
    assert equal(*results)
    with torch.autocast("cpu", torch.bfloat16):
        report = f.measure(*arguments)
    assert near(report.measured_peak, report.peak)


def test_hooks_run_and_gradients_add_up() -> None:
    module, arguments = NETWORKS["gpt"]()
    f = pw.recompute(module, budget=0.5, **QUICK)
    seen: list[Tensor] = []
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(seen.append)
    f(*arguments).backward()
    once = gradients(module)
    assert len(seen) == len(once)
    f(*arguments).backward()
    assert equal(gradients(module), [2 * gradient for gradient in once])


def test_backward_runs_again_where_the_graph_is_retained() -> None:
    module, arguments = NETWORKS["gpt-dropout"]()
    f = pw.recompute(module, budget=0.5, **QUICK)
    loss = f(*arguments)
    loss.backward(retain_graph=True)
    once = gradients(module)
    module.zero_grad()
    loss.backward()
    assert equal(once, gradients(module))


def test_two_ranks_of_ddp_have_eagers_gradients() -> None:
    if not torch.distributed.is_gloo_available():
        pytest.skip("torch is built without gloo")
    told = run_ranks(2, Path(__file__).with_name("recompute_ranks.py"))
    assert all("same True" in text for text in told), told


def test_generators_go_on_as_in_eager() -> None:
    module, arguments = NETWORKS["gpt-dropout"]()
    f = pw.recompute(module, budget=0.5, **QUICK)
    after = []
    for run in (f, module):
        torch.manual_seed(5)
        run(*arguments).backward()
        after.append(torch.rand(3))
    assert equal([after[0]], [after[1]])


def test_each_set_of_shapes_has_a_plan() -> None:
    module, (x, y) = NETWORKS["gpt"]()
    f = pw.recompute(module, budget=0.5, **QUICK)
    first = f.trace(x, y)
    second = f.trace(x[:2], y[:2])
    assert f.reports == [first, second] and second.peak < first.peak
    f(x, y).backward()
    assert f.report is first and len(f.reports) == 2


def test_more_shapes_than_plans_are_refused() -> None:
    module, (x, y) = NETWORKS["vit"]()
    f = pw.recompute(module, budget=1.0, **QUICK)
    with torch._dynamo.config.patch(recompile_limit=1):
        f.trace(x, y)
        with pytest.raises(pw.PipewrightError, match="more sets of shapes than there may be plans; pad"):
            f.trace(x[:2], y[:2])


def test_a_copy_runs_its_own_module() -> None:
    module, arguments = NETWORKS["gpt"]()
    f = pw.recompute(module, budget=0.5, **QUICK)
    f.trace(*arguments)
    other = copy.deepcopy(f)
    other(*arguments).backward()
    assert gradients(module) == [] and len(gradients(other.module)) == len(list(module.parameters()))
    assert other.report == f.report


def test_tracing_runs_nothing() -> None:
    module, arguments = NETWORKS["resnet"]()
    before = copy.deepcopy(module.state_dict())
    state = torch.get_rng_state()
    pw.recompute(module, arguments, budget=0.7, **QUICK)
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in module.parameters())


def test_evaluation_plans_nothing() -> None:
    module, arguments = NETWORKS["resnet"]()
    f = pw.recompute(module, **QUICK).eval()
    with torch.no_grad():
        assert torch.equal(f(*arguments), module(*arguments))
    assert f.reports == []


def test_a_loss_outside_of_the_module_counts_its_gradient() -> None:
    module = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU())))
    x = torch.randn(512, 64)
    f = pw.recompute(module, (x,), budget=0.7, **QUICK)
    report = f.measure(x)
    assert near(report.measured_peak, report.peak)
    f(x).square().mean().backward()
    once = gradients(module)
    module.zero_grad()
    module(x).square().mean().backward()
    assert equal(once, gradients(module))


class Shared(nn.Module):
    """Tied weights, an input that needs a gradient, two outputs, arguments by name."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Gpt(layers=2)
        self.gpt.head.weight = self.gpt.tokens.weight

    def forward(self, x: Tensor, y: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
        loss = self.gpt(x, y) * scale.exp().sum()
        return {"loss": loss, "twice": (2 * loss).detach()}


def test_tied_weights_named_arguments_and_several_outputs() -> None:
    module = Shared()
    _, (x, y) = NETWORKS["gpt"]()
    scale = torch.randn(3, requires_grad=True)
    f = pw.recompute(module, (x, y), {"scale": scale}, budget=0.6, **QUICK)
    found = []
    for run in (f, module):
        module.zero_grad()
        scale.grad = None
        out = run(x, y, scale=scale)
        out["loss"].backward()
        found.append([out["loss"], out["twice"], scale.grad, *gradients(module)])
    assert equal(*found)
