"""Step time of a pipeline by torch.distributed.pipelining, one thread a rank, gloo.

Usage: python -m torch.distributed.run --nproc-per-node RANKS pipeline.py NETWORK MINI_BATCH MICRO_BATCHES STEPS OUT

Appends to OUT one line of JSON as step.py prints it; gloo prints its own words. Stages are runs of the network's modules, cut where the slowest stage
is fastest by times that the first rank measured; under 1F1B; a step is a user's: zero_grad, the
schedule's step, SGD with momentum 0.9.
"""

import itertools
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional as F

from networks import Gpt, build


class Tokens(nn.Module):
    """The embedding of a Gpt."""

    def __init__(self, gpt):
        super().__init__()
        self.tokens, self.positions = gpt.tokens, gpt.positions

    def forward(self, x):
        return self.tokens(x) + self.positions.weight[: x.shape[1]]


def modules(net):
    """The network as a list of modules, each taking what the one before gives."""
    if not isinstance(net, Gpt):
        return list(net)
    return [Tokens(net), *net.blocks, net.ln_f, nn.Sequential(net.head, nn.Flatten(0, 1))]


def seconds(module, x):
    """The fastest of five forward and backward passes."""
    x = x.detach().requires_grad_(x.is_floating_point())
    times = []
    for _ in range(5):
        start = time.perf_counter()
        y = module(x)
        y.backward(torch.ones_like(y))
        times.append(time.perf_counter() - start)
    return min(times)


def cuts(parts, x, stages):
    """Where stages begin, so that the slowest takes the least."""
    times = []
    for part in parts:
        # In place, a module would write into what it was given.
        times.append(seconds(nn.Sequential(nn.Identity(), part), x) if not in_place(part) else 0.0)
        with torch.no_grad():
            x = part(x.clone())
    bound = [0, *itertools.accumulate(times)]
    slowest = lambda at: max(bound[b] - bound[a] for a, b in zip([0, *at], [*at, len(parts)]))
    # A stage's input is a leaf, which nothing may change in place.
    begins = [at for at in range(1, len(parts)) if not in_place(parts[at])]
    return min(itertools.combinations(begins, stages - 1), key=slowest)


def in_place(module):
    return getattr(module, "inplace", False)


def main():
    name, batch, count, steps = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net, shape, classes, positions = build(name)
    parameters = sum(p.numel() for p in net.parameters())
    parts = modules(net)
    x = torch.randn(batch, *shape) if shape else torch.randint(classes, (batch, positions))
    target = torch.randint(classes, (batch * positions,))
    found = [cuts(parts, x[: batch // count], ranks) if rank == 0 else None]
    dist.broadcast_object_list(found)
    edges = [0, *found[0], len(parts)]
    mine = nn.Sequential(*parts[edges[rank] : edges[rank + 1]])
    stage = PipelineStage(mine, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, count, loss_fn=F.cross_entropy)
    optimizer = torch.optim.SGD(mine.parameters(), lr=1e-4, momentum=0.9)
    times = []
    for _ in range(steps + 3):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target if rank == ranks - 1 else None)
        optimizer.step()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - start))
    times = times[3:]
    if rank == 0:
        line = {"torch": torch.__version__, "parameters": parameters, "layout": "contiguous"}
        line |= {"median": statistics.median(times), "fastest": min(times), "slowest": max(times)}
        with open(sys.argv[5], "a") as out:
            print(json.dumps(line), file=out)
    dist.destroy_process_group()


main()
