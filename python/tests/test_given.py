"""What a step is given: arguments by name, targets of every form; and what has no gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pipewright as pw
from conftest import HERE, results, run_ranks


def test_steps_take_arguments_and_targets_as_the_module_does() -> None:
    text = run_ranks(2, HERE / "given.py", "arguments")
    found = {name: result for name, _, result in results(text)}
    assert list(found) == ["names", "again", "scalar", "loss and logits", "tuple", "dictionary", "by name"], text
    assert all(x["loss"] < 1e-6 and x["gradients"] < 1e-6 for x in found.values()), found
    # Nothing is missing of the state, also of what the graph does not read.
    assert all("matched" in x.get("loaded", "matched") for x in found.values()), found
    expected = [
        "step got 3 inputs, Named was traced with 3: missing a required argument: 'shift'; give the same ones",
        "step got 2 inputs, Named was traced with 3: missing a required argument: 'shift'; give the same ones",
        "step got scale=2.0, which is a tensor in the trace; give a tensor",
        *(
            f"step got the target {x}, the plan has 16 samples: give a tensor with 16"
            for x in ("[4]", "[32]", "None", "[3]")
        ),
        "the plan has 16 samples: give a tensor with 16 rows, or a tuple or dictionary of such",
    ]
    # Every rank is told.
    for told in text:
        lines = [line.removeprefix("error ") for line in told.splitlines() if line.startswith("error ")]
        assert len(lines) == len(expected), told
        assert all(words in line for words, line in zip(expected, lines, strict=True)), told


def test_replicas_leave_without_gradient_what_has_none_on_any() -> None:
    found = results(run_ranks(2, HERE / "given.py", "replicas"))
    none = ["layers.c.bias", "layers.c.weight", "layers.frozen.bias", "layers.frozen.weight"]
    assert len(found) == 2 and all(x["none"] == none and x["kept"] == none for _, _, x in found), found


def test_a_tensor_alone_is_one_argument() -> None:
    module, x = nn.Linear(8, 4), torch.randn(2, 8)
    assert pw.trace(module, x, repeats=0).args == (x,)
    with pytest.raises(pw.PipewrightError):
        pw.trace(module, tuple(x), repeats=0)
