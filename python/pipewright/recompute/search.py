"""Sequences within a budget: `pipewright recompute` searches, and every answer is checked exactly."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence as Words
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .._runner import PipewrightError, run
from .budget import Budget, size_text
from .fold import Folded, fold
from .joint import Joint
from .simulate import Prediction, Sequence, largest_step, plain, predict, sequence

# Searches for one budget: the file knows no workspaces and rounds what several results share, so
# an answer may miss the budget by a little and is looked for again below it.
_TRIES = 4


@dataclass(frozen=True)
class Effort:
    """How long is searched: seconds, or moves with a seed for the same answer everywhere."""

    seconds: float = 5.0
    moves: int | None = None
    seed: int = 1

    def words(self) -> list[str]:
        """Arguments of the command."""
        if self.moves is None:
            return [f"--seconds={self.seconds}", f"--seed={self.seed}"]
        return [f"--moves={self.moves}", f"--seed={self.seed}"]


@dataclass(frozen=True)
class Plan:
    """A sequence and what it takes, beside the plain one."""

    run: Sequence
    prediction: Prediction
    without: Prediction
    budget: int
    least: int


def resident_bytes(joint: Joint) -> int:
    """Bytes of parameters, buffers and inputs."""
    storages = {n.meta["val"].untyped_storage()._cdata: n.meta["val"] for n in joint.primals if _tensor(n)}
    return sum(int(v.untyped_storage().nbytes()) for v in storages.values())


def find(joint: Joint, budget: Budget, effort: Effort, model: str, allowed: int = 0) -> Plan:
    """The fastest sequence found whose predicted peak is within the budget, or else within `allowed` bytes.

    Raises PipewrightError where none was found, with the least memory there can be.
    """
    without = predict(joint, plain(joint))
    limit = budget.bytes(without.peak)
    try:
        return _within(joint, limit, without, effort, model)
    except PipewrightError:
        if allowed <= limit:
            raise
    return _within(joint, allowed, without, effort, model)


def _within(joint: Joint, limit: int, without: Prediction, effort: Effort, model: str) -> Plan:
    order, least = plain(joint), largest_step(joint)
    if without.peak <= limit:
        return Plan(order, without, without, limit, least)
    if limit < least:
        raise PipewrightError(
            f"the budget of {_of(limit, without)} cannot be met: no sequence needs less than "
            f"{_of(least, without)}; give more memory or a smaller batch"
        )
    folded = fold(joint, model, resident_bytes(joint))
    target = limit
    for _ in range(_TRIES):
        answer = _search(folded, ["--budget", str(target)], effort)
        if answer is None:
            break
        found = sequence(joint, *folded.sequence(answer["sequence"]))
        exact = predict(joint, found)
        if exact.peak <= limit:
            return Plan(found, exact, without, limit, least)
        target = max(0, min(target, answer["peak_bytes"]) - (exact.peak - limit))
    # Among all trade-offs one may be within the budget, and else they tell what would be.
    points, _ = _front(joint, folded, effort)
    within = [point for point in points if point[0].peak <= limit]
    if within:
        exact, found = min(within, key=lambda point: point[0].time)
        return Plan(found, exact, without, limit, least)
    lowest = min(exact.peak for exact, _ in points)
    raise PipewrightError(
        f"the budget of {_of(limit, without)} was not met: the least memory found is "
        f"{_of(lowest, without)}, and no sequence needs less than {_of(least, without)}; "
        "give more memory or more seconds"
    )


def front(joint: Joint, effort: Effort, model: str) -> tuple[list[Prediction], Prediction, str]:
    """Predictions of all trade-offs that were found, the plain one, and their picture."""
    folded = fold(joint, model, resident_bytes(joint))
    points, svg = _front(joint, folded, effort)
    return [exact for exact, _ in points], predict(joint, plain(joint)), svg


def device_bytes(name: str, resident: int) -> int:
    """Memory of a device that the command knows, less what is there from the beginning."""
    node = {"id": 0, "bytes": 0, "time": 0.0, "inputs": [], "output": "end"}
    file = {"format": "recompute-graph/1", "sources": [{"bytes": resident}], "nodes": [node]}
    with tempfile.TemporaryDirectory() as folder:
        answer = _run(Folded(file, [None], 0), Path(folder), ["--device", name], Effort(moves=1))
    return int(answer["budget_bytes"])


def _front(joint: Joint, folded: Folded, effort: Effort) -> tuple[list[tuple[Prediction, Sequence]], str]:
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder, "front.svg")
        answer = _run(folded, Path(folder), ["--pareto", "--svg", str(picture)], effort)
        svg = picture.read_text()
    runs = [sequence(joint, *folded.sequence(point["sequence"])) for point in answer["points"]]
    return [(predict(joint, run), run) for run in runs], svg


def plain_plan(joint: Joint) -> Plan:
    """The step as it stands."""
    order = plain(joint)
    without = predict(joint, order)
    return Plan(order, without, without, without.peak, largest_step(joint))


def _search(folded: Folded, goal: Words[str], effort: Effort) -> dict[str, Any] | None:
    """The command's answer, or nothing where it found none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _run(folded, Path(folder), goal, effort)
        except PipewrightError as error:
            if "the budget of" in str(error):
                return None
            raise


def _run(folded: Folded, folder: Path, goal: Words[str], effort: Effort) -> dict[str, Any]:
    graph = folder / "graph.json"
    graph.write_text(json.dumps(folded.file))
    found = folder / "answer.json"
    # With --json figures are printed in place of progress and tables; nobody reads them here.
    run(["recompute", graph, *goal, *effort.words(), "-o", found, "--json"])
    answer: dict[str, Any] = json.loads(found.read_text())
    return answer


def _of(size: int, without: Prediction) -> str:
    return f"{size_text(size)} ({100 * size / max(without.peak, 1):.0f} %)"


def _tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
