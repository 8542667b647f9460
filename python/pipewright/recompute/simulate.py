"""Peak of live tensor bytes and time of a sequence, as the executor runs it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from .joint import Joint, Value

# Bytes of a saved generator state: what torch.get_rng_state and torch.cuda.get_rng_state return.
STATE_BYTES = {"cpu": 5056, "cuda": 16}


@dataclass(frozen=True)
class Sequence:
    """Operations in the order of computation, some of them repeated; `operations[:cut]` run in the
    forward pass."""

    operations: tuple[int, ...]
    cut: int
    # For each place, the results that somebody reads before they are computed again.
    kept: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Prediction:
    """Peak in bytes and time in microseconds of one forward and backward pass."""

    peak: int
    time: float
    # Live bytes while each operation of the sequence runs.
    live: tuple[int, ...]


def plain(joint: Joint) -> Sequence:
    """Every operation once, in the graph's order."""
    return sequence(joint, joint.order, joint.cut)


def sequence(joint: Joint, operations: list[int], cut: int) -> Sequence:
    """A sequence without the computations that nobody reads.

    Draws of random numbers stay, for those after them draw the same numbers then.
    """
    # Only what the user sees must be there at the cut; the rest is read by somebody later.
    ends = {len(operations): _outputs(joint), cut: _forward_outputs(joint)}
    first: dict[int, int] = {}
    for place, operation in enumerate(operations):
        first.setdefault(operation, place)
    wanted: set[Value] = set()
    kept: list[tuple[int, frozenset[int]]] = []
    before = 0
    for place in range(len(operations), -1, -1):
        wanted |= ends.get(place, set())
        if place == 0:
            break
        index = operations[place - 1]
        results = frozenset(r for o, r in wanted if o == index)
        draws = joint.operations[index].random and first[index] == place - 1
        if not results and not draws:
            continue
        wanted -= {(index, result) for result in results}
        wanted |= joint.operations[index].reads
        kept.append((index, results))
        before += place <= cut
    assert not wanted, f"nobody computes {sorted(wanted)}"
    kept.reverse()
    return Sequence(tuple(o for o, _ in kept), before, tuple(r for _, r in kept))


def predict(joint: Joint, run: Sequence) -> Prediction:
    """What a sequence takes.

    A result lives from its computation to the last one that reads it before it is computed again;
    outputs live to the end of their pass, gradients and what the user holds to the end of the step.
    """
    steps = len(run.operations)
    change = [0] * (steps + 2)

    def live(first: int, last: int, size: int) -> None:
        change[first] += size
        change[last + 1] -= size

    made: dict[Value, int] = {}
    last: dict[Value, int] = {}

    def end(value: Value) -> None:
        live(made.pop(value), last.pop(value), joint.bytes(value))

    for place, index in enumerate(run.operations):
        if place == run.cut:
            _read(made, last, _forward_outputs(joint), run.cut)
        operation = joint.operations[index]
        for value in operation.reads:
            last[value] = place
        for result, size in enumerate(operation.cost.results):
            value = (index, result)
            if value in made:
                end(value)
            if result in run.kept[place]:
                made[value] = last[value] = place
            else:
                live(place, place, size)
        live(place, place, operation.cost.workspace)
    _read(made, last, _outputs(joint), steps)
    for value in list(made):
        end(value)
    live(run.cut, steps, sum(_storage(node) for node in joint.tangents))
    for first, until, size in _states(joint, run) + _copies(joint, run):
        live(first, until, size)
    change[steps] += _accumulated(joint)
    total, levels = 0, []
    for step in range(steps + 1):
        total += change[step]
        levels.append(total)
    time = sum(joint.operations[index].cost.time for index in run.operations)
    return Prediction(max(levels), time, tuple(levels))


def largest_step(joint: Joint) -> int:
    """Bytes that no sequence goes below: the largest operation with what it reads, or the outputs."""
    sizes = [sum(joint.bytes(value) for value in _outputs(joint))]
    for operation in joint.operations:
        read = sum(joint.bytes(value) for value in operation.reads)
        sizes.append(read + sum(operation.cost.results) + operation.cost.workspace)
    return max(sizes)


def mutated_reads(joint: Joint, run: Sequence) -> list[fx.Node]:
    """Inputs that the step writes and that operations behind the cut read."""
    read = {
        root
        for index in run.operations[run.cut :]
        for node in joint.operations[index].node.all_input_nodes
        if (root := joint.roots.get(node)) in joint.mutated
    }
    outputs = {joint.roots[n] for n in joint.backward_outputs if n is not None}
    return [node for node in joint.primals if node in read or (node in joint.mutated and node in outputs)]


def repeated_draws(joint: Joint, run: Sequence) -> list[int]:
    """Random operations that a sequence computes more than once."""
    count: dict[int, int] = {}
    for index in run.operations:
        count[index] = count.get(index, 0) + 1
    return [i for i, times in count.items() if times > 1 and joint.operations[i].random]


def device_of(joint: Joint, index: int) -> str:
    """The device that an operation runs on."""
    value = joint.operations[index].node.meta["val"]
    first = value if hasattr(value, "device") else next(v for v in value if v is not None)
    return str(first.device)


def _outputs(joint: Joint) -> set[Value]:
    """What is there when the step ends: gradients, and what the user holds."""
    user = joint.forward_outputs[joint.replaced :]
    return set(joint.values([*user, *joint.backward_outputs]))


def _forward_outputs(joint: Joint) -> set[Value]:
    return set(joint.values(joint.forward_outputs))


def _read(made: dict[Value, int], last: dict[Value, int], values: set[Value], place: int) -> None:
    for value in values:
        if value in made:
            last[value] = place


def _storage(node: fx.Node) -> int:
    return int(node.meta["val"].untyped_storage().nbytes())


def _states(joint: Joint, run: Sequence) -> list[tuple[int, int, int]]:
    """Saved generator states: from the first draw to the last."""
    spans = []
    for index in repeated_draws(joint, run):
        places = [place for place, other in enumerate(run.operations) if other == index]
        size = STATE_BYTES.get(device_of(joint, index).partition(":")[0], 0)
        spans.append((places[0], places[-1], size))
        # A repetition puts the generator's own state aside.
        spans += [(place, place, size) for place in places[1:]]
    return spans


def _copies(joint: Joint, run: Sequence) -> list[tuple[int, int, int]]:
    """Copies of inputs that the step writes, to the last operation that reads them."""
    spans = []
    for node in mutated_reads(joint, run):
        places = [
            place
            for place, index in enumerate(run.operations)
            if any(joint.roots.get(n) is node for n in joint.operations[index].node.all_input_nodes)
        ]
        spans.append((0, max(places, default=run.cut), _storage(node)))
    return spans


def _accumulated(joint: Joint) -> int:
    """Bytes of gradients that autograd copies because their strides are not the parameter's, or
    because another parameter has the same one."""
    total, seen = 0, set()
    for primal, gradient in zip(joint.primals, joint.backward_outputs, strict=False):
        if gradient is None:
            continue
        value, parameter = gradient.meta["val"], primal.meta["val"]
        if gradient in seen or value.stride() != parameter.stride():
            total += value.numel() * value.element_size()
        seen.add(gradient)
    return total
