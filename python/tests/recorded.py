"""A rank of the tests whose steps are recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import pipewright as pw
from networks import CASES, loss_fn


def main() -> None:
    """Arguments: the folder, and how many steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    case = CASES["gpt"]
    torch.manual_seed(0)
    trace = pw.trace(case.make(), case.inputs(4))
    cluster = pw.cluster()
    plan = trace.plan(ranks=2, stages=4, schedule="zb-v", micro_batches=4, replicas=1, cluster=cluster)
    pipeline = plan.pipeline(loss_fn=loss_fn)
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.01)
    with pw.record(pipeline, folder / "trace.json"):
        for _ in range(steps):
            pipeline.step(*case.inputs(16), target=case.target(16))
            optimizer.step()
    if dist.get_rank() == 0:
        plan.save(folder / "plan.json")
        (folder / "cluster.json").write_text(json.dumps(cluster))
        (folder / "clean").write_text(pipeline.stages[0].forward_one_chunk.__qualname__)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
