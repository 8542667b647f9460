"""Places of nodes: the stage of each computation, of each change of a buffer, and of the results."""

from __future__ import annotations

import torch
from torch import fx

from ._change import changed_states
from ._fold import Folded, Kind
from ._node import regions, where
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
    _place_changes(folded, placed, len(stages))
    _check_buffers(folded, placed)
    _check_random(folded, placed)
    return placed


def _place_changes(folded: Folded, placed: dict[fx.Node, int], count: int) -> None:
    """Puts all changes of a buffer where it is read, or what it is changed by is computed, else to the next node.

    Buffers that are changed by one another have one place.
    """
    readers = _readers(folded, placed)
    following: dict[fx.Node, int] = {}
    after = count - 1
    for node, kind in reversed(folded.kinds.items()):
        if kind is Kind.COMPUTATION:
            after = placed[node]
        elif kind is Kind.CHANGE:
            following[node] = after
    for states, nodes in _groups(folded):
        found = {stage for state in states for stage in readers.get(state, ())}
        for node in nodes:
            owners = (folded.owner(x) for x in folded.carriers(node))
            found.update(placed[x.node] for x in owners if x is not None)
        placed.update(dict.fromkeys(nodes, max(found, default=following[nodes[0]])))


def _groups(folded: Folded) -> list[tuple[set[str], list[fx.Node]]]:
    """Buffers that changes connect, with the changes in their order."""
    changing = folded.changing()
    groups: list[tuple[set[str], list[fx.Node]]] = []
    for node, kind in folded.kinds.items():
        if kind is not Kind.CHANGE:
            continue
        states = {*changed_states(node), *(x for x in folded.states(node) if x in changing)}
        nodes = [node]
        for group in [group for group in groups if group[0] & states]:
            groups.remove(group)
            states, nodes = states | group[0], group[1] + nodes
        groups.append((states, nodes))
    order = {node: at for at, node in enumerate(folded.kinds)}
    return [(states, sorted(nodes, key=order.__getitem__)) for states, nodes in groups]


def _readers(folded: Folded, placed: dict[fx.Node, int]) -> dict[str, set[int]]:
    """The stages that read a parameter or a buffer."""
    readers: dict[str, set[int]] = {}
    for node, stage in placed.items():
        for name in folded.states(node):
            readers.setdefault(name, set()).add(stage)
    return readers


def _check_buffers(folded: Folded, placed: dict[fx.Node, int]) -> None:
    """A buffer that changes is one stage's: another one would have its own."""
    readers = _readers(folded, placed)
    for name, node in folded.changing().items():
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
        drawing = _drawing(folded.exported.graph, node) if len(stages) > 1 and is_free else None
        if drawing is not None:
            raise PipewrightError(
                f"{where(folded.exported.name, node)}: random numbers of `{drawing.name}` are read on stages "
                f"{sorted(stages)}, where they would differ; make them an argument of the module"
            )


def _drawing(root: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """What draws random numbers: a node, or one in a region that it runs."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return node
    inner = (_drawing(region, x) for region in regions(root, node) for x in region.graph.nodes)
    return next((x for x in inner if x is not None), None)
