#!/usr/bin/env python3
"""Writes the small graphs of tests/data/recompute: forward and backward passes of networks made up here.

    scripts/recompute_graphs.py tests/data/recompute

Operations are about those that PyTorch runs; a value's bytes are its elements times 4. A node's time
is a roofline's: max(operations / 156e12, bytes / 1.5e12) seconds and 2 microseconds.  Same output every time.
"""
import gzip, json, os, sys

FLOPS, BANDWIDTH, LAUNCH = 156e12, 1.5e12, 2.0


class Net:
    """A network in the order of computation, and how each node's gradient follows."""

    def __init__(self, model):
        self.model, self.nodes, self.sources, self.tape = model, [], [], []

    def source(self, elements, kind):
        self.sources.append({"id": "s%d" % len(self.sources), "bytes": 4 * elements, "kind": kind})
        return 4 * elements

    def node(self, op, elements, inputs, phase="F", flops=0, weights=0, **more):
        at = len(self.nodes)
        moved = 4 * elements + weights + sum(self.nodes[i]["bytes"] for i in inputs)
        time = round(1e6 * max(flops / FLOPS, moved / BANDWIDTH) + LAUNCH, 3)
        self.nodes.append({"id": at, "name": "%s_%d" % (op, at), "op": op, "bytes": 4 * elements, "time": time,
                           "inputs": sorted(set(inputs)), "phase": phase, **more})
        return at

    def op(self, op, elements, inputs, saved, flops=0, parameter=0):
        """A differentiable operation; `saved` are the nodes its backward reads besides the gradient."""
        weights = self.source(parameter, "parameter") if parameter else 0
        at = self.node(op, elements, inputs, flops=flops, weights=weights)
        self.tape.append((at, inputs, [at if s == "out" else s for s in saved], flops, parameter))
        return at

    def dropout(self, of):
        size = self.nodes[of]["bytes"] // 4
        mask = self.node("mask", (size + 3) // 4, [], rng=True)
        at = self.node("dropout", size, [of, mask])
        self.tape.append((at, [of], [mask], 0, 0))
        return at

    def backward(self, loss):
        self.nodes[loss].update(output="loss", output_bytes=4)
        gradient = {}
        for at, inputs, saved, flops, parameter in reversed(self.tape):
            own = [gradient[at]] if at in gradient else []
            op = self.nodes[at]["op"]
            if parameter:
                self.node(op + ".wgrad", parameter, own + saved, "B", flops,
                          output="gradient", output_bytes=4 * parameter)
            for i in inputs:
                if i is None or self.nodes[i]["op"] == "input":
                    continue
                size = self.nodes[i]["bytes"] // 4
                part = self.node(op + ".grad", size, own + ([] if parameter else saved), "B", flops)
                if i in gradient:
                    part = self.node("add", size, [gradient[i], part], "B")
                gradient[i] = part

    def write(self, folder):
        graph = {"format": "recompute-graph/1", "model": self.model, "made_with": {"script": "scripts/recompute_graphs.py"},
                 "output_policy": "freed", "sources": self.sources, "nodes": self.nodes}
        text = json.dumps(graph, separators=(",", ":")).encode()
        with open(os.path.join(folder, self.model + ".json.gz"), "wb") as f:
            f.write(gzip.compress(text, 9, mtime=0))
        print("%-14s %4d nodes" % (self.model, len(self.nodes)))


def transformer(layers=3, batch=8, length=256, hidden=256, heads=4):
    net, tokens = Net("transformer3"), batch * length
    size, scores = tokens * hidden, batch * heads * length * length
    x = net.op("embedding", size, [], [], parameter=1000 * hidden)

    def linear(x, into, out):
        return net.op("addmm", tokens * out, [x], [x], 2 * tokens * into * out, into * out)

    def norm(x):
        return net.op("layer_norm", size, [x], [x], parameter=2 * hidden)

    for _ in range(layers):
        h = norm(x)
        q, k, v = (linear(h, hidden, hidden) for _ in range(3))
        product = 2 * batch * length * length * hidden
        a = net.op("bmm", scores, [q, k], [q, k], product)
        a = net.dropout(net.op("softmax", scores, [a], ["out"]))
        h = linear(net.op("bmm", size, [a, v], [a, v], product), hidden, hidden)
        x = net.op("add", size, [x, net.dropout(h)], [])
        h = linear(norm(x), hidden, 4 * hidden)
        h = linear(net.op("gelu", 4 * size, [h], [h]), 4 * hidden, hidden)
        x = net.op("add", size, [x, net.dropout(h)], [])
    x = linear(norm(x), hidden, 1000)
    x = net.op("log_softmax", tokens * 1000, [x], ["out"])
    net.backward(net.op("nll", 1, [x], []))
    return net


def unet(depth=4, batch=4, side=128, channels=16):
    net = Net("unet4")

    def conv(inputs, size, into, out):
        pixels = batch * size * size
        x = net.op("conv", pixels * out, inputs, inputs, 18 * pixels * into * out, 9 * into * out)
        x = net.op("batch_norm", pixels * out, [x], [x], parameter=2 * out)
        return net.op("relu", pixels * out, [x], ["out"])

    x = net.node("input", batch * side * side * 3, [])
    skips, into = [], 3
    for level in range(depth):
        out, size = channels << level, side >> level
        x = conv([conv([x], size, into, out)], size, out, out)
        skips.append(x)
        x = net.op("max_pool", batch * out * size * size // 4, [x], [x])
        into = out
    for level in reversed(range(depth)):
        out, size = channels << level, side >> level
        x = net.op("upsample", batch * into * size * size, [x], [])
        joined = net.op("cat", batch * (into + out) * size * size, [x, skips[level]], [])
        x = conv([joined], size, into + out, out)
        into = out
    net.backward(net.op("mse", 1, [x], [x]))
    return net


def perceptron(layers=3, batch=1024, width=512):
    net = Net("perceptron3")
    x = None
    for _ in range(layers):
        inputs = [] if x is None else [x]
        x = net.op("addmm", batch * width, inputs, inputs, 2 * batch * width * width, width * width)
        x = net.op("relu", batch * width, [x], ["out"])
    net.backward(net.op("loss", 1, [x], [x]))
    return net


if __name__ == "__main__":
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for net in (transformer(), unet(), perceptron()):
        net.write(folder)
