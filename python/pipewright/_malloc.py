"""Memory of the process: what is freed stays in it, as CUDA's allocator keeps what is freed on a device."""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
"""Numbers of glibc's `mallopt`."""


def keep_freed() -> bool:
    """Tells glibc to keep freed memory; whether it does.

    A training step allocates the same tensors again and again. What glibc gives back in between comes back as new
    pages, which the kernel clears: on virtual machines a tenth of a pass, and other passes of a pipeline than of a
    trace. Whoever has chosen the allocator or its settings keeps them.
    """
    chosen = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_")
    if any(x in os.environ for x in chosen) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return False
    settings = ((TRIM_THRESHOLD, 2**31 - 1), (TOP_PAD, 64 << 20), (MMAP_MAX, 0))
    return all([mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings])
