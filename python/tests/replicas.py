"""A rank of two pipelines of two stages, each with half of the mini-batch, against one process with all of it.

`replicas.py [CASE SCHEDULE]`: with a schedule the replicas divide their parameters by FSDP2.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist

import pipewright as pw
from networks import CASES, loss_fn
from train import MICRO_BATCHES, SAMPLES, batches, eager


def main() -> None:
    """The last stage of the first pipeline prints a result."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    name, *sharded = sys.argv[1:] or ["gpt"]
    case = CASES[name]
    half = MICRO_BATCHES * SAMPLES
    data = batches(case, 4, 2 * half)
    # Replicas begin with the first one's weights.
    torch.manual_seed(3 + dist.get_rank() // 2)
    module = case.make()
    plan = pw.trace(module, case.inputs(SAMPLES)).plan(
        ranks=4,
        stages=4 if sharded == ["interleaved:2"] else 2,
        schedule=sharded[0] if sharded else "automatic",
        micro_batches=MICRO_BATCHES,
        replicas=2,
    )
    pipeline = plan.pipeline(loss_fn=loss_fn, fsdp=bool(sharded))
    own = list(pipeline.parameters())
    held = sum(x.to_local().numel() if sharded else x.numel() for x in own) / sum(x.numel() for x in own)
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.05, momentum=0.9)
    replica = dist.get_rank() // 2
    losses = []
    for inputs, target in data:
        optimizer.zero_grad()
        own = [x[replica * half : (replica + 1) * half] for x in (*inputs, target)]
        loss = pipeline.step(*own[:-1], target=own[-1])
        optimizer.step()
        value = torch.zeros(()) if loss is None else loss
        dist.all_reduce(value)
        losses.append(value.item() / 2)
    state = pipeline.state_dict()
    want, wanted = eager(case, data, 2 * MICRO_BATCHES)
    if dist.get_rank() == 1:
        result = {
            "losses": max(abs(a - b) / abs(b) for a, b in zip(losses, want, strict=True)),
            "held": held,
            "state": max((state[x] - wanted[x]).abs().max().item() for x in wanted),
        }
        print("result", json.dumps([name, {}, result]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
