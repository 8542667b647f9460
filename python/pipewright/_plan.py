"""Plans: made, read, shown, explored, and given to torch.distributed.pipelining."""

from __future__ import annotations

import csv
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _timeline
from ._explore import Explorer
from ._runner import PipewrightError, run
from ._timeline import Span

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ._pipeline import LossFunction, Pipeline
    from ._trace import Trace


class Plan:
    """A plan file, and the trace that it was made of where there is one."""

    def __init__(self, text: str, trace: Trace | None = None) -> None:
        self.text = text
        self.trace = trace
        self._values: dict[str, Any] = json.loads(text)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trace: Trace | None = None) -> Plan:
        """Reads a plan and checks it. To run it, give the trace of its module.

        Raises:
            PipewrightError: where the file is no plan, or is broken.
        """
        run(["check", path])
        return cls(Path(path).read_text(), trace)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `plan.json`, as `pipewright plan -o` does."""
        Path(path).write_text(self.text)

    @contextmanager
    def file(self) -> Iterator[str]:
        """The plan as a file, for commands."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "plan.json")
            self.save(path)
            yield str(path)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """What `pipewright show --json` says: docs/json.md lists the keys."""
        with self.file() as path:
            found: dict[str, Any] = json.loads(run(["show", path, "--json"]))
        return found

    def show(self) -> None:
        """Prints stages, schedule, and why lanes are idle."""
        with self.file() as path:
            print(run(["show", path]), end="")

    def explore(self, open_browser: bool = True) -> Explorer:
        """Opens the explorer with this plan; it stays until it is closed.

        Raises:
            PipewrightError: where the installed program has no explorer.
        """
        return Explorer(self.text, open_browser)

    @cached_property
    def timeline(self) -> list[Span]:
        """The predicted step, by rank and time."""
        with self.file() as path:
            out = Path(path).with_name("trace.json")
            run(["simulate", path, "-o", out])
            return _timeline.read(out.read_text())

    @cached_property
    def actions(self) -> list[list[str]]:
        """The order of actions of each rank, as the cells of PyTorch's CSV."""
        with self.file() as path:
            text = run(["export", path, "--format", "pytorch-csv"])
        return [row for row in csv.reader(text.splitlines()) if row]

    @property
    def micro_batches(self) -> int:
        """Parts of a replica's mini-batch."""
        return int(self._values["micro_batches"])

    @property
    def mini_batch(self) -> int:
        """Samples of a step."""
        return int(self._values["mini_batch"])

    @property
    def replicas(self) -> int:
        """Pipelines side by side."""
        return int(self._values.get("data_parallel", {}).get("replicas", 1))

    @property
    def tensor(self) -> int:
        """Ranks that divide the work of a lane."""
        return int(self._values.get("tensor", 1))

    @property
    def recomputed(self) -> set[int]:
        """Stages that compute activations again in the backward pass."""
        return {at for at, sequence in enumerate(self._values.get("recompute") or []) if sequence}

    def calibrated(self, trace: str | os.PathLike[str]) -> dict[str, Any]:
        """The plan's cluster with the times of a measured trace, to plan with: `cluster=..`.

        Raises:
            PipewrightError: where the trace is not one of this plan's runs.
        """
        with self.file() as path:
            out = Path(path).with_name("cluster.json")
            run(["--quiet", "calibrate", trace, "--plan", path, "-o", out])
            found: dict[str, Any] = json.loads(out.read_text())
        return found

    def check_schedule(self) -> None:
        """Refuses what torch.distributed.pipelining cannot run.

        Raises:
            PipewrightError: for a stage on two ranks, passes that overlap, and weights of several versions.
        """
        overlaps = any("OVERLAP" in action for row in self.actions for action in row)
        stages = [{x.rstrip("0123456789")[:-1] for x in row if x and "OVERLAP" not in x} for row in self.actions]
        twice = sum(map(len, stages)) != len(set().union(*stages))
        name = self.schedule
        if overlaps or twice or name.startswith("pipedream"):
            why = "runs a stage on two ranks" if twice else "overlaps forward and backward passes"
            why = "keeps several versions of weights" if name.startswith("pipedream") else why
            raise PipewrightError(
                f"the schedule {name} {why}, which torch.distributed.pipelining does not; plan again with another, "
                "such as schedule='automatic' or '1f1b'"
            )

    @property
    def schedule(self) -> str:
        """The schedule's name."""
        return str(self._values["schedule"]["name"])

    @property
    def stages(self) -> list[list[str]]:
        """Names of the nodes of each stage."""
        graph = self._values["model"].get("graph")
        if graph is None:
            raise PipewrightError("the plan is of a preset, not of a module: make it by trace.plan()")
        names = [node["name"] for node in graph["nodes"]]
        # The sample, the end and the loss stand for what a module does not have.
        own = [not name.startswith("(") for name in names]
        starts = [0, *(sum(own[:cut]) for cut in self._values["cuts"]), sum(own)]
        # A stage with nothing else on it gets the node beside it: torch has no stages without work.
        for at in range(1, len(starts) - 1):
            starts[at] = max(starts[at], starts[at - 1] + 1)
        for at in reversed(range(1, len(starts) - 1)):
            starts[at] = min(starts[at], starts[at + 1] - 1)
        nodes = [name for name, is_own in zip(names, own, strict=True) if is_own]
        return [nodes[a:b] for a, b in pairwise(starts)]

    def pipeline(
        self,
        module: nn.Module | None = None,
        rank: int | None = None,
        *,
        loss_fn: LossFunction,
        device: str | torch.device | None = None,
        scale_grads: bool = True,
        fsdp: bool = False,
    ) -> Pipeline:
        """This rank's stages with their schedule; see `pipewright.Pipeline`.

        Every rank of the default process group calls it. `module` is the traced one or another with the
        same forward pass; its parameters are those that are trained. With `fsdp` replicas divide the parameters
        of their stages, gradients and what the optimizer keeps of them (FSDP2, `fully_shard`).

        Raises:
            PipewrightError: where module, ranks or schedule do not fit the plan.
        """
        from ._pipeline import build

        return build(self, module, rank, loss_fn, device, scale_grads, fsdp)

    def _repr_html_(self) -> str:
        return _timeline.svg(self.timeline, str(self))

    def __repr__(self) -> str:
        figures = self.figures
        ranks, stages, parts = (
            _counted(figures[key], one)
            for key, one in (("ranks", "rank"), ("stages", "stage"), ("micro_batches", "micro-batch"))
        )
        return (
            f"{figures['model']} on {ranks}, {stages}, {figures['schedule']}, {parts}: predicted "
            f"{figures['step_ns'] / 1e6:.2f} ms a step, bubble {100 * figures['bubble']:.1f} %"
        )


