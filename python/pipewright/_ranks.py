"""Ranks of a plan: pipelines side by side, and the parameters that several ranks hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ._runner import PipewrightError


def stage_of(action: str) -> int:
    """1 of `1F0`."""
    return int(action.rstrip("0123456789")[:-1])


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor that ranks may have divided, with the parts of all of them."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _saved(value: Any) -> Any:
    """A value of a state as it is saved."""
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _own(value: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that ranks may have divided."""
    return value.to_local() if isinstance(value, DTensor) else value


def _group(ranks: list[int]) -> dist.ProcessGroup:
    """A group of these ranks, made by all; newer versions of torch say that it may be something else elsewhere."""
    made: Any = dist.new_group(ranks)
    group: dist.ProcessGroup = made
    return group


class Ranks:
    """This rank's place: lane `rank % lanes` of pipeline `rank // lanes`."""

    def __init__(self, lanes: int, replicas: int, rank: int | None) -> None:
        world = dist.get_world_size()
        if world != lanes * replicas:
            raise PipewrightError(
                f"the plan is for {lanes * replicas} ranks, torch.distributed has {world}; start "
                f"torchrun --nproc-per-node {lanes * replicas}, or plan again with ranks={world}"
            )
        self.rank = dist.get_rank()
        if rank is not None and rank != self.rank:
            raise PipewrightError(f"rank={rank}, but this process is rank {self.rank} of torch.distributed")
        self.replicas = replicas
        self.lane = self.rank % lanes
        # Every rank makes every group, in one order.
        rows = [list(range(r * lanes, (r + 1) * lanes)) for r in range(replicas)]
        columns = [list(range(lane, world, lanes)) for lane in range(lanes)]
        self._rows = rows
        self.group = [_group(row) for row in rows][self.rank // lanes]
        self._replicas = [_group(column) for column in columns][self.lane] if replicas > 1 else None
        # Names of parameters, whose gradients are summed by a group and divided by a number.
        self._sums: list[tuple[str, dist.ProcessGroup, int]] = []

    def hold(
        self,
        actions: Sequence[Sequence[str]],
        stages: Mapping[str, set[int]],
        own: Mapping[str, nn.Parameter],
        average: bool,
    ) -> None:
        """Gives parameters of several ranks the first one's values; from here on their gradients are summed.

        `stages` are those that read a name, `own` this rank's parameters. Gradients of replicas are averaged where
        nothing else does so.
        """
        lane_of = {stage_of(action): lane for lane, row in enumerate(actions) for action in row if action}
        row = self._rows[self.rank // len(self._rows[0])]
        for name, readers in sorted(stages.items()):
            lanes = sorted({lane_of[stage] for stage in readers})
            if len(lanes) > 1:
                # Every rank makes every group.
                groups = [_group([ranks[lane] for lane in lanes]) for ranks in self._rows]
                if name in own:
                    group = groups[self.rank // len(row)]
                    dist.broadcast(own[name].data, row[lanes[0]], group)
                    self._sums.append((name, group, 1))
        if self._replicas is not None:
            for name, parameter in own.items():
                dist.broadcast(parameter.data, self.lane, self._replicas)
                if average:
                    self._sums.append((name, self._replicas, self.replicas))

    def shard(self, module: nn.Module) -> None:
        """Has the replicas divide a stage's parameters."""
        assert self._replicas is not None
        kind = next((parameter.device.type for parameter in module.parameters()), None)
        if kind is not None:
            sharded = fully_shard(module, mesh=DeviceMesh.from_group(self._replicas, kind))
            # torch 2.8 asks for an average of what ranks have, and gloo, which has none, gives the sum.
            sharded.set_force_sum_reduction_for_comms(dist.get_backend(self._replicas) == "gloo")

    def set_aside(self, own: Mapping[str, nn.Parameter]) -> dict[nn.Parameter, torch.Tensor]:
        """Takes away gradients of earlier steps, so that only new ones are summed; `own` are this rank's parameters."""
        before = {}
        for parameter in (own[name] for name, _, _ in self._sums):
            if parameter.grad is not None:
                before[parameter] = parameter.grad
                parameter.grad = None
        return before

    def reduce(self, own: Mapping[str, nn.Parameter], before: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Sums gradients over the ranks that hold a parameter, and averages those of replicas.

        What has a gradient on none of them gets none: optimizers would take zeros for one and decay it.
        """
        for group, sums in groupby(self._sums, lambda x: x[1]):
            held = [(own[name], count) for name, _, count in sums]
            some = [x.grad is not None for x, _ in held]
            found = torch.tensor(some, dtype=torch.int32, device=held[0][0].device)
            dist.all_reduce(found, dist.ReduceOp.MAX, group)
            for (parameter, count), is_found in zip(held, found.tolist(), strict=True):
                if not is_found:
                    continue
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                # Parts are divided alike on all lanes, for replicas divide them.
                dist.all_reduce(_own(parameter.grad), group=group)
                parameter.grad /= count
        for parameter, old in before.items():
            parameter.grad = old if parameter.grad is None else parameter.grad.add_(old)

    def gather(self, own: dict[str, torch.Tensor], module: nn.Module) -> dict[str, Any]:
        """The state of a module: what lanes have of it, and its own values where the graph reads none."""
        found: list[dict[str, torch.Tensor]] = [{} for _ in self._rows[0]]
        dist.all_gather_object(found, own, group=self.group)
        read = {name: value for part in found for name, value in part.items()}
        wanted = module.state_dict(keep_vars=True)
        # A parameter of several names has one of them in the graph.
        names: dict[int, str] = {}
        for name, value in wanted.items():
            if name in read:
                names.setdefault(id(value), name)
        return {x: read[names[id(value)]] if id(value) in names else _saved(value) for x, value in wanted.items()}
