"""Runs of the command `pipewright`, by which everything here is done."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


class PipewrightError(Exception):
    """What went wrong, where, and what to do: one sentence."""


def program() -> str:
    """The path of the program.

    `PIPEWRIGHT` names another one, such as a runner that was built with MPI.

    Raises:
        PipewrightError: where there is none.
    """
    named = os.environ.get("PIPEWRIGHT")
    if named:
        if shutil.which(named) is None:
            raise PipewrightError(f"PIPEWRIGHT={named}: there is no such program; unset it, or name one")
        return named
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    folders = [Path(sysconfig.get_path("scripts", scheme)) for scheme in schemes]
    # Beside the interpreter, and beside the package where pip was told another target.
    folders += [Path(sys.executable).parent, Path(__file__).parents[1] / "bin"]
    for folder in folders:
        path = folder / "pipewright"
        if path.is_file():
            return str(path)
    raise PipewrightError(
        f"the program `pipewright` is not in {folders[0]}: install the package again, or name it by PIPEWRIGHT=PATH"
    )


def run(arguments: Sequence[str | os.PathLike[str]], input: str | None = None) -> str:
    """Runs a command and gives what it prints.

    Its notes and warnings go where those of this process go.

    Raises:
        PipewrightError: with the command's own sentence.
    """
    words = [program(), *(os.fspath(word) for word in arguments)]
    done = subprocess.run(words, input=input, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        sys.stderr.write(done.stderr)
        return done.stdout
    raise PipewrightError(sentence(str(arguments[0]), done.returncode, done.stderr))


def sentence(command: str, code: int, told: str) -> str:
    """What a command says of its error; clap adds usage below, which is of no use here."""
    lines = told.strip().splitlines()
    for at, line in enumerate(lines):
        if line.startswith("error: "):
            rest = lines[at + 1 :]
            end = next((i for i, text in enumerate(rest) if not text.strip()), len(rest))
            words = [line.removeprefix("error: "), *(text.strip() for text in rest[:end])]
            return " ".join(words)
    return f"pipewright {command}: exit code {code}" + (f": {lines[-1]}" if lines else "")
