"""A rank of the tests: trains by plans and compares with the same micro-batches in one process."""

from __future__ import annotations

import gc
import json
import random
import sys
from typing import Any

import torch
import torch.distributed as dist

import pipewright as pw
from networks import CASES, Case, loss_fn
from pipewright._split import Operation

MICRO_BATCHES, SAMPLES = 4, 4
TRACES: dict[Any, tuple[pw.Trace, dict[str, torch.Tensor]]] = {}


def batches(case: Case, steps: int, samples: int) -> list[tuple[tuple[torch.Tensor, ...], torch.Tensor]]:
    """The same on every rank."""
    torch.manual_seed(7)
    return [(case.inputs(samples), case.target(samples)) for _ in range(steps)]


def chunks(value: Any, samples: int, count: int) -> Any:
    """Micro-batches of what has samples."""
    is_batched = isinstance(value, torch.Tensor) and len(value) == samples
    return value.chunk(count) if is_batched else [value] * count


def eager(case: Case, data: Any, micro_batches: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and state of a training in one process."""
    torch.manual_seed(3)
    module = case.make()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, target in data:
        optimizer.zero_grad()
        total = 0.0
        parts = zip(*(chunks(x, len(target), micro_batches) for x in (*inputs, target)), strict=True)
        for *part, goal in parts:
            loss = loss_fn(module(*part), goal) / micro_batches
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses, module.state_dict()


def traced(case: Case) -> pw.Trace:
    """A network as it is before training; it is exported once."""
    if case.make not in TRACES:
        torch.manual_seed(3)
        module = case.make()
        start = {name: value.clone() for name, value in module.state_dict().items()}
        TRACES[case.make] = pw.trace(module, case.inputs(SAMPLES), repeats=0), start
    trace, start = TRACES[case.make]
    trace.module.load_state_dict(start)
    return trace


def drawn(trace: pw.Trace, seed: str) -> None:
    """Times that are the same on every machine, and other ones for every plan."""
    draw = random.Random(seed)
    for cost in trace.costs.values():
        cost.forward = draw.choice([1000, 1000, 1000, 2000, 5000, 20000])
        cost.input_gradient = cost.forward * draw.choice([1, 1, 1, 4])
        cost.weight_gradient = cost.forward * draw.choice([1, 1, 1, 4])


def pipelined(case: Case, data: Any, options: dict[str, Any]) -> tuple[list[float], dict[str, torch.Tensor], pw.Plan]:
    """The same by a plan; losses where the last stage is."""
    trace = traced(case)
    drawn(trace, str(options))
    plan = trace.plan(micro_batches=MICRO_BATCHES, **options)
    pipeline = plan.pipeline(loss_fn=loss_fn)
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, target in data:
        optimizer.zero_grad()
        loss = pipeline.step(*inputs, target=target)
        optimizer.step()
        if loss is not None:
            losses.append(loss.item())
    return losses, pipeline.state_dict(), plan


def compare(name: str, options: dict[str, Any], steps: int) -> dict[str, Any]:
    """Largest differences from eager training."""
    case = CASES[name]
    data = batches(case, steps, MICRO_BATCHES * SAMPLES)
    losses, state, plan = pipelined(case, data, options)
    result: dict[str, Any] = {"stages": len(plan.stages), "schedule": plan.schedule, "crosses": None}
    # Nothing of the graphs stays behind.
    gc.collect()
    assert not any(isinstance(x, Operation) for x in gc.get_objects())
    if losses:
        want, wanted = eager(case, data, MICRO_BATCHES)
        result["losses"] = max(abs(a - b) / abs(b) for a, b in zip(losses, want, strict=True))
        result["moved"] = abs(want[0] - want[-1])
        names = [x for x in wanted if x in state]
        result["missing"] = sorted(set(wanted) - set(state))
        result["state"] = max((state[x].double() - wanted[x].double()).abs().max().item() for x in names)
    return result


def main() -> None:
    """Arguments: a JSON list of [network, options, steps]; the rank with losses prints a line for each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name, options, steps in json.loads(sys.argv[1]):
        try:
            result = compare(name, options, steps)
        except pw.PipewrightError as error:
            result = {"error": str(error)}
        if "losses" in result or ("error" in result and dist.get_rank() == 0):
            print("result", json.dumps([name, options, result]), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
