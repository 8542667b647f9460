"""Changes in place, of values and of buffers: pieces do what the module does, or say that they cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.nn import functional

import pipewright as pw
from changed import Forward, Net, difference
from conftest import HERE, run_ranks
from pipewright._cut import cut


def view_before(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    v = h.view(-1, 2, 4)
    h.relu_()
    return s.b(v.flatten(1))


def view_of_view(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    v = h.view(-1, 2, 4)[:, 0]
    h.mul_(2)
    w = v.t()
    h.add_(1)
    return s.b(h) + w.t()


def parts(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    p, q = h[:, :4], h[:, 4:]
    p.mul_(2)
    q.add_(1)
    return s.b(torch.cat([q, p], -1))


def copied_before(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    v = h.t().reshape(-1)
    h.relu_()
    return s.b(h) + v.view(8, -1).t()[:, :4]


def no_dropout(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    d = functional.dropout(h, 0.5, training=False)
    h.relu_()
    return s.b(d)


def promoted(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x).bfloat16()
    h += x
    h.mul_(2).sub_(x)
    return s.b(h.float())


def path_dropped(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    r = h.new_empty((h.shape[0], 1)).bernoulli_(0.5)
    r.div_(0.5)
    return s.b(x + h * r)


def other_names(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = functional.dropout(s.a(x), 0.5, inplace=True)
    h **= 2
    drawn = s.a(x)
    drawn.bernoulli_(0.3)
    return s.b(drawn.transpose_(0, 1).t() + h)


def noise(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    return s.b(h + torch.empty_like(h).normal_() + torch.empty_like(h).uniform_())


def without_gradient(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    with torch.no_grad():
        s.mean.lerp_(h.mean(0), 0.1)
        s.n.add_(1)
        shift = s.mean * 2
    return s.b(h - shift)


def only_updated(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    with torch.no_grad():
        s.mean.lerp_(h.mean(0), 0.1)
    return s.b(h)


def frozen_layers(s: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        s.n.add_(1)
        h = functional.batch_norm(functional.linear(x, s.a.weight), s.mean, torch.ones(8), training=True)
    return s.b(s.a(h) * s.n + s.mean)


def in_lower_precision(s: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        s.n.add_(1)
        h = s.a(x).relu_()
    return s.b(h.float() * s.n)


def norm_of_weight(s: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        s.mean.copy_(functional.normalize(s.a.weight.mv(s.mean + 1), dim=0))
    return s.b(s.a(x) * s.mean.clone())


def read_before(s: Net, x: torch.Tensor) -> torch.Tensor:
    k = s.n.clone()
    s.n.add_(1)
    return s.b(s.a(x) * k)


def one_by_the_other(s: Net, x: torch.Tensor) -> torch.Tensor:
    s.n.add_(1)
    h = s.b(s.a(x))
    with torch.no_grad():
        s.mean.lerp_(h.mean().expand(8), 1 / s.n)
    return h * 2


def counted(s: Net, x: torch.Tensor) -> torch.Tensor:
    s.n.add_(1)
    return s.b(torch.tanh(s.a(x) * s.n))


def together(s: Net, x: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([s.n, s.mean], 1)
    return s.b(s.a(x) * s.n + s.mean)


SAME = [
    view_before,
    view_of_view,
    parts,
    copied_before,
    no_dropout,
    promoted,
    path_dropped,
    other_names,
    noise,
    without_gradient,
    only_updated,
    frozen_layers,
    in_lower_precision,
    norm_of_weight,
    read_before,
    one_by_the_other,
    counted,
    together,
]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("forward", SAME)
def test_pieces_do_what_the_module_does(forward: Forward, again: bool) -> None:
    assert difference(forward, again=again) < 1e-6


def overlapping(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    p, q = h[:, :5], h[:, 3:]
    p.relu_()
    return s.b(torch.cat([p, q[:, :3]], -1))


def part_of_a_view(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    v = h.view(-1, 2, 4)
    v[:, 0].relu_()
    return s.b(h)


def part_of_no_dropout(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    functional.dropout(h, 0.5, training=False).relu_()
    return s.b(h)


def value_without_gradient(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    with torch.no_grad():
        h.clamp_(min=0)
    return s.b(h)


def data_of_value(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    h.detach().clamp_(min=0)
    return s.b(h)


def weight(s: Net, x: torch.Tensor) -> torch.Tensor:
    s.a.weight.data.clamp_(-0.1, 0.1)
    return s.b(s.a(x))


def embedding(s: Net, x: torch.Tensor) -> torch.Tensor:
    return s.b(functional.embedding(x.new_ones(4, dtype=torch.long), s.a.weight, max_norm=1.0))


def list_of_values(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    torch._foreach_mul_([h], 2)
    return s.b(h)


def lower_precision(s: Net, x: torch.Tensor) -> torch.Tensor:
    h = s.a(x)
    with torch.autocast("cpu", torch.bfloat16):
        h.relu_()
        y = s.b(h)
    return y.float()


def test_a_change_of_what_dropout_hands_on_is_seen_or_refused() -> None:
    module, x = Net(part_of_no_dropout), torch.randn(4, 8)
    try:
        trace = pw.trace(module, (x,), repeats=0)
    except pw.PipewrightError as error:
        # torch 2.8 exports a graph that does not see it.
        assert "`relu_` changes a value in place that is read in another way too" in str(error)
        return
    assert torch.equal(trace.folded.exported.graph(x), module(x))


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (overlapping, "`relu_` changes a value in place that is read in another way too"),
        (part_of_a_view, "`relu_` changes a value in place that is read in another way too"),
        (data_of_value, "`clamp_` changes a value in place that is read in another way too"),
        (value_without_gradient, "a value is changed in place under torch.no_grad or torch.autocast"),
        (lower_precision, "a value is changed in place under torch.no_grad or torch.autocast"),
        (weight, " reads or changes the `data` of a tensor, which torch.export loses"),
        (embedding, "`embedding_renorm_` changes the parameter `a.weight` in the forward pass"),
        (list_of_values, "`_foreach_mul_` changes a value in place and has no form that does not"),
    ],
)
def test_changes_that_cannot_be_are_refused(forward: Forward, words: str) -> None:
    module = Net(forward)
    before = module.a.weight.clone()
    with pytest.raises(pw.PipewrightError) as error:
        pw.trace(module, (torch.randn(4, 8),), repeats=0)
    text = str(error.value)
    assert words in text and text.startswith("Net") and "\n" not in text, text
    assert torch.equal(before, module.a.weight)


def drawn_without_gradient(s: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        mask = (torch.rand_like(x) > 0.5).float()
    h = s.a(x) * mask
    return s.b(h) * (1 - mask)[:, :4]


def old_on_another_stage(s: Net, x: torch.Tensor) -> torch.Tensor:
    k = s.n.clone()
    h = s.a(x) * s.n.add_(1)
    return s.b(h) * k


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (drawn_without_gradient, "Net: random numbers of `rand_like` are read on stages [0, 1]"),
        (old_on_another_stage, "Net: the buffer `n` changes and is read on stages [0, 1]"),
    ],
)
def test_what_stages_would_have_twice_is_refused(forward: Forward, words: str) -> None:
    trace = pw.trace(Net(forward), (torch.randn(4, 8),), repeats=0)
    names = [node["name"] for node in trace.nodes]
    at = names.index("b")
    with pytest.raises(pw.PipewrightError) as error:
        cut(trace.folded, [names[:at], names[at:]])
    assert words in str(error.value)


JOBS: list[list[Any]] = [
    ["aux", "1f1b", "", "none"],
    ["aux", "zb-v", "", "none"],
    ["aux", "interleaved", "", "none"],
    ["penalty", "zb-v", "", "none"],
    ["penalty", "1f1b", "", "none"],
    ["counter", "1f1b", "", "full"],
    ["counter", "1f1b", "", "none"],
    ["counter", "zb-v", "", "full"],
    ["counter", "zb-v", "", "none"],
    ["mlp", "zb-v", "freeze 2", "none"],
    ["mlp", "zb-v", "unfreeze 2", "none"],
    ["mlp", "zb-v", "freeze 4", "none"],
    ["mlp", "zb-v", "unfreeze 6", "none"],
    ["mlp", "zb-v", "freeze 0", "none"],
    ["mlp", "1f1b", "freeze 0", "none"],
]


def test_ranks_train_as_one() -> None:
    told = run_ranks(2, HERE / "changed_ranks.py", json.dumps(JOBS))
    lines = [line.removeprefix("result ") for text in told for line in text.splitlines() if line.startswith("result ")]
    found = [json.loads(line) for line in lines]
    assert len(found) == 2 * len(JOBS)
    assert all(off < 1e-6 for _, off in found), found
