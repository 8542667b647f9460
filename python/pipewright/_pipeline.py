"""Pipelines: stages and schedule of a plan as objects of torch.distributed.pipelining."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _CustomReducer, _Replicate
from torch.utils import _pytree as pytree

from ._again import Again
from ._cut import PREFIX, Cut, Piece, cut
from ._export import export
from ._fold import Folded
from ._malloc import keep_freed
from ._measure import Clock, measure
from ._ranks import Ranks, stage_of, whole
from ._runner import PipewrightError
from ._split import Stage

if TYPE_CHECKING:
    from ._plan import Plan

LossFunction: TypeAlias = Callable[[Any, Any], torch.Tensor]


class Pipeline:
    """The stages of this rank and their schedule.

    `step` is a training step of a mini-batch. `stages` and `schedule` are those of
    torch.distributed.pipelining, for whoever wants to call them without it.
    """

    def __init__(
        self,
        plan: Plan,
        module: nn.Module,
        divided: Cut,
        ranks: Ranks,
        loss_fn: LossFunction,
        device: torch.device,
        scale: bool,
        fsdp: bool,
    ) -> None:
        self.plan = plan
        self._module = module
        self._device = device
        if device.type == "cpu":
            keep_freed()
        self.ranks = ranks
        self._cut = divided
        self._count = plan.micro_batches
        exported = divided.folded.exported
        self._samples = exported.samples
        pairs = zip(exported.inputs, exported.values, strict=True)
        self._arguments = {node.name: value for node, value in pairs}
        self._targets: list[Any] = []
        self._batched = {
            name: _is_batched(value, self._samples)
            for name, value in self._arguments.items()
            if isinstance(value, torch.Tensor)
        }
        here = sorted({stage_of(x) for x in plan.actions[ranks.lane] if x})
        again = plan.recomputed
        self.stages = [self._stage(divided.piece(at), at, device, at in again) for at in here]
        self._scale = self._count if scale else 1
        ranks.hold(plan.actions, divided.states(), dict(self.named_parameters()), average=not fsdp)
        if fsdp:
            for stage in self.stages:
                ranks.shard(stage.submod)
        self.schedule = self._schedule(loss_fn)

    def _stage(self, piece: Piece, at: int, device: torch.device, again: bool) -> Stage:
        exported = self._cut.folded.exported
        is_first, is_last = at == 0, at == self._cut.stages - 1
        module: nn.Module = Again(piece.module) if again else piece.module
        stage = Stage(
            module.to(device),
            at,
            self._cut.stages,
            device,
            input_args=Piece.meta(exported.tensors if is_first else piece.receives, gradient=not is_first),
            output_args=Piece.meta(self._cut.outputs if is_last else piece.sends, gradient=not is_last),
            group=self.ranks.group,
        )
        stage.in_parts = _in_parts(self.plan)
        return stage

    def _schedule(self, loss_fn: LossFunction) -> Any:
        # Gradients are scaled by way of the loss: the runtime scales those of a stage, which is once too often
        # where two stages have one parameter, and never in a backward pass in two parts.
        scale = self._scale

        def loss(output: Any, target: torch.Tensor) -> torch.Tensor:
            # `step` gives places of micro-batches in place of targets: torch divides tensors only.
            return loss_fn(output, self._targets[int(target)] if self._targets else target) / scale

        runtime = getattr(schedules, "_PipelineScheduleRuntime", None)
        if runtime is None:
            raise PipewrightError(
                f"torch {torch.__version__} has no _PipelineScheduleRuntime, which runs a plan's schedule; "
                "use a version from 2.8 that has it"
            )
        spec = {name: TensorChunkSpec(0) if own else _Replicate for name, own in self._batched.items()}
        schedule = runtime(
            self.stages,
            self._count,
            loss_fn=loss,
            args_chunk_spec=tuple(spec.values()) if self._has(0) else None,
            kwargs_chunk_spec={PREFIX + name: spec[name] for name in self._cut.keywords},
            output_merge_spec=self._merged(),
            scale_grads=False,
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "schedule.csv")
            with path.open("w", newline="") as file:
                csv.writer(file).writerows(self.plan.actions)
            schedule._load_csv(str(path))
        if self._device.type == "cpu":
            _receive_first(schedule)
        return schedule

    def _has(self, stage: int) -> bool:
        return any(own.stage_index == stage for own in self.stages)

    def _merged(self) -> Any:
        """How outputs of micro-batches become one: along the first axis, and scalars stacked."""
        stacked = _CustomReducer(None, lambda old, new: torch.cat([*([] if old is None else [old]), new[None]]))
        merged = tuple(TensorChunkSpec(0) if x.meta["val"].dim() else stacked for x in self._cut.outputs)
        return merged[0] if self._cut.folded.exported.is_single else merged

    def step(self, *args: Any, target: Any, **kwargs: Any) -> torch.Tensor | None:
        """Forward and backward pass of a mini-batch of this replica, which every rank gives whole.

        Arguments are matched by name with the traced ones. The target is a tensor with a row a sample, or tuples
        and dictionaries of such, as the loss takes them. Gradients are added to `grad` of the parameters, averaged
        over micro-batches and replicas. Returns the mean loss on the rank that has the last stage, else None.
        """
        given = self._given(args, kwargs)
        targets = self._divided(target)
        losses: list[torch.Tensor] = []
        own = dict(self.named_parameters())
        before = self.ranks.set_aside(own)
        self._targets = targets if self._has(self._cut.stages - 1) else []
        try:
            self.schedule.step(
                *(given.values() if self._has(0) else ()),
                target=torch.arange(self._count, device="cpu") if self._targets else None,
                losses=losses,
                **{PREFIX + name: given[name] for name in self._cut.keywords},
            )
        finally:
            self._targets = []
        self.ranks.reduce(own, before)
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else None

    def _divided(self, target: Any) -> list[Any]:
        """The targets of each micro-batch."""
        leaves, form = pytree.tree_flatten(target)
        want = self._samples * self._count
        for leaf in leaves or [None]:
            if not isinstance(leaf, torch.Tensor) or leaf.shape[:1] != (want,):
                got = f"{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else f"{leaf!r:.80}"
                raise PipewrightError(
                    f"step got the target {got}, the plan has {want} samples: give a tensor with {want} rows, or a "
                    "tuple or dictionary of such"
                )
        # A rank without the last stage only checks.
        here = leaves if self._has(self._cut.stages - 1) else []
        parts = zip(*(leaf.to(self._device).tensor_split(self._count) for leaf in here), strict=True)
        return [pytree.tree_unflatten(part, form) for part in parts]

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        assert self.plan.trace is not None
        want = self._samples * self._count
        leaves = self.plan.trace.matched(args, kwargs)
        given = {}
        for (name, example), value in zip(self._arguments.items(), leaves, strict=True):
            if not isinstance(example, torch.Tensor):
                if isinstance(value, torch.Tensor) or value != example:
                    raise PipewrightError(
                        f"step got {name}={value!r:.80}, which is {example!r} in the trace and part of the graph; "
                        "trace again"
                    )
                continue
            if not isinstance(value, torch.Tensor):
                raise PipewrightError(f"step got {name}={value!r:.80}, which is a tensor in the trace; give a tensor")
            if self._batched[name] and value.shape[:1] != (want,):
                raise PipewrightError(
                    f"step got {len(value) if value.dim() else 'no'} samples of `{name}`, the plan has {want}: "
                    f"{self._count} micro-batches of {self._samples}"
                )
            skipped = 1 if self._batched[name] else 0
            form, traced = (f"{x.dtype} {list(x.shape[skipped:])}" for x in (value, example))
            if form != traced:
                raise PipewrightError(
                    f"step got {form} for a sample of `{name}`, the module was traced with {traced}; shapes are part "
                    "of a pipeline: pad, or trace again"
                )
            given[name] = value.to(self._device).contiguous()
        return given

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This rank's parameters by their names in the module, each once."""
        seen: set[int] = set()
        for stage in self.stages:
            for name, parameter in _own(stage.submod).named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name, parameter

    def parameters(self) -> Iterator[nn.Parameter]:
        """This rank's parameters, for its optimizer; an empty one where stages have none, as optimizers want some."""
        own = [parameter for _, parameter in self.named_parameters()]
        return iter(own or [nn.Parameter(torch.empty(0, device=self._device))])

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers of all stages, on every rank, by the module's own names.

        All ranks call it.
        """
        own: dict[str, torch.Tensor] = {}
        for stage in self.stages:
            state = _own(stage.submod).state_dict().items()
            own |= {name: whole(value.detach()).cpu() for name, value in state}
        return self.ranks.gather(own, self._module)


def _own(stage: nn.Module) -> nn.Module:
    """A stage with the names of the module."""
    return stage.stage if isinstance(stage, Again) else stage


def _in_parts(plan: Plan) -> bool:
    """Whether backward passes come in two parts, I and W."""
    return any(action.rstrip("0123456789")[-1] in "IW" for row in plan.actions for action in row if action)


def _receive_first(schedule: Any) -> None:
    """Asks for all messages of a step at its begin, in their order; each has a place of its own.

    Gloo sends what the other side has asked for. Asked for when it is needed, a message waits until the
    sender's thread for messages gets the core that computes. NCCL wants receives where their sends are.
    """
    receives = (schedules._ComputationType.RECV_F, schedules._ComputationType.RECV_B)
    for order in schedule.pipeline_order_with_comms.values():
        order.sort(key=lambda action: action.computation_type not in receives)


def _is_batched(value: Any, samples: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == samples


def build(
    plan: Plan,
    module: nn.Module | None,
    rank: int | None,
    loss_fn: LossFunction,
    device: str | torch.device | None,
    scale: bool,
    fsdp: bool,
) -> Pipeline:
    """See `Plan.pipeline`."""
    if plan.trace is None:
        raise PipewrightError(
            "the plan has no trace: give that of its module, Plan.load(path, trace=pipewright.trace(module, args))"
        )
    if not dist.is_initialized():
        raise PipewrightError(
            "torch.distributed is not initialised: start by torchrun and call init_process_group first"
        )
    plan.check_schedule()
    if plan.tensor > 1:
        raise PipewrightError(
            f"the plan has tensor groups of {plan.tensor}, which stages of a module do not: plan with tensor=1"
        )
    if fsdp and plan.replicas == 1:
        raise PipewrightError("fsdp=True divides parameters among replicas, and the plan has one: plan with replicas=2")
    if fsdp and _in_parts(plan):
        raise PipewrightError(
            f"fsdp=True wants backward passes as a whole, and {plan.schedule} divides them: plan with schedule=1f1b, "
            "gpipe or interleaved"
        )
    ranks = Ranks(len(plan.actions), plan.replicas, rank)
    module = plan.trace.module if module is None else module
    where = torch.device(device) if device is not None else next(module.parameters()).device
    divided = cut(_folded(plan, module), plan.stages)
    return Pipeline(plan, module, divided, ranks, loss_fn, where, scale, fsdp)


def _folded(plan: Plan, module: nn.Module) -> Folded:
    """The graph for micro-batches of the plan, whose size is part of a graph."""
    trace = plan.trace
    assert trace is not None
    samples = plan.mini_batch // (plan.micro_batches * plan.replicas)
    if module is trace.module and samples == trace.samples:
        return trace.folded

    def resized(value: Any) -> Any:
        if not _is_batched(value, trace.samples):
            return value
        return value[torch.arange(samples, device=value.device) % trace.samples]

    args, kwargs = pytree.tree_map(resized, (trace.args, trace.kwargs))
    exported = export(module, args, kwargs)
    return measure(exported, Clock(torch.device("cpu")), repeats=0)[0]
