"""Gradients that eager does not compute: of parameters that only lead to outputs nobody has used.

A function of AOTAutograd gets zeros for an output without a gradient, and gives zeros for what is behind it.
Optimizers take those for gradients: they decay the parameter. Here it gets none, as in eager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .joint import Joint

Run = Callable[[list[Any]], Any]

# Views between an output and the function that gave it.
_STEPS = 8
_thread = threading.local()


def reached(joint: Joint) -> list[frozenset[int]]:
    """For each result of the backward pass, the outputs whose gradients it follows from."""
    found = {node: frozenset([place]) for place, node in enumerate(joint.tangents)}
    for node in joint.graph.graph.nodes:
        found[node] = found.get(node, frozenset()).union(*(found[x] for x in node.all_input_nodes))
    return [frozenset() if node is None else found[node] for node in joint.backward_outputs]


def watch(outputs: Any) -> Any:
    """The outputs of a forward pass, whose backward pass is told which of them have gradients."""
    for node in {id(x): x for x in _nodes(outputs)}.values():
        node.register_prehook(_note)
    return outputs


def dropping(run: Run, reached: Sequence[frozenset[int]], count: int) -> Run:
    """A backward pass that gives nothing where zeros alone lead to; its last `count` arguments are gradients."""

    def dropped(args: list[Any]) -> Any:
        unused = _unused(args[len(args) - count :])
        found = run(args)
        if not unused:
            return found
        return [None if x and x <= unused else value for x, value in zip(reached, found, strict=True)]

    dropped._boxed_call = True  # type: ignore[attr-defined]
    return dropped


def _note(gradients: tuple[torch.Tensor | None, ...]) -> None:
    """Runs right before the backward pass, in its thread, while nothing stands for gradients that are missing."""
    _thread.given = [x for x in gradients if x is not None]


def _unused(tangents: list[Any]) -> frozenset[int]:
    """The places of zeros that stand for nothing."""
    given = getattr(_thread, "given", None)
    _thread.given = None
    if given is None:
        return frozenset()
    same = {id(x) for x in given} & {id(x) for x in tangents}
    other = [place for place, x in enumerate(tangents) if id(x) not in same]
    # One that was given comes as a copy where it had other strides than the traced one.
    is_copied = len(same) < len({id(x) for x in given})
    return frozenset(place for place in other if not (is_copied and tangents[place].any()))


def _nodes(outputs: Any) -> Iterator[Any]:
    """The functions of AOTAutograd that outputs come from, at most by some views."""
    for output in pytree.tree_leaves(outputs):
        node = output.grad_fn if isinstance(output, torch.Tensor) else None
        for _ in range(_STEPS):
            if node is None or node.name() == "CompiledFunctionBackward":
                break
            node = node.next_functions[0][0] if len(node.next_functions) == 1 else None
        if node is not None and node.name() == "CompiledFunctionBackward":
            yield node
