"""Where a node of an exported graph comes from, and which graphs are inside of it."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from torch import fx


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


def attribute(root: fx.GraphModule, node: fx.Node) -> Any:
    """What a node of the kind `get_attr` gives."""
    return attrgetter(str(node.target))(root)


def regions(root: fx.GraphModule, node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that a node runs, such as those under torch.no_grad and torch.autocast."""
    if node.op != "call_function":
        return []
    read = (attribute(root, x) for x in node.all_input_nodes if x.op == "get_attr")
    return [x for x in read if isinstance(x, fx.GraphModule)]
