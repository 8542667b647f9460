"""One rank of a step under DDP, with recomputation and in eager; prints whether gradients are the same."""

from __future__ import annotations

import copy

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

import pipewright as pw
from recompute_networks import Gpt, equal, gradients


def main() -> None:
    """Two steps on the rank's own batch, each followed by an all-reduce of gradients."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    module = Gpt(layers=2, dropout=0.1)
    other = copy.deepcopy(module)
    torch.manual_seed(rank)
    x, y = (torch.randint(0, 512, (2, 128)) for _ in range(2))
    found = []
    for step in (pw.recompute(module, budget=0.5, moves=20_000, times="estimated"), other):
        torch.manual_seed(10 + rank)
        parallel = DistributedDataParallel(step)
        for _ in range(2):
            parallel(x, y).backward()
        found.append(gradients(parallel))
    print("same", equal(*found), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
