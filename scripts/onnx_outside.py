#!/usr/bin/env python3
"""Networks of transformers as their users export them: tiny random configurations, default arguments.

Needs torch, transformers, onnx, onnxscript, safetensors. `python scripts/onnx_outside.py OUT [NAME..]`
writes for each network and each exporter `OUT/NAME-EXPORTER.onnx`, and for each network
`NAME.safetensors` (samples `x`, labels `y`), `NAME.json` (loss, rate, the losses of 8 AdamW steps of
PyTorch eager on these samples, the shapes of the state dict) and `NAME.state.safetensors` (the state
dict after them). Nothing is
done to the parameters before the export: equal values stay equal, as in any fresh network. Remarks of
the exporter that an import does not read, stack traces first of all, are left out of the files.
"""

import io
import json
import sys
import warnings
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F
import transformers as t
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
LENGTH, VOCABULARY, SAMPLES, BATCH, STEPS, RATE = 8, 40, 32, 4, 8, 1e-3
WIDTH, HEADS, INNER, LAYERS = 16, 4, 32, 4

decoder = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=INNER, max_position_embeddings=LENGTH)
grouped = decoder | dict(num_key_value_heads=2)
no_dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
image = dict(image_size=16, patch_size=8, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=INNER)
special = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def network(name):
    if name == "gpt2":
        return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2))
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**grouped, **special))
    if name == "qwen2":
        return t.Qwen2ForCausalLM(t.Qwen2Config(**grouped, **special))
    if name == "mistral":
        return t.MistralForCausalLM(t.MistralConfig(**grouped, **special))
    if name == "gemma":
        return t.GemmaForCausalLM(t.GemmaConfig(**grouped, head_dim=4, **special))
    if name == "phi":
        return t.PhiForCausalLM(t.PhiConfig(**decoder, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0, **special))
    if name == "bert":
        return t.BertForSequenceClassification(t.BertConfig(**decoder, **no_dropout, classifier_dropout=0.0))
    if name == "roberta":
        return t.RobertaForSequenceClassification(t.RobertaConfig(**decoder | dict(max_position_embeddings=LENGTH + 1), **no_dropout, classifier_dropout=0.0, **special))
    if name == "t5":
        return t.T5EncoderModel(t.T5Config(vocab_size=VOCABULARY, d_model=WIDTH, d_kv=4, d_ff=INNER, num_layers=LAYERS, num_heads=HEADS, dropout_rate=0.0))
    if name == "vit":
        return t.ViTForImageClassification(t.ViTConfig(**image, **no_dropout, num_labels=10))
    if name == "swin":
        return t.SwinForImageClassification(t.SwinConfig(image_size=16, patch_size=1, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0, **no_dropout, num_labels=10))
    if name == "convnext":
        return t.ConvNextForImageClassification(t.ConvNextConfig(hidden_sizes=[4, 8, 12, 16], depths=[1, 1, 2, 1], drop_path_rate=0.0, layer_scale_init_value=1e-6, num_labels=10))
    if name == "clip_text":
        return t.CLIPTextModelWithProjection(t.CLIPTextConfig(**decoder, projection_dim=8, **special))
    if name == "clip_vision":
        return t.CLIPVisionModelWithProjection(t.CLIPVisionConfig(**image, projection_dim=8))
    raise KeyError(name)


NAMES = "gpt2 llama qwen2 mistral gemma phi bert roberta t5 vit swin convnext clip_text clip_vision".split()
DECODERS = "gpt2 llama qwen2 mistral gemma phi".split()
IMAGES = "vit swin convnext clip_vision".split()
REGRESSION = "t5 clip_text clip_vision".split()


def samples(name, net):
    torch.manual_seed(2)
    x = torch.rand(SAMPLES, 3, *[32 if name == "convnext" else 16] * 2) if name in IMAGES else torch.randint(3, VOCABULARY, (SAMPLES, LENGTH))
    with torch.no_grad():
        out = net(x)[0]
    if name in REGRESSION:
        return x, torch.randn_like(out)
    if name in DECODERS:
        return x, torch.roll(x, -1, 1)
    return x, torch.randint(0, out.shape[-1], (SAMPLES,))


def train(name, net, x, y):
    """The losses of AdamW with PyTorch's defaults, without weight decay."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH % SAMPLES, step * BATCH % SAMPLES + BATCH)
        out = net(x[part])[0]
        loss = F.mse_loss(out, y[part]) if name in REGRESSION else F.cross_entropy(out.flatten(0, -2), y[part].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


READ = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node", "pkg.torch.export.ExportedProgram.graph_signature")


def shorten(model):
    """Without the remarks that an import does not read."""
    for node in model.graph.node:
        node.doc_string = ""
        kept = [p for p in node.metadata_props if p.key in READ or "RMSNorm" in p.value and p.key.endswith("class_hierarchy")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    kept = [p for p in model.graph.metadata_props if p.key in READ]
    del model.graph.metadata_props[:]
    model.graph.metadata_props.extend(kept)
    for values in (model.graph.value_info, model.graph.initializer, model.graph.input, model.graph.output):
        for value in values:
            del value.metadata_props[:]


def export(net, x, dynamo, out):
    if dynamo:
        model = torch.onnx.export(net, (x,), dynamo=True, verbose=False).model_proto
    else:
        buffer = io.BytesIO()
        torch.onnx.export(net, (x,), buffer, dynamo=False)
        model = onnx.load_from_string(buffer.getvalue())
    shorten(model)
    onnx.save(model, str(out))


def make(name, folder):
    torch.manual_seed(1)
    net = network(name).eval()
    if name in DECODERS:  # neither exporter of PyTorch 2.8 takes the cache that transformers return
        net.config.use_cache = False
    x, y = samples(name, net)
    save_file({"x": x.contiguous(), "y": y.contiguous()}, str(folder / f"{name}.safetensors"))
    for exporter in ("torchscript", "dynamo"):
        out = folder / f"{name}-{exporter}.onnx"
        try:
            export(net, x[:2], exporter == "dynamo", out)
            print(f"{out.name}: {out.stat().st_size} bytes, {len(onnx.load(str(out)).graph.node)} nodes", flush=True)
        except Exception as error:  # PyTorch's own failure is worth a line, not the end
            out.unlink(missing_ok=True)
            print(f"{out.name}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", flush=True)
    losses = train(name, net, x, y)
    loss = "mse" if name in REGRESSION else "cross-entropy"
    state = {k: v.clone().contiguous() for k, v in net.state_dict().items()}
    shapes = {k: list(v.shape) for k, v in state.items()}
    told = dict(loss=loss, rate=RATE, batch=BATCH, losses=losses, state=shapes)
    (folder / f"{name}.json").write_text(json.dumps(told))
    save_file(state, str(folder / f"{name}.state.safetensors"))


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        make(name, folder)


if __name__ == "__main__":
    main()
