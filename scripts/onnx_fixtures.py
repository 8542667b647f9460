#!/usr/bin/env python3
"""Exports the small networks of tests/data/onnx with both of PyTorch's exporters.

Needs torch 2.8, torchvision 0.23, transformers, onnx, onnxscript, safetensors. Run from the
repository root: `python scripts/onnx_fixtures.py tests/data/onnx [NAME..]`. Weights of more than
2 KiB are left out (they point to a `weights.bin` that is absent) but for the networks in WEIGHTS,
which come with one input and its output in `NAME.safetensors`. TRAINING are exported for training, as
the readme says; EXTERNAL is what the newer exporter writes to a path, with every initialiser, sizes
included, in a file beside.
"""

import io
import sys
import warnings
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto
from safetensors.torch import save_file
from torch import nn

warnings.filterwarnings("ignore")
KEEP = 2048


class Block(nn.Module):
    """GPT's block with torch's own attention and keys shared by groups of queries."""

    def __init__(self, width, heads, kv):
        super().__init__()
        self.heads, self.kv, self.d = heads, kv, width // heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv) * self.d)
        self.o = nn.Linear(width, width)
        self.u, self.v = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.n1(x)).split([w, self.kv * self.d, self.kv * self.d], -1)
        q = q.view(b, n, self.heads, self.d).transpose(1, 2)
        k, v = (t.view(b, n, self.kv, self.d).transpose(1, 2) for t in (k, v))
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, w))
        return x + self.v(F.gelu(self.u(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Tied embedding, learnt positions."""

    def __init__(self, width=32, heads=4, kv=4, layers=2, length=16, vocabulary=40):
        super().__init__()
        self.te = nn.Embedding(vocabulary, width)
        self.pe = nn.Parameter(torch.randn(length, width) * 0.1)
        self.b = nn.ModuleList(Block(width, heads, kv) for _ in range(layers))
        self.f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.te(tokens) + self.pe[: tokens.shape[1]]
        for block in self.b:
            x = block(x)
        return F.linear(self.f(x), self.te.weight)


class Unet(nn.Module):
    """Group norm, SiLU, bilinear upsampling, a skip connection."""

    def __init__(self):
        super().__init__()
        part = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
        self.down, self.mid, self.up = part(3, 8), part(8, 8), part(16, 8)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.grow(self.mid(self.pool(a)))
        return self.head(self.up(torch.cat([a, b], 1)))


def image(size=32):
    return torch.randn(2, 3, size, size)


def tokens(length=16, vocabulary=40):
    return torch.randint(0, vocabulary, (2, length))


class Output(nn.Module):
    """The first output of a transformers model."""

    def __init__(self, model):
        super().__init__()
        self.m = model

    def forward(self, x):
        return self.m(x)[0]


def hugging(name, dynamo):
    import transformers as t

    small = dict(vocab_size=40, num_hidden_layers=2, num_attention_heads=4, hidden_size=32)
    if name == "gpt2":
        config = t.GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=4)
        return t.GPT2LMHeadModel(config)
    if name == "bert":
        return t.BertForSequenceClassification(t.BertConfig(intermediate_size=64, max_position_embeddings=16, **small))
    if name == "llama":
        # The older exporter has no grouped queries inside of torch's attention.
        kind = "sdpa" if dynamo else "eager"
        small = small | dict(num_hidden_layers=1, hidden_size=16)
        config = t.LlamaConfig(intermediate_size=32, num_key_value_heads=2, max_position_embeddings=64, **small)
        config._attn_implementation = kind
        return t.LlamaForCausalLM(config)
    if name == "clip":
        # The place of the first token 5; with 2 in its stead transformers takes that of the largest one.
        small = small | dict(num_hidden_layers=1, hidden_size=16)
        config = t.CLIPTextConfig(intermediate_size=32, max_position_embeddings=16, projection_dim=8, eos_token_id=5, **small)
        return t.CLIPTextModelWithProjection(config)
    raise KeyError(name)


def build(name, dynamo):
    """The network and an input."""
    import torchvision.models as tv
    from torchvision.models.convnext import CNBlockConfig
    from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig
    from torchvision.models.mobilenetv3 import InvertedResidualConfig

    if name == "vgg":
        net = tv.vgg.VGG(tv.vgg.make_layers([8, "M", 8, 8, "M"], True), 10)
        net.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        net.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 10))
        return net, image()
    if name == "resnet":
        net = tv.resnet.ResNet(tv.resnet.Bottleneck, [1, 2, 1, 1], num_classes=10)
        return net, image()
    if name == "googlenet":
        return tv.GoogLeNet(num_classes=10, aux_logits=False, init_weights=False), image(64)
    if name == "mobilenet_v2":
        return tv.MobileNetV2(10, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2]]), image()
    if name == "mobilenet_v3":
        row = lambda *a: InvertedResidualConfig(*a, 1, 0.25)
        rows = [row(16, 3, 16, 16, True, "RE", 2), row(16, 3, 72, 24, False, "HS", 2)]
        return tv.MobileNetV3(rows, 64, num_classes=10), image()
    if name == "efficientnet":
        rows = [MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(6, 5, 2, 8, 16, 2)]
        return tv.EfficientNet(rows, 0.2, num_classes=10), image()
    if name == "efficientnet_v2":
        rows = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(4, 3, 2, 8, 16, 1)]
        return tv.EfficientNet(rows, 0.2, num_classes=10, last_channel=32), image()
    if name == "convnext":
        rows = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)]
        return tv.ConvNeXt(rows, 0.0, num_classes=10), image()
    if name == "densenet":
        return tv.DenseNet(8, (2, 2), 16, num_classes=10), image()
    if name == "vit":
        return tv.VisionTransformer(16, 8, 1, 2, 16, 32, num_classes=10), image(16)
    if name == "unet":
        return Unet(), image(16)
    if name == "gpt":
        return Gpt(), tokens()
    if name == "gqa":
        return Gpt(width=24, kv=2, vocabulary=24), tokens(vocabulary=24)
    if name == "batch_norm":
        return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)), image(8)
    if name == "tied":
        return Gpt(width=16, kv=2, layers=1, length=8, vocabulary=24), tokens(8, 24)
    if name == "drop":
        part = lambda i, o: (nn.Conv2d(i, o, 3, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        return nn.Sequential(*part(3, 4), nn.Dropout(0.25), *part(4, 4), nn.Flatten(), nn.Linear(64, 5)), image(8)
    return Output(hugging(name.removeprefix("hf_"), dynamo)), tokens()


NAMES = (
    "vgg resnet googlenet mobilenet_v2 mobilenet_v3 efficientnet efficientnet_v2 convnext densenet vit unet "
    "gpt gqa batch_norm hf_gpt2 hf_bert hf_llama hf_clip"
).split()
# Exported once more for training, by the older exporter.
TRAINING = "tied_training drop_training".split()
EXTERNAL = "external"
# Small enough to keep their weights.
WEIGHTS = {"unet", "gqa", "vit", "batch_norm", "hf_llama", "hf_clip"}


def strip(model):
    """Large weights become references to a file that is absent."""
    offset = 0
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if tensor.data_type != TensorProto.FLOAT or size <= KEEP:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        offset += size


def shorten(model):
    """Without stack traces and the like."""
    for node in model.graph.node:
        node.doc_string = ""
        kept = [p for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    del model.graph.metadata_props[:]
    for values in (model.graph.value_info, model.graph.initializer, model.graph.input, model.graph.output):
        for value in values:
            del value.metadata_props[:]


def export(name, dynamo, folder):
    torch.manual_seed(1)
    net, x = build(name, dynamo)
    net.eval()
    with torch.no_grad():
        # Not the initial numbers, which are often equal: exporters join equal tensors.
        for p in net.parameters():
            p.add_(torch.randn_like(p) * 0.02)
        y = net(x)
    if dynamo:
        program = torch.onnx.export(net, (x,), dynamo=True, verbose=False)
        model = program.model_proto
    else:
        buffer = io.BytesIO()
        axes = {"x": {0: "batch"}}
        torch.onnx.export(net, (x,), buffer, dynamo=False, opset_version=17, input_names=["x"], output_names=["y"], dynamic_axes=axes)
        model = onnx.load_from_string(buffer.getvalue())
    out = Path(folder) / f"{name}{'-dynamo' if dynamo else ''}.onnx"
    if name in WEIGHTS and not dynamo:
        save_file({"x": x.contiguous(), "y": y.contiguous()}, str(out.with_suffix(".safetensors")))
    else:
        strip(model)
    shorten(model)
    onnx.save(model, str(out))
    count = sum(p.numel() for p in net.parameters())
    print(f"{out.name}: {out.stat().st_size} bytes, {count} parameters, output {list(y.shape)}", flush=True)


def export_for_training(name, folder):
    torch.manual_seed(1)
    net, x = build(name.removesuffix("_training"), False)
    net.train()
    buffer = io.BytesIO()
    training = dict(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    names = dict(input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}})
    torch.onnx.export(net, (x,), buffer, dynamo=False, opset_version=17, **training, **names)
    model = onnx.load_from_string(buffer.getvalue())
    shorten(model)
    onnx.save(model, str(Path(folder) / f"{name}.onnx"))
    if name == "tied_training":
        save_file({"x": x.contiguous(), "y": net(x).detach().contiguous()}, str(Path(folder) / f"{name}.safetensors"))
    print(f"{name}: {sum(p.numel() for p in net.parameters())} parameters", flush=True)


def export_external(folder):
    """A tied embedding, written to a path: `external.onnx` and `external.onnx.data`."""
    torch.manual_seed(1)
    net, x = build("tied", True)
    net.eval()
    out = Path(folder) / f"{EXTERNAL}.onnx"
    torch.onnx.export(net, (x,), str(out), dynamo=True, external_data=True, verbose=False)
    with torch.no_grad():
        save_file({"x": x.contiguous(), "y": net(x).contiguous()}, str(out.with_suffix(".safetensors")))
    model = onnx.load(str(out))
    shorten(model)
    beside = f"{out.name}.data"
    (out.parent / beside).unlink()
    onnx.save(model, str(out), save_as_external_data=True, location=beside, size_threshold=0)
    print(f"{EXTERNAL}: {sum(p.numel() for p in net.parameters())} parameters", flush=True)


def main():
    folder, names = sys.argv[1], sys.argv[2:] or [*NAMES, *TRAINING, EXTERNAL]
    for name in names:
        if name in TRAINING:
            export_for_training(name, folder)
            continue
        if name == EXTERNAL:
            export_external(folder)
            continue
        for dynamo in (False, True):
            try:
                export(name, dynamo, folder)
            except Exception as error:  # one exporter failing is worth a line, not the end
                print(f"{name} dynamo={dynamo}: {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()
