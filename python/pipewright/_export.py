"""Export of a module as one FX graph of ATen operations without in-place changes of values."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ._runner import PipewrightError


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
        raise PipewrightError(
            f"{name}: torch.export does not get through: {reason(error)}; control flow must not depend on "
            "values (torch.where, torch.cond), and the module must run on the example"
        ) from error
    _plain_outputs(name, program)
    graph = program.module()
    assert isinstance(graph, fx.GraphModule)
    for node in list(graph.graph.nodes):
        # Checks of the input's shape, in newer versions of torch.
        if node.op == "call_module" and not node.users:
            graph.graph.erase_node(node)
        elif node.op == "call_function":
            _without_change(name, graph.graph, node)
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


def module_path(node: fx.Node) -> tuple[str, str]:
    """The innermost module that a node belongs to, as its dotted path and its class."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    # A module that is called twice has `@1` behind its name the second time.
    return path.split("@")[0], str(kind)


def where(name: str, node: fx.Node) -> str:
    """A node in a message."""
    path, _ = module_path(node)
    return f"{name}.{path}" if path else name


def changes(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operation changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    named = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [x for x in (named.get(name) for name in written) if isinstance(x, fx.Node)]


def changed_state(node: fx.Node) -> str | None:
    """The buffer that an operation changes in place, also by way of a view or of another change."""
    while (changed := changes(node)) or node.op != "get_attr":
        before = changed[0] if changed else _base(node)
        if before is node:
            return None
        node = before
    return str(node.target)


def _without_change(name: str, graph: fx.Graph, node: fx.Node) -> None:
    """Puts `relu` in place of `relu_`: later readers of the old value read the new one."""
    changed = changes(node)
    if not changed or changed_state(node) is not None:
        return
    target: Any = node.target
    packet = str(target._schema.name).split("::")[-1]
    plain = getattr(torch.ops.aten, packet.removesuffix("_"), None) if packet.endswith("_") else None
    overload = getattr(plain, target._overloadname, None)
    value = changed[0]
    order = {n: i for i, n in enumerate(graph.nodes)}
    base = _base(value)
    seen_elsewhere = base is not value and any(order[user] > order[node] for user in base.users)
    if len(changed) > 1 or overload is None or seen_elsewhere:
        raise PipewrightError(
            f"{where(name, node)}: `{packet}` changes a value in place that is read in another way too; "
            "write it without the change (y = f(x) for f_(x))"
        )
    node.target = overload
    for user in [user for user in value.users if order[user] > order[node]]:
        user.replace_input_with(value, node)


def _base(node: fx.Node) -> fx.Node:
    """What a view shows."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        if node.target is not operator.getitem and not getattr(node.target, "is_view", False):
            break
        node = node.args[0]
    return node
