"""Places of nodes: the stage of each computation, of each change of a buffer, and of the results."""

from __future__ import annotations

import torch
from torch import fx

from ._export import changed_state, where
from ._fold import Folded, Kind
from ._runner import PipewrightError


def place(folded: Folded, stages: list[list[str]]) -> dict[fx.Node, int]:
    """Stages of all nodes that have one, from the names of each stage's computations.

    Raises:
        PipewrightError: where names are others than the graph's, a buffer would change on one stage and be
            read on another, or two stages would draw the same random numbers.
    """
    number = {name: at for at, names in enumerate(stages) for name in names}
    strange = sorted({x.name for x in folded.computations}.symmetric_difference(number))
    if strange:
        name = folded.exported.name
        raise PipewrightError(
            f"the plan and {name} differ: only one of them has `{strange[0]}`; trace the module and plan again"
        )
    placed = {x.node: number[x.name] for x in folded.computations}
    placed[folded.exported.graph.graph.output_node()] = len(stages) - 1
    readers: dict[str, set[int]] = {}
    for node, stage in placed.items():
        for name in folded.states(node):
            readers.setdefault(name, set()).add(stage)
    changing = _place_changes(folded, placed, readers, len(stages))
    _check_buffers(folded, placed, readers, changing)
    _check_random(folded, placed)
    return placed


def _place_changes(
    folded: Folded, placed: dict[fx.Node, int], readers: dict[str, set[int]], count: int
) -> dict[str, fx.Node]:
    """Puts all changes of a buffer where it is read, or what it is changed by is computed, else to the next node."""
    groups: dict[str, list[fx.Node]] = {}
    following: dict[str, int] = {}
    after = count - 1
    for node, kind in reversed(folded.kinds.items()):
        if kind is Kind.COMPUTATION:
            after = placed[node]
        elif kind is Kind.CHANGE:
            state = changed_state(node)
            assert state is not None, "other changes were taken out"
            groups.setdefault(state, []).append(node)
            following[state] = after
    for state, nodes in groups.items():
        found = set(readers.get(state, ()))
        for node in nodes:
            owners = (folded.owner(x) for x in folded.carriers(node))
            found.update(placed[x.node] for x in owners if x is not None)
        stage = max(found, default=following[state])
        placed.update(dict.fromkeys(nodes, stage))
        readers.setdefault(state, set()).add(stage)
    return {state: nodes[-1] for state, nodes in groups.items()}


def _check_buffers(
    folded: Folded, placed: dict[fx.Node, int], readers: dict[str, set[int]], changing: dict[str, fx.Node]
) -> None:
    """A buffer that changes is one stage's: another one would have its own."""
    parameters = dict(folded.exported.graph.named_parameters(remove_duplicate=False))
    for computation in folded.computations:
        # Its schema does not say that it updates running statistics.
        if "batch_norm" in computation.op or "instance_norm" in computation.op:
            for name in folded.states(computation.node):
                if name not in parameters:
                    changing.setdefault(name, computation.node)
    for name, node in changing.items():
        if len(readers.get(name, ())) > 1:
            raise PipewrightError(
                f"{where(folded.exported.name, node)}: the buffer `{name}` changes and is read on stages "
                f"{sorted(readers[name])}, each of which would have its own; cut so that one stage has it"
            )


def _check_random(folded: Folded, placed: dict[fx.Node, int]) -> None:
    """Random numbers that two stages read would be two."""
    read: dict[fx.Node, set[int]] = {}
    for node, stage in placed.items():
        stack = list(node.all_input_nodes)
        while stack:
            at = stack.pop()
            if folded.is_carrier(at) or stage in read.setdefault(at, set()):
                continue
            read[at].add(stage)
            stack.extend(at.all_input_nodes)
    for node, stages in read.items():
        # A dropout of probability 0 is a view.
        is_free = folded.kinds[node] is Kind.FREE
        if len(stages) > 1 and is_free and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise PipewrightError(
                f"{where(folded.exported.name, node)}: random numbers of `{node.name}` are read on stages "
                f"{sorted(stages)}, where they would differ; make them an argument of the module"
            )
