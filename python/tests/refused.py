"""A rank of the tests that does what does not fit, and prints what it is told."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

import pipewright as pw
from networks import CASES, loss_fn


def told(work: Callable[[], object]) -> None:
    """Prints the error."""
    try:
        work()
    except pw.PipewrightError as error:
        print("error", error, flush=True)


def main() -> None:
    """All ranks do the same."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    case = CASES["mlp"]
    trace = pw.trace(case.make(), case.inputs(4))
    told(lambda: trace.plan(ranks=4, stages=4, schedule="1f1b", replicas=1).pipeline(loss_fn=loss_fn))
    told(lambda: trace.plan(cluster="moon"))
    plan = trace.plan(ranks=2, stages=2, micro_batches=4, replicas=1)
    pipeline = plan.pipeline(loss_fn=loss_fn)
    told(lambda: pipeline.step(*case.inputs(3), target=case.target(3)))
    told(lambda: pipeline.step(*case.inputs(16), *case.inputs(16), target=case.target(16)))
    told(lambda: pipeline.step(torch.randn(16, 15), target=case.target(16)))
    told(lambda: plan.pipeline(rank=7, loss_fn=loss_fn))
    told(lambda: plan.pipeline(loss_fn=loss_fn, fsdp=True))
    divided = trace.plan(ranks=4, stages=2, micro_batches=4, replicas=2, schedule="zb-h1")
    told(lambda: divided.pipeline(loss_fn=loss_fn, fsdp=True))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