def _counted(count: int, one: str) -> str:
    if count == 1:
        return f"1 {one}"
    return f"{count} {one}{'es' if one.endswith('ch') else 's'}"


def plan(model: str | os.PathLike[str], **options: Any) -> Plan:
    """A plan of a model by name or file, by the options of `pipewright plan`.

    `plan("gpt2", cluster="dgx-a100", stages=4)` is `pipewright plan --model gpt2 --cluster dgx-a100 --stages 4`.

    Raises:
        PipewrightError: with the command's sentence.
    """
    return make(os.fspath(model), None, options)


def make(model: str, trace: Trace | None, options: Mapping[str, Any]) -> Plan:
    """Makes the plan on rank 0, where there are several; the others receive it."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        return Plan(_made(model, trace, options), trace)
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return Plan(_made(model, trace, options), trace)
    # An error is everyone's, or the others would wait for a plan for ever.
    told: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            told = [_made(model, trace, options)]
        except PipewrightError as error:
            told = [error]
    dist.broadcast_object_list(told)
    if isinstance(told[0], PipewrightError):
        raise told[0]
    return Plan(told[0], trace)


# A stage on two ranks, overlapping passes, weights of several versions.
_NOT_OF_TORCH = re.compile("dualpipe|chimera|pipedream")
_CHOSEN = ("schedule", "micro_batches", "replicas")


def _made(model: str, trace: Trace | None, options: Mapping[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        options = dict(options)
        if isinstance(options.get("cluster"), Mapping):
            file = Path(folder, "cluster.json")
            file.write_text(json.dumps(options["cluster"]))
            options["cluster"] = str(file)
        if trace is not None and "mini_batch" not in options:
            count = options.get("micro_batches") or 8
            options["mini_batch"] = trace.samples * count * (options.get("replicas") or 1)
        words = ["--quiet", "plan", "--model", model, "-o", str(path), "--json"]
        found = json.loads(run([*words, *_flags(options)]))["search"]
        if trace is not None and found is not None and not options.get("schedule") and not options.get("row"):
            # What the search is to choose from: what torch runs.
            best = next((x for x in found["plans"] if not _NOT_OF_TORCH.match(x["schedule"])), None)
            chosen = {"schedule": "1f1b"} if best is None else {x: best[x] for x in _CHOSEN}
            run([*words, *_flags(options | chosen)])
        return path.read_text()


def _flags(options: Mapping[str, Any]) -> list[str]:
    """`micro_batches=4` is `--micro-batches=4`, `no_shuffle=True` is `--no-shuffle`."""
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif isinstance(value, (list, tuple)):
            flags.append(f"{flag}={','.join(map(str, value))}")
        elif value is not None and value is not False:
            flags.append(f"{flag}={value}")
    return flags
