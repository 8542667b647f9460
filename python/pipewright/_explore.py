"""Explorer in the browser, as a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from ._runner import PipewrightError, program, sentence


class Explorer:
    """A running explorer; it ends with `close()`, at the end of a `with`, or with this process."""

    def __init__(self, plan: str, open_browser: bool) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name, "plan.json")
        path.write_text(plan)
        words = [program(), "explore", str(path), *([] if open_browser else ["--no-open"])]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self._folder.name
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if not first:
            error = self._process.communicate()[1]
            self._folder.cleanup()
            raise PipewrightError(sentence("explore", self._process.returncode, error))
        self.address = first.split()[-1]
        """Where the browser finds it, on this machine."""

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.address})"
