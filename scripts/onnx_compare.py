#!/usr/bin/env python3
"""Networks that scripts/onnx_outside.py exported, trained by the runner: `python scripts/onnx_compare.py OUT RUNNER`.

For each file `OUT/NAME-EXPORTER.onnx` a line: the largest relative difference of the losses of 8 AdamW steps on
4 stages from those of PyTorch eager, and how many tensors of the state dict the trained weights have. Ends
with 1 where one is off by more than 1e-6. Needs Python alone.
"""

import json
import shlex
import struct
import subprocess
import sys
import tempfile
from pathlib import Path


def shapes(file):
    with open(file, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}


def trained(onnx, told, runner, folder):
    """Losses and tensors of the network, or why there are none."""
    samples = onnx.parent / f"{onnx.stem.rsplit('-', 1)[0]}.safetensors"
    steps = len(told["losses"])
    commands = [
        f"plan --model {onnx} --loss {told['loss']} --data safetensors:{samples} --no-shuffle --stages 4 --ranks 4 "
        f"--mini-batch {told['batch']} --micro-batches 2 --steps {steps} --optimizer adamw --learning-rate {told['rate']} "
        "--weight-decay 0 -o plan.json",
        f"run plan.json --threads 1 --out run --save-every {steps}",
        "export run --weights weights.safetensors",
    ]
    for command in commands:
        ended = subprocess.run([runner, *shlex.split(command)], cwd=folder, capture_output=True, text=True)
        if ended.returncode:
            return None, ended.stderr.strip().splitlines()[-1]
    lines = [json.loads(line) for line in open(folder / "run/rank-003.jsonl")]
    losses = [line["loss"] for line in lines if line.get("loss") is not None]
    return losses, shapes(folder / "weights.safetensors")


def main():
    out, runner = Path(sys.argv[1]).resolve(), str(Path(sys.argv[2]).resolve())
    worst = 0.0
    for onnx in sorted(out.glob("*.onnx")):
        told = json.loads((out / f"{onnx.stem.rsplit('-', 1)[0]}.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            losses, tensors = trained(onnx, told, runner, Path(folder))
        if losses is None:
            print(f"{onnx.stem:24} {tensors}")
            worst = float("inf")
            continue
        difference = max(abs(ours - theirs) / abs(theirs) for ours, theirs in zip(losses, told["losses"], strict=True))
        worst = max(worst, difference)
        there = sum(tensors.get(name) == shape for name, shape in told["state"].items())
        print(f"{onnx.stem:24} {difference:.1e}  {there} of {len(told['state'])} tensors", flush=True)
    sys.exit(0 if worst <= 1e-6 else 1)


if __name__ == "__main__":
    main()
