"""Timelines: what each rank does when, read from traces, drawn as SVG."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_ACTION = re.compile(r"(\d+)([A-Z])(\d+)")


@dataclass(frozen=True)
class Span:
    """One action of a rank. Times in seconds from the begin of the step."""

    rank: int
    action: str
    """As PyTorch's CSV has it: `0F1` is the forward pass of micro-batch 1 on stage 0; `optimizer`."""
    start: float
    end: float

    @property
    def stage(self) -> int | None:
        """Its stage; none of an optimizer's update."""
        found = _ACTION.fullmatch(self.action)
        return int(found[1]) if found else None

    @property
    def kind(self) -> str:
        """`F`, `B`, `I`, `W`, or `O` for an update."""
        found = _ACTION.fullmatch(self.action)
        return found[2] if found else "O"

    @property
    def micro_batch(self) -> int | None:
        """Its micro-batch; none of an optimizer's update."""
        found = _ACTION.fullmatch(self.action)
        return int(found[3]) if found else None


def read(text: str, step: int | None = None) -> list[Span]:
    """The actions of one step of a trace: of the last one, where none is named."""
    trace = json.loads(text)
    header = {one["number"]: one["start"] for one in trace["pipewright"]["steps"]}
    step = max(header) if step is None else step
    begin = header[step] / 1e9
    spans = []
    for event in trace["traceEvents"]:
        if event["ph"] != "X" or event["tid"] != 0 or event["args"].get("step") != step:
            continue
        start = event["ts"] / 1e6 - begin
        action = event["args"].get("action", "optimizer")
        spans.append(Span(event["pid"], action, start, start + event["dur"] / 1e6))
    return sorted(spans, key=lambda span: (span.rank, span.start))


_COLOURS = {"F": "#4c78a8", "B": "#f58518", "I": "#f58518", "W": "#ffbf79", "O": "#9d9d9d"}
_WIDTH, _ROW, _LEFT = 960, 26, 64


def svg(spans: Sequence[Span], title: str) -> str:
    """A row a rank, a box an action; its name stands in it where there is room."""
    ranks = max((span.rank for span in spans), default=0) + 1
    whole = max((span.end for span in spans), default=0.0) or 1.0
    height = ranks * _ROW + 44
    scale = (_WIDTH - _LEFT - 8) / whole
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" '
        'font-family="sans-serif" font-size="11" role="img">',
        f'<title>{escape(title)}</title><text x="4" y="14">{escape(title)}</text>',
    ]
    for rank in range(ranks):
        parts.append(f'<text x="4" y="{24 + rank * _ROW + 16}">rank {rank}</text>')
    for span in spans:
        x, width = _LEFT + span.start * scale, (span.end - span.start) * scale
        y = 24 + span.rank * _ROW
        tip = f"{span.action}: {1e3 * (span.end - span.start):.3f} ms"
        parts.append(
            f'<g><title>{tip}</title><rect x="{x:.2f}" y="{y}" width="{max(width, 0.3):.2f}" '
            f'height="{_ROW - 4}" fill="{_COLOURS[span.kind]}" stroke="white" stroke-width="0.5"/>'
        )
        if width > 7 * len(span.action) and span.kind != "O":
            parts.append(f'<text x="{x + 3:.2f}" y="{y + 15}" fill="white">{span.action}</text>')
        parts.append("</g>")
    axis = 24 + ranks * _ROW + 14
    parts.append(f'<text x="{_LEFT}" y="{axis}">0</text>')
    parts.append(f'<text x="{_WIDTH - 8}" y="{axis}" text-anchor="end">{1e3 * whole:.3f} ms</text></svg>')
    return "".join(parts)
