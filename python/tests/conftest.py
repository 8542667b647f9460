"""What tests share: ranks as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def pytest_configure() -> None:
    """All processes share few cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums of one thread are the same every time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


def run_ranks(count: int, script: Path, *args: str) -> list[str]:
    """What each rank prints; a rank that fails ends the others."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), *args],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        told = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(told)
    return told


def results(told: list[str]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Lines `result ..` of train.py."""
    lines = [line for text in told for line in text.splitlines()]
    return [json.loads(line.removeprefix("result ")) for line in lines if line.startswith("result ")]


@pytest.fixture(autouse=True, scope="session")
def _threads() -> None:
    try:
        import torch
    except ModuleNotFoundError:
        pytest.skip("torch is not installed")
    torch.set_num_threads(1)
