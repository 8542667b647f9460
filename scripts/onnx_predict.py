#!/usr/bin/env python3
"""Outputs of ONNX files by the runner and by onnxruntime: `python scripts/onnx_predict.py RUNNER FILE..`.

Needs numpy, onnx, onnxruntime, safetensors. Each network gets four samples, drawn from a fixed seed, runs on two
stages, and a line says the largest difference of its first output, relative to the largest output. Ends
with 1 where one is off by more than 1e-5. Files that hold a loss, or train their batch norms, have no
output to compare.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

SAMPLES = 4
TOKENS = 16  # lies below every vocabulary of tests/data


def draw(values, rng):
    """Samples for an input of the file: `values` is its type."""
    # The first axis is the batch, others that are open get the length below.
    sizes = [dim.dim_value or 8 for dim in values.shape.dim]
    open_sizes = {dim.dim_param: 8 for dim in values.shape.dim[1:] if not dim.dim_value}
    shape = [SAMPLES, *sizes[1:]]
    if values.elem_type == onnx.TensorProto.INT64:
        return rng.integers(3, TOKENS, shape, dtype=np.int64), open_sizes
    return rng.standard_normal(shape, dtype=np.float32), open_sizes


def theirs(file, x):
    """The first output, in batches of what the file allows."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    batch = given.shape[0] if isinstance(given.shape[0], int) else SAMPLES
    parts = [session.run(None, {given.name: x[at : at + batch]})[0] for at in range(0, SAMPLES, batch)]
    return np.concatenate(parts)


def ours(runner, file, x, sizes, folder):
    save_file({"x": x}, f"{folder}/x.safetensors")
    size = [word for name, number in sizes.items() for word in ("--size", f"{name}={number}")]
    commands = [
        ["plan", "--model", file, "--loss", "mse", *size, "--stages", "2", "--replicas", "1", "--mini-batch", "4", "-o", "plan.json"],
        ["predict", "plan.json", "--data", "safetensors:x.safetensors", "-o", "y.safetensors"],
    ]
    for command in commands:
        ended = subprocess.run([runner, *command], cwd=folder, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr.strip().splitlines()[-1])
    return load_file(f"{folder}/y.safetensors")["y"]


def main():
    runner, files = str(Path(sys.argv[1]).resolve()), [str(Path(file).resolve()) for file in sys.argv[2:]]
    worst = 0.0
    for file in files:
        graph = onnx.load(file, load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        trains = any(a.name == "training_mode" and a.i for node in graph.node for a in node.attribute)
        name = f"{Path(file).parent.name}/{Path(file).stem}"
        if len(inputs) != 1 or trains:
            print(f"{name:36} left out: {'batch norms in training' if trains else f'{len(inputs)} inputs'}")
            continue
        x, sizes = draw(inputs[0].type.tensor_type, np.random.default_rng(1))
        with tempfile.TemporaryDirectory() as folder:
            try:
                mine = ours(runner, file, x, sizes, folder)
            except RuntimeError as error:
                absent = "which is not there" in str(error)
                print(f"{name:36} {'left out: its weights are not there' if absent else error}")
                worst = worst if absent else float("inf")
                continue
        try:
            reference = theirs(file, x)
        except Exception as error:  # a file that onnxruntime does not load
            print(f"{name:36} left out: {str(error)[:100]}")
            continue
        difference = np.abs(mine.reshape(reference.shape) - reference).max() / max(np.abs(reference).max(), 1e-30)
        worst = max(worst, difference)
        print(f"{name:36} {difference:.1e}", flush=True)
    sys.exit(0 if worst <= 1e-5 else 1)


if __name__ == "__main__":
    main()
