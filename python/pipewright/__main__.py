"""The command `pipewright` as `python -m pipewright`."""

import os
import sys

from ._runner import PipewrightError, program


def main() -> None:
    """Becomes the program: signals and exit codes are its own."""
    try:
        path = program()
    except PipewrightError as error:
        sys.exit(f"error: {error}")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
