"""Networks of transformers, traced and cut before every node: python scripts/pytorch/outside.py [NAME..]

Needs torch, transformers and the package. Configurations are small and random. For each cut, output and
gradients of the two pieces are compared with the network's: the largest difference, as a share of the largest value.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers as t
from torch import nn

import pipewright as pw
from pipewright._cut import cut

warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))

WIDTH = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
DECODER = WIDTH | dict(vocab_size=100, max_position_embeddings=64)
GROUPED = DECODER | dict(num_key_value_heads=2)
PLAIN = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=100, attn_pdrop=0.0, embd_pdrop=0.0)
T5 = dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100, dropout_rate=0.0)
CONVNEXT = dict(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 2, 1], image_size=32)


class Logits(nn.Module):
    """A network that gives only its logits."""

    def __init__(self, model: nn.Module, names: list[str], **options: Any) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.options).logits


def decoder(model: nn.Module) -> Logits:
    return Logits(model, ["input_ids"], use_cache=False)


tokens, images = (torch.randint(5, 90, (2, 16)),), (torch.randn(2, 3, 32, 32),)
NETWORKS = {
    "gpt2": (lambda: decoder(t.GPT2LMHeadModel(t.GPT2Config(**GPT2, resid_pdrop=0.0))), tokens),
    "llama": (lambda: decoder(t.LlamaForCausalLM(t.LlamaConfig(**GROUPED))), tokens),
    "mistral": (lambda: decoder(t.MistralForCausalLM(t.MistralConfig(**GROUPED))), tokens),
    "qwen2": (lambda: decoder(t.Qwen2ForCausalLM(t.Qwen2Config(**GROUPED))), tokens),
    "bert": (lambda: Logits(t.BertForMaskedLM(t.BertConfig(**DECODER, **PLAIN)), ["input_ids"]), tokens),
    "t5": (
        lambda: Logits(
            t.T5ForConditionalGeneration(t.T5Config(**T5)), ["input_ids", "decoder_input_ids"], use_cache=False
        ),
        (tokens[0], tokens[0][:, :8]),
    ),
    "vit": (
        lambda: Logits(
            t.ViTForImageClassification(t.ViTConfig(**WIDTH, **PLAIN, image_size=32, patch_size=8)), ["pixel_values"]
        ),
        images,
    ),
    "convnext": (
        lambda: Logits(t.ConvNextForImageClassification(t.ConvNextConfig(**CONVNEXT)), ["pixel_values"]),
        images,
    ),
}


def main() -> None:
    """A line a network."""
    from pieces import difference

    torch.set_num_threads(1)
    print(f"{'network':10} {'nodes':>5} {'cuts':>5} {'refused':>7} {'largest difference':>20}")
    for name in sys.argv[1:] or NETWORKS:
        make, inputs = NETWORKS[name]
        torch.manual_seed(0)
        module = make().train()
        trace = pw.trace(module, inputs, repeats=1)
        names = [node["name"] for node in trace.nodes]
        refused, largest = 0, 0.0
        for at in range(1, len(names)):
            try:
                divided = cut(trace.folded, [names[:at], names[at:]])
            except pw.PipewrightError as error:
                print(f"{name} before {names[at]}: {error}")
                refused += 1
                continue
            largest = max(largest, difference(module, divided, inputs))
        print(f"{name:10} {len(names):5} {len(names) - 1:5} {refused:7} {largest:20.1e}", flush=True)


if __name__ == "__main__":
    main()
