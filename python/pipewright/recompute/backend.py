"""Backend of `torch.compile` that runs a sequence within a memory budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config

from .boxed import boxed
from .emit import emit
from .joint import Joint, read_joint
from .measure import Costs
from .search import Plan

Planner = Callable[[Joint], Plan]
Compiled = Callable[..., Any]


class Backend:
    """A backend that asks `planner` for a sequence of each joint graph.

    `gate` runs before each forward pass, so that a trace can end before anything is computed.
    """

    def __init__(self, planner: Planner, costs: Costs, gate: Callable[[], None] | None = None) -> None:
        self.planner = planner
        self.costs = costs
        self.gate = gate

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Compiled:
        user_outputs = len(graph.graph.output_node().args[0])  # type: ignore[arg-type]

        def partition(
            joint: fx.GraphModule, joint_inputs: object, *, num_fwd_outputs: int, **_: object
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            read = read_joint(
                joint, self.costs.of, forward_outputs=num_fwd_outputs, user_outputs=user_outputs
            )
            return emit(read, self.planner(read).run)

        compiler = aot_autograd(
            fw_compiler=self._gated,
            bw_compiler=_compiled,
            inference_compiler=self._gated,
            partition_fn=partition,
            decompositions={},
        )
        # Donated buffers would forbid backward(retain_graph=True).
        with config.patch(donated_buffer=False):
            compiled: Compiled = compiler(graph, inputs)
        return compiled

    def _gated(self, graph: fx.GraphModule, inputs: object) -> Compiled:
        run, gate = boxed(graph), self.gate
        if gate is None:
            return run

        def gated(args: list[Any]) -> Any:
            gate()
            return run(args)

        gated._boxed_call = True  # type: ignore[attr-defined]
        return gated


def _compiled(graph: fx.GraphModule, inputs: object) -> Compiled:
    return boxed(graph)
