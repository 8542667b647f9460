"""Links between ranks, measured as pipelines use them: the sender computes on while its message is on the way."""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from ._runner import PipewrightError, run

TURNS = 20
LARGE = 1 << 20
"""Values of the message by which bytes a second are found."""
BUSY = 0.006
"""Seconds for which a sender computes on: longer than the kernel lets another thread of its core wait."""


def cluster(base: str | os.PathLike[str] = "laptop") -> dict[str, Any]:
    """A preset's cluster, or a file's, with the hosts, memory and links of the ranks of torch.distributed.

    All ranks call it, and all get what rank 0 found: its share of memory, the link to another rank of its host,
    and the one to another host. A latency is what a message takes from the sender's call until a receiver that
    waits for it has it; between hosts, whose clocks differ, half of a round trip. Bytes a second are those of
    messages of 4 MiB. Where gloo's threads have no core to themselves, a rank computes nothing while it sends.

    Raises:
        PipewrightError: where torch.distributed has not been initialised or has one rank, and where there is no
            such preset.
    """
    if not dist.is_initialized() or dist.get_world_size() < 2:
        raise PipewrightError("links are measured between ranks: start torchrun with 2 or more, and init_process_group")
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    found: dict[str, Any] = json.loads(run(["cluster", base]))
    found |= {"nodes": len(set(hosts)), "devices_per_node": max(map(hosts.count, hosts))}
    found["device"]["memory"] = _memory() // (1 if _is_nccl() else hosts.count(hosts[0]))
    if not _is_nccl():
        found["blocking_sends"] = torch.get_num_threads() >= _cores() // hosts.count(hosts[0])
    ways = {
        "local": next((rank for rank, host in enumerate(hosts) if rank and host == hosts[0]), None),
        "network": next((rank for rank, host in enumerate(hosts) if host != hosts[0]), None),
    }
    for name, other in ways.items():
        if other is not None:
            found[name] = _link(other, same_host=name == "local")
    told = [found]
    dist.broadcast_object_list(told)
    return told[0]


def _is_nccl() -> bool:
    return bool(dist.get_backend() == "nccl")


def _memory() -> int:
    """Bytes of this rank's GPU, or of its host."""
    if _is_nccl():
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cores() -> int:
    """Cores of this host that its ranks have together."""
    own = set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (socket.gethostname(), own))
    return len(set[int]().union(*(cores for host, cores in found if host == socket.gethostname())))


def _link(other: int, same_host: bool) -> dict[str, Any]:
    small, large = (_usual(values, other, same_host) for values in (1, LARGE))
    return {"latency_ns": round(small * 1e9), "bytes_per_sec": 4 * LARGE / max(large - small, 1e-9)}


def _usual(values: int, other: int, same_host: bool) -> float:
    """Seconds that a message takes between rank 0 and another one, the median of both ways."""
    device = torch.device("cuda", torch.cuda.current_device()) if _is_nccl() else torch.device("cpu")
    message, moment = torch.zeros(values, device=device), torch.zeros(1, device=device, dtype=torch.float64)
    times = []
    for turn in range(TURNS):
        dist.barrier()
        if dist.get_rank() not in (0, other):
            continue
        pair = (0, other) if turn % 2 else (other, 0)
        times.append(_one_way(message, moment, pair) if same_host else _round_trip(message, other) / 2)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, times)
    return float(statistics.median(time for times in found for time in times if time > 0))


def _one_way(message: torch.Tensor, moment: torch.Tensor, pair: tuple[int, int]) -> float:
    """Seconds on the receiver's side, 0 on the sender's. Processes of a host have one clock."""
    sender, receiver = pair
    if dist.get_rank() == receiver:
        _received(message, sender)
        end = time.perf_counter()
        _received(moment, sender)
        return end - moment.item()
    # The receiver is ready, as it is where it waits for a message.
    _compute(message.device)
    begin = time.perf_counter()
    work = dist.isend(message, receiver)
    _compute(message.device)
    if work is not None:
        work.wait()
    moment.fill_(begin)
    dist.send(moment, receiver)
    return 0.0


def _round_trip(message: torch.Tensor, other: int) -> float:
    begin = time.perf_counter()
    for sender in (0, other):
        if dist.get_rank() == sender:
            dist.send(message, other if sender == 0 else 0)
        else:
            _received(message, sender)
    return time.perf_counter() - begin if dist.get_rank() == 0 else 0.0


def _received(message: torch.Tensor, sender: int) -> None:
    dist.recv(message, sender)
    if message.is_cuda:
        torch.cuda.synchronize()


def _compute(device: torch.device) -> None:
    """Keeps the core of this thread busy; a GPU sends beside its kernels."""
    if device.type != "cpu":
        return
    value = torch.ones(128, 128)
    end = time.perf_counter() + BUSY
    while time.perf_counter() < end:
        value = (value @ value).clamp_(0, 1)
