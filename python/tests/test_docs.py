"""Documents and examples: every block of Python runs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import pipewright as pw
from conftest import run_ranks
from pipewright._runner import program

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/pytorch.md").read_text(), re.S | re.M)


@pytest.fixture
def explorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program as it is installed, with a page where an installation has the explorer."""
    installed = tmp_path / "bin" / "pipewright"
    installed.parent.mkdir()
    try:
        os.link(os.path.realpath(program()), installed)
    except OSError:
        installed.write_bytes(Path(program()).read_bytes())
        installed.chmod(0o755)
    page = tmp_path / "share/pipewright/explorer"
    page.mkdir(parents=True)
    (page / "index.html").write_text("<head></head>")
    monkeypatch.setenv("PIPEWRIGHT", str(installed))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    return page


def test_the_explorer_opens_with_a_plan(explorer: Path) -> None:
    plan = pw.plan("mlp4", ranks=2)
    with plan.explore() as opened:
        assert opened.address.startswith("http://")
    (explorer / "index.html").unlink()
    with pytest.raises(pw.PipewrightError, match="the explorer is not in this program"):
        plan.explore()


def test_blocks_of_the_page_run(explorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if not block.startswith("# train.py"):
            exec(compile(block, "docs/pytorch.md", "exec"), names)
    assert "critical path" in capsys.readouterr().out
    assert len(names["names"]) == 2 and names["spans"]
    assert pw.Plan.load("plan.json").text == names["plan"].text


def test_the_page_s_script_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = (block for block in BLOCKS if block.startswith("# train.py"))
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    told = run_ranks(2, tmp_path / "train.py")
    assert "Sequential on 2 ranks, 4 stages, zb-v" in told[0]
    assert (tmp_path / "trace.json").exists()


def test_the_example_trains(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*words, str(ROOT / "python/examples/gpt_pipeline.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"step \d+: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 10 and losses[-1] < losses[0]
    sys.path.insert(0, str(ROOT / "python/examples"))
    from gpt import Gpt

    state = torch.load(tmp_path / "gpt.pt")
    Gpt(vocabulary=256, length=64, width=128, layers=4).load_state_dict(state)


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, and what it shows is something to read."""
    examples = ROOT / "python/examples"
    monkeypatch.syspath_prepend(str(examples))
    notebook = json.loads((examples / "plan.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        *body, last = ast.parse(cell).body
        if not isinstance(last, ast.Expr):
            exec(compile(cell, "plan.ipynb", "exec"), names)
            continue
        exec(compile(ast.Module(body, []), "plan.ipynb", "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), "plan.ipynb", "eval"), names))
    trace, plan, curve, report = shown
    assert re.fullmatch(r"Gpt: \d+ computations, [\d.,]+ parameters.* ms a step on cpu, .*", repr(trace)), repr(trace)
    for pictured in (plan, curve):
        assert "<svg" in pictured._repr_html_()
    assert "<table" in report._repr_html_()
    assert all(len(repr(one)) < 2000 for one in shown)
    assert all(p.grad is not None for p in names["model"].parameters())
