"""Changes in place: of buffers, which stay, and of values, in place of which a new value comes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ._node import where
from ._runner import PipewrightError

_DRAWN = (torch.ops.aten.bernoulli.p, torch.ops.aten.normal_functional.default)
"""Read nothing of their argument but its form, and have no derivative that would say so."""


def changes(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operation changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    named = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    found = [x for name in written for x in pytree.tree_leaves(named.get(name))]
    return [x for x in found if isinstance(x, fx.Node)]


def state_of(node: fx.Node) -> str | None:
    """The parameter or buffer that a node shows, also by way of a view or of a change."""
    while node.op != "get_attr":
        changed = changes(node)
        before = changed[0] if changed else shown(node)
        if before is None:
            return None
        node = before
    return str(node.target)


def changed_states(node: fx.Node) -> list[str]:
    """The buffers that an operation changes in place."""
    return [state for state in map(state_of, changes(node)) if state is not None]


def shown(node: fx.Node) -> fx.Node | None:
    """What a view shows; None of what has its own memory."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    before = node.args[0]
    if isinstance(before.target, torch._ops.HigherOrderOperator):
        # A region gives what it has been given.
        return next((x for x in before.all_input_nodes if _storages(node) & _storages(x)), None)
    if node.target is operator.getitem or _passes(node):
        return before
    # `reshape` and its like copy where they must.
    is_view = getattr(node.target, "is_view", False) and _storages(node) <= _storages(before)
    return before if is_view else None


def _passes(node: fx.Node) -> bool:
    """Whether a dropout does nothing: it then gives its argument, of which the example's tensors do not tell."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    if not name.endswith("dropout") or len(node.args) < 3:
        return False
    return bool(node.args[1] == 0 or not node.args[2])


def tensors(node: fx.Node) -> list[torch.Tensor]:
    """The example's tensors that a node gives."""
    return [x for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]


def _storages(node: fx.Node) -> set[int]:
    return {storage(x) for x in tensors(node)}


def storage(x: torch.Tensor) -> int:
    """A number that tensors of one memory have in common."""
    return int(x.untyped_storage()._cdata)


def without_change(name: str, root: fx.GraphModule, node: fx.Node) -> None:
    """Puts `relu` in place of `relu_`: later readers of the old value, and of its views, read the new one."""
    changed = changes(node)
    if not changed:
        return
    states = changed_states(node)
    if len(states) == len(changed):
        _not_of_parameters(name, root, node, states)
        return
    target: Any = node.target
    packet = str(target._schema.name).split("::")[-1]
    overload = _without(target)
    if overload is None or len(changed) > 1:
        raise PipewrightError(
            f"{where(name, node)}: `{packet}` changes a value in place and has no form that does not; "
            "write it without the change (y = f(x) for f_(x))"
        )
    value = changed[0]
    order = {n: i for i, n in enumerate(root.graph.nodes)}
    views = [] if torch.Tag.inplace_view in target.tags else _read_later(root.graph, value, node, order)
    paths = [_path(view, value) for view in views]
    if None in paths:
        raise PipewrightError(
            f"{where(name, node)}: `{packet}` changes a value in place that is read in another way too; "
            "write it without the change (y = f(x) for f_(x))"
        )
    _replace(node, overload)
    copies = {value: _of_type(root.graph, node, value)}
    _view_again(root.graph, {step for path in paths for step in path or ()}, copies, order)
    for old, copy in copies.items():
        # New nodes have no place in the order: they read what they should.
        for user in [user for user in old.users if order.get(user, 0) > order[node]]:
            user.replace_input_with(old, copy)


def _view_again(
    graph: fx.Graph, views: set[fx.Node], copies: dict[fx.Node, fx.Node], order: dict[fx.Node, int]
) -> None:
    """Views of the new value beside those of the old one; `copies` has the value's."""
    (at,) = copies.values()
    for view in sorted(views, key=order.__getitem__):
        with graph.inserting_before(at.next):
            at = copies[view] = graph.node_copy(view, lambda x: copies.get(x, x))


def _not_of_parameters(name: str, root: fx.GraphModule, node: fx.Node, states: list[str]) -> None:
    known: dict[str, nn.Parameter] = dict(root.named_parameters(remove_duplicate=False))
    for state in states:
        if state in known and known[state].requires_grad:
            raise PipewrightError(
                f"{where(name, node)}: `{node.name}` changes the parameter `{state}` in the forward pass, which "
                "other micro-batches would see; change it between steps"
            )


