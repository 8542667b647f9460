"""Ceilings of a GPU by PyTorch: bytes a second of a copy, TFLOP/s of a product in bf16."""

import json

import torch


def seconds(work, repeats):
    """The quickest of so many."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats + 3)]
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return min(begin.elapsed_time(end) for begin, end in events[3:]) / 1e3


source = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
target = torch.empty_like(source)
copy = 2 * source.numel() / seconds(lambda: target.copy_(source), 10)
n = 8192
a, b = (torch.randn(n, n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
product = 2 * n**3 / seconds(lambda: a @ b, 10)
print(json.dumps({"torch": torch.__version__, "copy_gb_per_s": copy / 1e9, "bf16_tflops": product / 1e12}))
