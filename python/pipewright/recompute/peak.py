"""Peak of live tensor bytes of a piece of Python, from the allocators' own events."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(step: Callable[[], object], device: str | torch.device = "cpu") -> int:
    """Most bytes that live at once while `step` runs, above the level before it.

    What `step` leaves behind, such as gradients, is counted.
    """
    device = torch.device(device)
    if device.type != "cpu":
        module = torch.get_device_module(device)
        module.synchronize(device)
        module.reset_peak_memory_stats(device)
        before = module.memory_allocated(device)
        step()
        module.synchronize(device)
        return int(module.max_memory_allocated(device) - before)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as done:
        step()
    level = peak = 0
    for event in _events(done):
        level += event["args"]["Bytes"]
        peak = max(peak, level)
    return peak


def _events(done: profile) -> Iterator[dict[str, Any]]:
    """Allocations on the CPU and their ends, as they followed each other."""
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        done.export_chrome_trace(path)
        events = json.loads(Path(path).read_text())["traceEvents"]
    finally:
        os.unlink(path)
    kept = [e for e in events if e["name"] == "[memory]" and e["args"]["Device Type"] == 0]
    # Python's sort is stable: events of one instant stay as the profiler wrote them.
    yield from sorted(kept, key=lambda event: float(event["ts"]))