def _without(target: Any) -> Any:
    """The operation without the change: of the same arguments, where there is none of the same name too."""
    schema = target._schema
    space, packet = schema.name.split("::")
    if not packet.endswith("_") or [str(x.type) for x in schema.returns] != ["Tensor"]:
        return None
    names = (packet.removesuffix("_"), packet + "functional")
    packets = (getattr(getattr(torch.ops, space), name, None) for name in names)
    found = [getattr(x, overload) for x in packets if x is not None for overload in x.overloads()]
    found = [x for x in found if not x._schema.is_mutable and _form(x)[:1] == _form(target)[:1]]
    found.sort(key=lambda x: (_form(x) != _form(target), x._overloadname != target._overloadname))
    fits = found and (_form(found[0]) == _form(target) or found[0]._overloadname == target._overloadname)
    return found[0] if fits else None


def _form(target: Any) -> list[tuple[str, str]]:
    # The first argument is `self` or `input`.
    return [(a.name if at else "", str(a.type)) for at, a in enumerate(target._schema.arguments)]


def _replace(node: fx.Node, overload: Any) -> None:
    """Puts another operation in place of a node's, whose arguments may have other defaults."""
    target: Any = node.target
    given = {a.name for a in target._schema.arguments[: len(node.args)]} | node.kwargs.keys()
    defaults = {a.name: a.default_value for a in overload._schema.arguments if a.has_default_value()}
    for a in target._schema.arguments:
        if a.name not in given and a.has_default_value() and defaults.get(a.name, ...) != a.default_value:
            node.update_kwarg(a.name, a.default_value)
    node.target = overload
    if overload in _DRAWN:
        value = node.args[0]
        with node.graph.inserting_before(node):
            form = node.graph.call_function(torch.ops.aten.detach.default, (value,))
        form.meta = dict(node.meta)
        node.update_arg(0, form)


def _of_type(graph: fx.Graph, node: fx.Node, value: fx.Node) -> fx.Node:
    """What an operation gives, in the type that its argument had: a change keeps it, other operations promote."""
    target: Any = node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda x: x.meta["val"])
    with torch.no_grad():
        given = target(*args, **kwargs).dtype
    want = value.meta["val"].dtype
    if given == want:
        return node
    with graph.inserting_before(node.next):
        cast = graph.call_function(torch.ops.aten.to.dtype, (node, want))
    cast.meta = dict(node.meta)
    node.replace_all_uses_with(cast, lambda user: user is not cast)
    return cast


def _read_later(graph: fx.Graph, value: fx.Node, node: fx.Node, order: dict[fx.Node, int]) -> list[fx.Node]:
    """Other nodes that show what a change of `value` changes, and are read behind it."""
    same = _same_storage(graph)
    changed = value.meta["val"]
    at = same.get(storage(changed), storage(changed))
    found = []
    for other in graph.nodes:
        if other is node:
            break
        if other is value or all(order[user] <= order[node] for user in other.users):
            continue
        shared = [x for x in tensors(other) if same.get(storage(x), storage(x)) == at]
        if any(_overlap(changed, x) for x in shared):
            found.append(other)
    return found


def _same_storage(graph: fx.Graph) -> dict[int, int]:
    """Of results that are an argument in another tensor: the argument's storage."""
    same: dict[int, int] = {}
    for node in graph.nodes:
        if node.op == "call_function" and _passes(node):
            before = storage(node.args[0].meta["val"])
            same[storage(node.meta["val"])] = same.get(before, before)
    return same


def _overlap(changed: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one storage have an element in common."""
    if storage(changed) != storage(other) or changed.dtype.itemsize != other.dtype.itemsize:
        return True
    forms = [(list(x.shape), list(x.stride()), int(x.storage_offset())) for x in (changed, other)]
    ends = [at + 1 + sum((n - 1) * step for n, step in zip(n, step, strict=True)) for n, step, at in forms]
    if not changed.numel() or not other.numel():
        return False
    marks = torch.zeros(max(ends), dtype=torch.bool)
    marks.as_strided(*forms[0]).fill_(True)
    return bool(marks.as_strided(*forms[1]).any())


def _path(view: fx.Node, value: fx.Node) -> list[fx.Node] | None:
    """The views that lead from a value to one of its views."""
    path = []
    at: fx.Node | None = view
    while at is not value:
        if at is None:
            return None
        path.append(at)
        before = shown(at)
        at = before if before in at.all_input_nodes else None
    return path
