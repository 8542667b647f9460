#!/usr/bin/env python3
"""Writes the small networks of tests/data/hf: config, weights and what transformers computes with them.

Needs torch 2.8, transformers 5.23, safetensors. Run from the repository root:
`python scripts/hf_fixtures.py tests/data/hf`.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

LENGTH, VOCABULARY, HIDDEN = 6, 12, 8


def decoder(config, network, **more):
    """A decoder with LLaMA's blocks."""
    sizes = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=12, num_hidden_layers=2)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16)
    return network(config(**sizes, **heads, **more))


def gpt2(activation):
    sizes = dict(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=HIDDEN, n_layer=2, n_head=2)
    return GPT2LMHeadModel(GPT2Config(**sizes, activation_function=activation))


def bert():
    sizes = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=1, intermediate_size=12)
    more = dict(num_attention_heads=2, max_position_embeddings=8, num_labels=3)
    return BertForSequenceClassification(BertConfig(**sizes, **more))


# Of the two waves of a head of four elements one is long and one is between.
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8,
)
# The usual numbers of these tokens are beyond the vocabulary.
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


NETWORKS = {
    "gpt2": lambda: gpt2("gelu_new"),
    "gpt2-gelu": lambda: gpt2("gelu"),
    "llama": lambda: decoder(LlamaConfig, LlamaForCausalLM, head_dim=4, attention_bias=True),
    "mistral": lambda: decoder(MistralConfig, MistralForCausalLM, sliding_window=6),
    "qwen2": lambda: decoder(Qwen2Config, Qwen2ForCausalLM, tie_word_embeddings=True),
    "qwen3": lambda: decoder(Qwen3Config, Qwen3ForCausalLM, head_dim=4),
    "llama3": lambda: decoder(LlamaConfig, LlamaForCausalLM, head_dim=4, rope_parameters=LLAMA3),
    "phi3": lambda: decoder(Phi3Config, Phi3ForCausalLM, head_dim=4, partial_rotary_factor=0.5, **TOKENS),
    "olmo2": lambda: decoder(Olmo2Config, Olmo2ForCausalLM, **TOKENS),
    "smollm3": lambda: decoder(SmolLM3Config, SmolLM3ForCausalLM, no_rope_layer_interval=2, **TOKENS),
    "bert": bert,
}


def main(folder):
    for name, make in NETWORKS.items():
        torch.manual_seed(len(name))
        network = make().eval()
        # Fresh biases are zero and fresh scales one: mistakes would not be seen.
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        at = folder / name
        network.save_pretrained(at)
        for extra in at.iterdir():
            if extra.name not in ("config.json", "model.safetensors"):
                extra.unlink()
        # Without what differs from release to release.
        config = json.loads((at / "config.json").read_text())
        config.pop("transformers_version", None)
        (at / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        x = torch.randint(0, VOCABULARY, (3, LENGTH))
        with torch.no_grad():
            y = network(input_ids=x).logits
        save_file({"x": x.int(), "y": y.contiguous()}, at / "logits.safetensors")
        print(name, sorted(load_file(at / "model.safetensors"))[:3], tuple(y.shape))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
