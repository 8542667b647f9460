"""The page and the example of recomputation: every block of Python runs, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/pytorch-recompute.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)


def test_blocks_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    told = capsys.readouterr().out
    assert "no sequence below" in told
    assert "(10 %) cannot be met: no sequence needs less than" in told
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert names["f"].report.peak <= names["f"].report.budget


def test_the_example_trains_in_half(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "python/examples/fit_into_half.py")],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "without recomputation are the same" in done.stdout and "measured" in done.stdout
