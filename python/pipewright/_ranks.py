"""Ranks of a plan: pipelines side by side, and the parameters that several ranks hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ._runner import PipewrightError


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
        self.group = [dist.new_group(row) for row in rows][self.rank // lanes]
        self._replicas = [dist.new_group(column) for column in columns][self.lane] if replicas > 1 else None
        self._shared: list[tuple[nn.Parameter, dist.ProcessGroup]] = []

    def share(
        self,
        actions: Sequence[Sequence[str]],
        shared: Mapping[str, set[int]],
        own: Mapping[str, nn.Parameter],
    ) -> None:
        """Gives what several lanes hold the first one's values; from here on its gradients are summed over them."""
        lane_of = {
            int(action.rstrip("0123456789")[:-1]): lane
            for lane, row in enumerate(actions)
            for action in row
            if action
        }
        for name, stages in sorted(shared.items()):
            lanes = sorted({lane_of[stage] for stage in stages})
            groups = [dist.new_group([row[lane] for lane in lanes]) for row in self._rows]
            if name not in own or len(lanes) < 2:
                continue
            at = next(i for i, row in enumerate(self._rows) if self.rank in row)
            dist.broadcast(own[name].data, self._rows[at][lanes[0]], groups[at])
            self._shared.append((own[name], groups[at]))

    def set_aside(self) -> list[torch.Tensor | None]:
        """Takes away gradients of earlier steps, so that only new ones are summed."""
        before = []
        for parameter, _ in self._shared:
            before.append(parameter.grad)
            parameter.grad = None
        return before

    def reduce(self, before: list[torch.Tensor | None], own: list[nn.Parameter]) -> None:
        """Sums gradients of shared parameters, and averages those of replicas."""
        for (parameter, group), old in zip(self._shared, before, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
            if old is not None:
                parameter.grad += old
        if self._replicas is not None:
            for parameter in own:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad, group=self._replicas)
                    parameter.grad /= self.replicas

    def gather(self, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The values of all lanes."""
        found: list[dict[str, torch.Tensor]] = [{} for _ in self._rows[0]]
        dist.all_gather_object(found, own, group=self.group)
        return {name: value for part in found for name, value in part.items()}
