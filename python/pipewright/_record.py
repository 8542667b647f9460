"""Measured timelines of pipelines, in the format that the explorer and `pipewright calibrate` read."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ._measure import Clock, Moment

if TYPE_CHECKING:
    from ._pipeline import Pipeline
    from ._plan import Plan
    from ._split import Stage


@dataclass
class _Measured:
    step: int
    action: str | None
    """None of an optimizer's update."""
    start: Moment
    end: Moment


class _Recorder:
    """What a rank does while its pipeline is recorded."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.spans: list[_Measured] = []
        self.step = -1
        self._clock = Clock(pipeline.stages[0].device)
        dist.barrier(group=pipeline.ranks.group)
        self._begin = self._clock.now()
        self.origin = time.perf_counter_ns()

    @contextmanager
    def span(self, action: str | None) -> Iterator[None]:
        """Measures what is done inside."""
        start = self._clock.now()
        try:
            yield
        finally:
            self.spans.append(_Measured(self.step, action, start, self._clock.now()))

    def rows(self) -> list[tuple[int, str | None, int, int]]:
        """Step, action, and moments from the begin of the recording."""
        between, begin = self._clock.between, self._begin
        known = (x for x in self.spans if x.step >= 0)
        return [(x.step, x.action, between(begin, x.start), between(begin, x.end)) for x in known]

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Measures the methods of the stages, steps and updates, until the end."""
        pipeline = self.pipeline
        step = pipeline.step

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step += 1
            return step(*args, **kwargs)

        vars(pipeline)["step"] = counted
        for stage in pipeline.stages:
            self._wrap(stage)
        open_updates: list[Any] = []

        def before(*_: Any) -> None:
            update = self.span(None)
            update.__enter__()
            open_updates.append(update)

        def after(*_: Any) -> None:
            if open_updates:
                open_updates.pop().__exit__(None, None, None)

        hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for owner in (pipeline, *pipeline.stages):
                for name in ("step", "forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
                    owner.__dict__.pop(name, None)

    def _wrap(self, stage: Stage) -> None:
        forward, backward, weight = (
            stage.forward_one_chunk,
            stage.backward_one_chunk,
            stage.backward_weight_one_chunk,
        )
        at = stage.stage_index

        def on_forward(chunk: int, *args: Any, **kwargs: Any) -> Any:
            with self.span(f"{at}F{chunk}"):
                return forward(chunk, *args, **kwargs)

        def on_backward(chunk: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
            with self.span(f"{at}{'B' if full_backward else 'I'}{chunk}"):
                return backward(chunk, *args, full_backward=full_backward, **kwargs)

        def on_weight(chunk: int, *args: Any, **kwargs: Any) -> Any:
            with self.span(f"{at}W{chunk}"):
                return weight(chunk, *args, **kwargs)

        vars(stage).update(
            forward_one_chunk=on_forward, backward_one_chunk=on_backward, backward_weight_one_chunk=on_weight
        )


@contextmanager
def record(pipeline: Pipeline, path: str | os.PathLike[str]) -> Iterator[None]:
    """Writes the timeline of the steps inside, on rank 0, for the explorer and for `calibrate`.

    All ranks enter and leave. Actions have the names of the plan's schedule; an optimizer's update belongs to
    the step before it. Of replicas the first pipeline is written. On CUDA times are those of events.
    """
    recorder = _Recorder(pipeline)
    with recorder.attached():
        yield
    ranks = pipeline.ranks
    own = (socket.gethostname(), recorder.origin, recorder.rows())
    found: list[Any] = [None] * dist.get_world_size(ranks.group)
    dist.all_gather_object(found, own, group=ranks.group)
    if ranks.rank == 0:
        Path(path).write_text(_text(pipeline.plan, found))


def calibrate(trace: str | os.PathLike[str], plan: Plan) -> dict[str, Any]:
    """The plan's cluster with a recorded run's times: `module_trace.plan(cluster=calibrate(..))`.

    Raises:
        PipewrightError: where the trace is not one of this plan's runs.
    """
    return plan.calibrated(trace)


def _text(plan: Plan, found: list[Any]) -> str:
    events: list[dict[str, Any]] = []
    bounds: dict[int, tuple[int, int]] = {}
    (host, first, _), *_ = found
    for lane, (name, origin, rows) in enumerate(found):
        events.append({"ph": "M", "pid": lane, "name": "process_name", "args": {"name": f"lane {lane}"}})
        # One host has one clock; others begin together, behind a barrier.
        shift = origin - first if name == host else 0
        for step, action, start, end in rows:
            start, end = max(start + shift, 0), max(end + shift, 0)
            begin, last = bounds.get(step, (start, end))
            bounds[step] = min(begin, start), max(last, end)
            what = {"optimizer": lane} if action is None else {"action": action}
            events.append(
                {
                    "ph": "X",
                    "pid": lane,
                    "tid": 0,
                    "ts": start / 1000,
                    "dur": (end - start) / 1000,
                    "name": action or "optimizer",
                    "args": {"step": step, **what},
                }
            )
    steps = [{"number": n, "start": a, "end": b} for n, (a, b) in sorted(bounds.items())]
    header = {"version": 1, "model": plan.figures["model"], "arena": [0] * len(found), "steps": steps}
    rows = ",\n".join(map(json.dumps, events))
    return f'{{"traceEvents":[\n{rows}\n],"pipewright":{json.dumps(header)}}}\n'
