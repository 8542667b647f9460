"""Functions of graphs that drop each tensor after its last use, their arguments too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.graph import CodeGen


class _Boxed(CodeGen):
    """Code of a function that takes a list and empties it.

    A Python call holds its arguments until it returns; a list that was emptied holds nothing.
    """

    def gen_fn_def(self, free_vars: list[str], *_: Any, **__: Any) -> str:
        names = [name for name in free_vars if name != "self"]
        taken = f"    {', '.join(names)}, = args\n" if names else ""
        return f"def forward(self, args):\n{taken}    args.clear()"


def boxed(graph: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """A function that AOTAutograd calls with the only references to saved tensors."""
    codegen: Any = _Boxed
    graph.graph.set_codegen(codegen())
    graph.recompile()

    def run(args: list[Any]) -> Any:
        return forward(args)

    forward = graph.forward
    run._boxed_call = True  # type: ignore[attr-defined]
    return run
