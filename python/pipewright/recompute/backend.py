"""Backend of `torch.compile` that runs a sequence within a memory budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config

from .boxed import boxed
from .dropout import as_eager
from .emit import emit
from .joint import read_joint
from .kernels import assemble
from .planner import Planner
from .report import Report
from .unused import dropping, reached, watch

Compiled = Callable[..., Any]
Gate = Callable[[Report | None], None]


class Backend:
    """A backend whose joint graphs a planner gives sequences.

    `gate` is called before each forward pass with its report, or with nothing where no gradients
    are computed.
    """

    def __init__(self, planner: Planner, gate: Gate | None = None) -> None:
        self.planner = planner
        self.reports: list[Report] = []
        self.gate = gate

    @property
    def report(self) -> Report | None:
        """The report of the newest plan."""
        return self.reports[-1] if self.reports else None

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Compiled:
        user_outputs = len(graph.graph.output_node().args[0])  # type: ignore[arg-type]
        planned: list[Report] = []
        backwards: list[tuple[list[frozenset[int]], int]] = []
        # The operations, whatever their shapes are.
        kind = " ".join(str(node.target) for node in graph.graph.nodes if node.op.startswith("call"))

        def partition(
            joint: fx.GraphModule, joint_inputs: object, *, num_fwd_outputs: int, **_: object
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            assemble(joint)
            as_eager(joint)
            # Newer versions of torch give more keywords; none changes what is asked for.
            read = read_joint(
                joint,
                self.planner.costs.of,
                forward_outputs=num_fwd_outputs,
                user_outputs=user_outputs,
            )
            run, report = self.planner.plan(read, kind)
            planned.append(report)
            backwards.append((reached(read), len(read.tangents)))
            return emit(read, run)

        def forward(graph: fx.GraphModule, inputs: object) -> Compiled:
            return self._gated(boxed(graph), planned[-1] if planned else None)

        def backward(graph: fx.GraphModule, inputs: object) -> Compiled:
            return dropping(boxed(graph), *backwards[-1])

        compiler = aot_autograd(
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=forward,
            partition_fn=partition,
            decompositions={},
        )
        # Donated buffers would forbid backward(retain_graph=True).
        with config.patch(donated_buffer=False):
            compiled: Compiled = compiler(graph, inputs)
        self.reports += planned
        return lambda *args: watch(compiled(*args))

    def _gated(self, run: Compiled, report: Report | None) -> Compiled:
        gate = self.gate
        if gate is None:
            return run

        def gated(args: list[Any]) -> Any:
            gate(report)
            return run(args)

        gated._boxed_call = True  # type: ignore[attr-defined]
        return gated
