"""Memory of the process: freed memory stays, unless somebody has chosen otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

PAGES = """
import resource, torch
from pipewright._malloc import keep_freed
kept = keep_freed()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(8): faults()
print(kept, max(faults() for _ in range(5)))
"""


def pages(**environment: str) -> tuple[bool, int]:
    """Whether freed memory is kept, and new pages of a tensor of 64 MiB that was there before."""
    own = {name: value for name, value in os.environ.items() if "MALLOC" not in name.upper()}
    run = subprocess.run([sys.executable, "-c", PAGES], env=own | environment, capture_output=True, text=True, check=True)
    kept, found = run.stdout.split()
    return kept == "True", int(found)


def test_freed_memory_stays() -> None:
    kept, found = pages()
    # A page is 4 KiB: without it there are 16,384 of them, or 32 of huge pages.
    assert not kept or found < 16


def test_chosen_settings_stay() -> None:
    for name, value in (("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")):
        assert not pages(**{name: value})[0]
