"""Step time of PyTorch on the networks that `runner plan --model` calls by the same name.

Usage: step.py NETWORK MINI_BATCH THREADS|cuda[-compiled] [STEPS] [f32|tf32|bf16]

Prints one line of JSON: the parameters, and the median, fastest and slowest step in milliseconds.
A step is what a user's loop does: zero_grad, forward, loss, backward, SGD with momentum 0.9; data
lies in memory (of the GPU). The convolutions run in channels_last as well, PyTorch's own advice, and
the faster of the two layouts counts; on a GPU that is channels_last in every row that was measured, and it
alone is run: choosing algorithms takes longer than all steps. f32 is single precision without tf32, tf32 with it in products
and convolutions, bf16 is autocast: as users do it, weights stay in single precision. SGD is what it is by
default, without fused=True; 1-compiled and cuda-compiled compile the network, not the optimizer.
"""

import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

from networks import build


def measure(name, batch, steps, layout, device, compiled, precision):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    net, shape, classes, positions = build(name)
    net = net.to(device, memory_format=layout)
    if shape is None:
        x = torch.randint(classes, (batch, positions))
    else:
        x = torch.randn(batch, *shape)
        x = x.to(memory_format=layout) if x.dim() == 4 else x
    x, target = x.to(device), torch.randint(classes, (batch * positions,), device=device)
    step = torch.compile(net) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    times = []
    for _ in range(steps + 3):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(step(x), target)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    return sum(p.numel() for p in net.parameters()), times[3:]


def main():
    name, batch, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    precision = sys.argv[5] if len(sys.argv) > 5 else "f32"
    device = "cuda" if where.startswith("cuda") else "cpu"
    if device == "cpu":
        torch.set_num_threads(int(where.removesuffix("-compiled")))
    layouts = {"contiguous": torch.contiguous_format}
    if name.startswith(("vgg", "resnet")):
        layouts["channels_last"] = torch.channels_last
        if device == "cuda":
            del layouts["contiguous"]
    found = []
    for layout, value in layouts.items():
        compiled = where.endswith("-compiled")
        parameters, times = measure(name, batch, steps, value, device, compiled, precision)
        found.append((statistics.median(times), min(times), max(times), layout))
    median, fastest, slowest, layout = min(found)
    line = {"torch": torch.__version__, "parameters": parameters, "layout": layout}
    line |= {"median": median, "fastest": fastest, "slowest": slowest}
    print(json.dumps(line))


main()
