"""Step time of PyTorch on the networks that `runner plan --model` calls by the same name.

Usage: step.py NETWORK MINI_BATCH THREADS|cuda|cuda-compiled [STEPS] [f32|tf32|bf16]

Prints one line of JSON: the parameters, and the median, fastest and slowest step in milliseconds.
A step is what a user's loop does: zero_grad, forward, loss, backward, SGD with momentum 0.9; data
lies in memory (of the GPU). The convolutions run in channels_last as well, PyTorch's own advice, and
the faster of the two layouts counts; on a GPU that is channels_last in every row that was measured, and it
alone is run: choosing algorithms takes longer than all steps. f32 is single precision without tf32, tf32 with it in products
and convolutions, bf16 is autocast: as users do it, weights stay in single precision. SGD is what it is by
default, without fused=True; cuda-compiled compiles the network, not the optimizer.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def fc32(width):
    layers = []
    for i in range(31):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10)), (width,), 10


def vgg16(size):
    layers, channels = [], 3
    for width, repeat in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(repeat):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    features = 512 * (size // 32) ** 2
    layers += [nn.Flatten(), nn.Linear(features, 4096), nn.ReLU(inplace=True)]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers), (3, size, size), 1000


class Basic(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != width:
            conv = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            conv = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def resnet50(size):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)]
    layers += [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers), (3, size, size), 1000


def resnet18(size):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)]
    layers += [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, width in enumerate([64, 128, 256, 512]):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Basic(inputs, width, stride))
            inputs = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*layers), (3, size, size), 1000


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        parts = self.qkv(self.ln_1(x)).split(hidden, dim=2)
        shape = (batch, length, self.heads, hidden // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.out(F.gelu(self.fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, sequence, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(sequence, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.positions.weight[: x.shape[1]]
        return self.head(self.ln_f(self.blocks(x))).flatten(0, 1)


def build(name):
    """The network, one sample's shape (None: tokens), classes, positions of a sample."""
    family, _, rest = name.partition(":")
    if family == "transformer":
        n = {k: int(v) for k, v in (part.split("=") for part in rest.split(","))}
        keys = ["layers", "hidden", "heads", "sequence", "vocabulary"]
        net = Gpt(*(n[key] for key in keys))
        return net, None, n["vocabulary"], n["sequence"]
    families = {"fc32": fc32, "vgg16": vgg16, "resnet18": resnet18, "resnet50": resnet50}
    return *families[family](int(rest or 224)), 1


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
        torch.set_num_threads(int(where))
    layouts = {"contiguous": torch.contiguous_format}
    if name.startswith(("vgg", "resnet")):
        layouts["channels_last"] = torch.channels_last
        if device == "cuda":
            del layouts["contiguous"]
    found = []
    for layout, value in layouts.items():
        compiled = where == "cuda-compiled"
        parameters, times = measure(name, batch, steps, value, device, compiled, precision)
        found.append((statistics.median(times), min(times), max(times), layout))
    median, fastest, slowest, layout = min(found)
    line = {"torch": torch.__version__, "parameters": parameters, "layout": layout}
    line |= {"median": median, "fastest": fastest, "slowest": slowest}
    print(json.dumps(line))


main()
