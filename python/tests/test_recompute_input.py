"""Bad input of `pw.recompute`: one sentence each, what is wrong and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.autograd import Function  # noqa: E402

import pipewright as pw  # noqa: E402
from pipewright.recompute.budget import read_budget  # noqa: E402
from recompute_networks import equal, gradients  # noqa: E402

QUICK: dict[str, Any] = {"moves": 5_000, "times": "estimated"}


class Layers(nn.Module):
    """Linear layers with a function behind each."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.function(layer(x))
        return x.square().mean()


WRONG = [0, 0.0, 2.0, -1, -0.5, 1.5, "abc", "", "0", "101%", "8 XiB", "nan", True, None, [1]]


@pytest.mark.parametrize("budget", WRONG)
def test_budgets_that_are_none(budget: Any) -> None:
    with pytest.raises(pw.PipewrightError, match=r"^budget=.* is none: give a share such as 0.5 .* '8GiB'$"):
        read_budget(budget)


@pytest.mark.parametrize(
    ("budget", "size"),
    [
        *[(0.5, 50), ("50%", 50), (".25", 25), (1, 100), (1.0, 100)],
        *[(64, 64), ("1kB", 1000), ("1.5 KiB", 1536), ("2GiB", 2 << 30)],
    ],
)
def test_budgets_as_people_write_them(budget: Any, size: int) -> None:
    assert read_budget(budget).bytes(100) == size


def branch(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def number(x: Tensor) -> Tensor:
    return x * x.mean().item()


def selection(x: Tensor) -> Tensor:
    return x + x[x > 0].sum()


def printed(x: Tensor) -> Tensor:
    print(x)
    return x.relu()


@pytest.mark.parametrize("function", [branch, printed])
def test_what_is_not_one_graph(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(pw.PipewrightError) as error:
        pw.recompute(Layers(function), torch.randn(8, 32), **QUICK)
    message = str(error.value)
    assert message.startswith("the module cannot be traced as one graph: ")
    assert "test_recompute_input.py, line " in message and "torch.where" in message
    assert "\n" not in message


@pytest.mark.parametrize("function", [number, selection])
def test_values_as_numbers_and_sizes(function: Callable[[Tensor], Tensor]) -> None:
    """Later versions of torch trace some of it; then it has eager's bits."""
    module, x = Layers(function), torch.randn(8, 32)
    try:
        f = pw.recompute(module, x, budget=1.0, **QUICK)
    except pw.PipewrightError as error:
        assert "\n" not in str(error) and "fixed" in str(error) or "one graph" in str(error)
        return
    found = []
    for run in (f, module):
        module.zero_grad()
        run(x).backward()
        found.append(gradients(module))
    assert equal(*found)


def test_graph_breaks_of_a_backend_are_pieces_with_their_own_plans() -> None:
    backend = pw.recompute_backend(budget=1.0, **QUICK)
    module = nn.Linear(32, 32)
    f = torch.compile(lambda x: printed(module(x)).sin().sum(), backend=backend, dynamic=False)
    f(torch.randn(8, 32)).backward()
    assert len(backend.reports) > 1
    torch.compiler.reset()


def test_sparse_gradients_are_refused() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 8, sparse=True)

        def forward(self, x: Tensor) -> Tensor:
            loss: Tensor = self.table(x).sin().sum()
            return loss

    with pytest.raises(pw.PipewrightError, match=r"returns a sparse tensor; use dense ones"):
        pw.recompute(Sparse(), torch.arange(4), **QUICK)


class Doubled(Function):
    """A function whose backward pass is its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        result: Tensor = 2 * gradient * x.cos()
        return result


def doubled(x: Tensor) -> Tensor:
    return Doubled.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def in_place(x: Tensor) -> Tensor:
    x = x * 1.0
    x.add_(1).mul_(2)
    x[:, 0] = 0
    return x.sigmoid_()


@pytest.mark.parametrize("function", [doubled, in_place])
def test_custom_functions_and_writes_in_place_are_traced(function: Callable[[Tensor], Tensor]) -> None:
    module, x = Layers(function), torch.randn(64, 32)
    f = pw.recompute(module, budget=0.8, **QUICK)
    found = []
    for run in (f, module):
        module.zero_grad()
        run(x).backward()
        found.append(gradients(module))
    assert equal(*found)
    assert f.report.repeated > 0


def test_an_input_that_the_step_writes_is_computed_with_as_it_was() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.layers = nn.Linear(32, 32), Layers(torch.sin)
            self.scale = nn.Buffer(torch.ones(64, 32))

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x) + self.scale
            loss: Tensor = self.layers(h.sin().exp())
            self.scale.add_(1)
            return loss

    module, x = Counted(), torch.randn(64, 32)
    found = []
    for run in (module, pw.recompute(module, budget=0.8, **QUICK)):
        module.zero_grad()
        module.scale.fill_(1)
        run(x).backward()
        found.append([*gradients(module), module.scale.clone()])
    assert equal(*found)


def test_nothing_to_train() -> None:
    with pytest.raises(pw.PipewrightError, match="no argument or parameter requires a gradient"):
        pw.recompute(nn.ReLU(), torch.randn(3), **QUICK)


def test_arguments_that_are_none() -> None:
    with pytest.raises(pw.PipewrightError, match="is no torch.nn.Module: give the module to train"):
        pw.recompute(print, torch.randn(3))  # type: ignore[arg-type]
    with pytest.raises(pw.PipewrightError, match="two budgets: give one"):
        pw.recompute(nn.ReLU(), budget=0.5, fit="h100")
    with pytest.raises(pw.PipewrightError, match="times='guessed' is unknown"):
        pw.recompute(nn.ReLU(), times="guessed")  # type: ignore[arg-type]
    with pytest.raises(pw.PipewrightError, match="reserve='much' is no size"):
        pw.recompute(nn.ReLU(), fit="h100", reserve="much")
    with pytest.raises(pw.PipewrightError, match="nothing is planned yet"):
        _ = pw.recompute(nn.ReLU()).report
    with pytest.raises(pw.PipewrightError, match="no devices are called that"):
        pw.recompute(Layers(torch.sin), torch.randn(8, 32), fit="abacus", **QUICK)
    with pytest.raises(pw.PipewrightError, match="has no memory of its own here"):
        pw.recompute(Layers(torch.sin), torch.randn(8, 32), fit="cpu", **QUICK)
    with pytest.raises(pw.PipewrightError, match="seconds"):
        pw.recompute(Layers(torch.sin), torch.randn(64, 32), budget=0.8, seconds=-1.0)


def test_errors_of_the_module_are_told_as_such() -> None:
    f = pw.recompute(Layers(torch.sin), **QUICK)
    with pytest.raises(pw.PipewrightError, match=r"^the module fails with these arguments: RuntimeError.*line \d+\)$"):
        f(torch.randn(8, 31))


def test_pytorch_may_be_missing() -> None:
    code = "import sys; sys.modules['torch'] = None; import pipewright as pw; pw.recompute(None)"
    root = Path(pw.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("which is not installed: pip install 'pipewright[torch]'")
