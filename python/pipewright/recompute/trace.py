"""Traces: a module as one graph, sentences for what cannot be one, and traces that compute nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo import config, exc, utils

from .._runner import PipewrightError

_HOW = (
    "make it one (torch.where or torch.cond in place of branches on values, no .item(), no print), "
    "or recompute submodules that are"
)


class Stopped(Exception):
    """Ends a call whose graph is planned, before anything is computed."""


def compiled(module: nn.Module, backend: Callable[..., Any]) -> Callable[..., Any]:
    """The module's call as one graph for each set of shapes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    # Dynamo keeps graphs by code object and limits their number: each module gets its own.
    call.__code__ = call.__code__.replace()
    step: Callable[..., Any] = torch.compile(call, backend=backend, fullgraph=True, dynamic=False)
    return step


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Takes the end of a call that only plans for its success."""
    with contextlib.suppress(Stopped):
        yield


@contextlib.contextmanager
def refused(step: Callable[..., Any]) -> Iterator[None]:
    """Says in one sentence why a module was not traced or planned; `step` is its compiled call."""
    try:
        yield
    except exc.BackendCompilerFailed as error:
        inner = error.inner_exception
        if isinstance(inner, (PipewrightError, Stopped)):
            raise inner from None
        raise PipewrightError(f"the step's gradients cannot be traced as one graph: {_first(inner)}; {_HOW}") from error
    except exc.FailOnRecompileLimitHit as error:
        raise PipewrightError(_too_many(step)) from error
    except exc.TorchRuntimeError as error:
        raise PipewrightError(f"the module fails with these arguments: {_first(error, after='got ')}") from error
    except exc.TorchDynamoException as error:
        if "backwards hooks" in str(error):
            raise PipewrightError(
                "a submodule has a backward hook, which cannot be part of the step's graph; "
                "remove it, or use hooks of parameters"
            ) from error
        raise PipewrightError(f"the module cannot be traced as one graph: {_first(error)}; {_HOW}") from error


def _too_many(step: Callable[..., Any]) -> str:
    """Why there are more plans than there may be: what newly came differs in a shape from most, or in a value."""
    code = getattr(getattr(step, "_torchdynamo_orig_callable", None), "__code__", None)
    told = getattr(utils, "guard_failures", {}).get(code, [])[-config.recompile_limit :]
    values = [x.partition(": ")[2].partition("  ")[0] for x in told if ": tensor '" not in x]
    limit = "raise torch._dynamo.config.recompile_limit"
    if 2 * len(values) <= len(told):
        return f"the arguments had more sets of shapes than there may be plans; pad batches to fewer shapes or {limit}"
    return (
        f"`{values[0].partition(' == ')[0]}` had more values than there may be plans, and each value has its own; "
        f"make it a tensor, leave it as it is, or {limit}"
    )


def _first(error: BaseException, after: str = "") -> str:
    """The first line of an error, of it what is behind `after`, and the user's line that it names."""
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    if after:
        line = line.rpartition(f": {after}")[2]
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    return f"{line} ({places[-1][0]}, line {places[-1][1]})" if places else line
