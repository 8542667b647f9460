"""Commands: what they print, and how they fail."""

import subprocess
import sys

import pytest

from pipewright import PipewrightError
from pipewright._runner import program, run


def test_a_command_prints() -> None:
    assert "dgx-a100" in run(["cluster"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--model", "vgg61"], "vgg16"),
        (["plan"], "--model"),
        (["show", "/nowhere/plan.json"], "/nowhere/plan.json"),
    ],
)
def test_a_failure_is_one_sentence(arguments: list[str], words: str) -> None:
    with pytest.raises(PipewrightError) as error:
        run(arguments)
    text = str(error.value)
    assert words in text and "\n" not in text and not text.startswith("error")


def test_the_module_is_the_program() -> None:
    words = [sys.executable, "-m", "pipewright"]
    done = subprocess.run([*words, "nowhere.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: nowhere.json")
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.split()[1][0].isdigit()


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEWRIGHT", "/nowhere/runner")
    with pytest.raises(PipewrightError, match="no such program"):
        program()
