"""Regions of a graph, such as those under torch.no_grad, that change what was made outside of them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ._change import changes, state_of, storage, tensors
from ._node import attribute, regions, where
from ._runner import PipewrightError

_SET_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled


def inline(name: str, root: fx.GraphModule) -> None:
    """Puts their nodes in place of regions under torch.no_grad that change something outside of them.

    Raises:
        PipewrightError: where a region changes a value that was made outside of it.
    """
    for node in list(root.graph.nodes):
        changed = changed_arguments(root, node)
        is_open = node.target is _SET_GRAD
        for x in changed:
            # How gradients go through such a value, only autograd knows.
            if state_of(x) is None and not (is_open and not any(t.is_floating_point() for t in tensors(x))):
                raise PipewrightError(
                    f"{where(name, node)}: a value is changed in place under torch.no_grad or torch.autocast and "
                    "made outside of it; write it without the change (y = f(x) for f_(x))"
                )
        if changed and is_open and not _is_computation(root, node):
            _Inlining(name, root, node).run()


def _is_computation(root: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a region stays where it is, being frozen layers: it is run once, as it is."""
    given = node.all_input_nodes
    reads = any(x.op == "get_attr" and isinstance(attribute(root, x), nn.Parameter) for x in given)
    results = [x for user in node.users for x in tensors(user)]
    outside = {storage(x) for argument in given for x in tensors(argument)}
    return reads and any(x.is_floating_point() for x in results) and not outside & {storage(x) for x in results}


def changed_arguments(root: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """The arguments that the regions of a node change."""
    found: dict[fx.Node, None] = {}
    for region in regions(root, node):
        written = {storage(x) for inner in _written(region) for x in tensors(inner)}
        inputs = [x for x in region.graph.nodes if x.op == "placeholder"]
        for outer, inner in zip(_given(root, node, region), inputs, strict=False):
            if isinstance(outer, fx.Node) and any(storage(x) in written for x in tensors(inner)):
                found[outer] = None
    return list(found)


def _written(region: fx.GraphModule) -> list[fx.Node]:
    """All that the nodes of a region change."""
    nodes = region.graph.nodes
    return [x for node in nodes for x in (*changes(node), *_statistics(node), *changed_arguments(region, node))]


def _statistics(node: fx.Node) -> list[fx.Node]:
    """The running statistics that a norm updates, which its schema does not say."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    is_updating = name in ("aten::batch_norm", "aten::instance_norm") and bool(node.args[5])
    return [x for x in node.args[3:5] if isinstance(x, fx.Node)] if is_updating else []


def _given(root: fx.GraphModule, node: fx.Node, region: fx.GraphModule) -> list[Any]:
    """The arguments that a node hands to a region: those behind the region."""
    for at, x in enumerate(node.args):
        if isinstance(x, fx.Node) and x.op == "get_attr" and attribute(root, x) is region:
            return pytree.tree_leaves(node.args[at + 1 :])
    return []


class _Inlining:
    """A region of torch.no_grad or torch.enable_grad, whose nodes come in place of it."""

    def __init__(self, name: str, root: fx.GraphModule, node: fx.Node) -> None:
        self.name, self.root, self.node = name, root, node
        self.with_gradient = bool(node.args[0])
        (self.region,) = regions(root, node)

    def run(self) -> None:
        """Changes the graph."""
        graph = self.root.graph
        inputs = [x for x in self.region.graph.nodes if x.op == "placeholder"]
        given = _given(self.root, self.node, self.region)
        with graph.inserting_before(self.node):
            copies = {inner: self._input(outer) for inner, outer in zip(inputs, given, strict=True)}
            for inner in self.region.graph.nodes:
                if inner.op in ("placeholder", "output"):
                    continue
                self._check(inner)
                copies[inner] = graph.node_copy(inner, lambda x: copies[x])
                if inner.op == "get_attr":
                    copies[inner].target = self._moved(inner)
        results = self.region.graph.output_node().args[0]
        self._replace(fx.map_arg(results, lambda x: copies[x]))
        for copy in copies.values():
            # Regions inside of it that change something too.
            if copy.op == "call_function" and copy.target is _SET_GRAD and changed_arguments(self.root, copy):
                _Inlining(self.name, self.root, copy).run()

    def _input(self, outer: Any) -> Any:
        """An argument as the region sees it: nothing that is made of it has a gradient."""
        is_value = isinstance(outer, fx.Node) and any(x.is_floating_point() for x in tensors(outer))
        if self.with_gradient or not is_value or self._is_buffer(outer):
            return outer
        value = self.root.graph.call_function(torch.ops.aten.detach.default, (outer,))
        value.meta = dict(self.node.meta) | {"val": outer.meta["val"]}
        return value

    def _is_buffer(self, node: fx.Node) -> bool:
        return node.op == "get_attr" and not isinstance(attribute(self.root, node), nn.Parameter)

    def _check(self, inner: fx.Node) -> None:
        """What has no gradient outside of an inner region cannot have one in it."""
        if inner.target is _SET_GRAD and inner.args[0] and not self.with_gradient:
            raise PipewrightError(
                f"{where(self.name, inner)}: torch.enable_grad inside of torch.no_grad, which changes a buffer; "
                "change the buffer in a block of its own"
            )

    def _moved(self, inner: fx.Node) -> str:
        """Gives the graph an attribute of the region."""
        number = 0
        while hasattr(self.root, f"inner_{number}"):
            number += 1
        setattr(self.root, f"inner_{number}", attribute(self.region, inner))
        return f"inner_{number}"

    def _replace(self, results: Any) -> None:
        graph = self.root.graph
        if isinstance(results, fx.Node):
            self.node.replace_all_uses_with(results)
        for user in list(self.node.users):
            assert user.target is operator.getitem, "a region gives a tuple"
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(self.node)
