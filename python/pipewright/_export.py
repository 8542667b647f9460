"""Export of a module as one FX graph of ATen operations without in-place changes of values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from ._change import without_change
from ._inline import inline
from ._node import attribute, where
from ._runner import PipewrightError

__all__ = ["Exported", "export", "reason", "where"]

LOSES_DATA = "reads or changes the `data` of a tensor, which torch.export loses; write x.detach() for x.data"


@dataclass(repr=False)
class Exported:
    """A module's forward pass."""

    name: str
    graph: fx.GraphModule
    """Parameters and buffers are the module's own."""
    inputs: list[fx.Node]
    """Placeholders, one a leaf of the arguments."""
    values: list[Any]
    """The leaves of the example."""
    is_single: bool
    """Whether the result is a tensor, not a tuple of tensors."""

    @property
    def tensors(self) -> list[fx.Node]:
        """The inputs that are tensors; others are part of the graph."""
        pairs = zip(self.inputs, self.values, strict=True)
        return [node for node, value in pairs if isinstance(value, torch.Tensor)]

    @property
    def samples(self) -> int:
        """Size of the first axis of the first tensor."""
        first = next((x for x in self.values if isinstance(x, torch.Tensor)), None)
        if first is None or first.dim() == 0:
            raise PipewrightError(
                f"{self.name}: no input is a tensor with a batch axis; give an example of one micro-batch"
            )
        return int(first.shape[0])


def export(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Exported:
    """The graph of `module(*args, **kwargs)`, in the mode (training or not) that it is in.

    Raises:
        PipewrightError: where the graph depends on the data, or a value is changed in place while its
            old state is still read.
    """
    name = type(module).__name__
    try:
        program = torch.export.export(module, tuple(args), dict(kwargs or {}), strict=False)
    except Exception as error:
        if "fake tensor in the exported program constant" in str(error):
            # Newer versions of torch find it themselves, and do not say where.
            raise PipewrightError(f"{name}: an operation {LOSES_DATA}") from error
        raise PipewrightError(
            f"{name}: torch.export does not get through: {reason(error)}; control flow must not depend on "
            "values (torch.where, torch.cond), and the module must run on the example"
        ) from error
    _plain_outputs(name, program)
    graph = program.module()
    assert isinstance(graph, fx.GraphModule)
    _no_data(name, graph)
    inline(name, graph)
    for node in list(graph.graph.nodes):
        # Checks of the input's shape, in newer versions of torch.
        if node.op == "call_module" and not node.users:
            graph.graph.erase_node(node)
        elif node.op == "call_function":
            without_change(name, graph, node)
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    values = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    spec = program.call_spec.out_spec
    return Exported(name, graph, inputs, values, spec is not None and spec.is_leaf())


def reason(error: BaseException) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    text = re.sub(r"\s+", " ", text)
    return text[:200].rstrip(" .:")


def _plain_outputs(name: str, program: torch.export.ExportedProgram) -> None:
    spec = program.call_spec.out_spec
    plain = spec is not None and (spec.is_leaf() or spec.type in (tuple, list))
    if not plain or not all(isinstance(x, fx.Node) for x in program.graph.output_node().args[0]):
        raise PipewrightError(
            f"{name}: the result must be a tensor or a tuple of tensors; wrap the module in one that gives "
            "only those (of a Hugging Face model: its logits)"
        )


def _no_data(name: str, graph: fx.GraphModule) -> None:
    """What torch.export makes of `x.data` is a constant, without the example's values."""
    for node in graph.graph.nodes:
        if node.op == "get_attr" and isinstance(attribute(graph, node), FakeTensor):
            user = next(iter(node.users), node)
            raise PipewrightError(f"{where(name, user)}: `{user.name}` {LOSES_DATA}")
