#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes logits.json: logits of tiny models by Hugging Face's transformers, to which tests/cpu/transformers.cpp compares
ours. Weights are a formula of a tensor's name and an element's index, which the test has, too.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch transformers==5.24.0
    /tmp/venv/bin/python tests/cpu/transformers/logits.py
"""
import json
import pathlib

import numpy
import torch
import transformers
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config


def philox(count, key):
    """Words 0 to `count` of Philox4x32-10 (base/philox.hpp): those of counter 0, then of counter 1, ..."""
    u32 = numpy.uint64(0xFFFFFFFF)
    zero = numpy.zeros((count + 3) // 4, numpy.uint64)
    x, y, z, w = numpy.arange(len(zero), dtype=numpy.uint64), zero, zero, zero
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        a, b = x * numpy.uint64(0xD2511F53), z * numpy.uint64(0xCD9E8D57)
        x, y, z, w = b >> 32 ^ y ^ numpy.uint64(k0), b & u32, a >> 32 ^ w ^ numpy.uint64(k1), a & u32
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return numpy.stack([x, y, z, w], 1).reshape(-1)[:count]


def weights(name, shape):
    """Uniform: of variance 1 / columns; norms around 1; biases around 0."""
    key = 0xCBF29CE484222325  # FNV-1a
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    uniform = philox(int(numpy.prod(shape)), key).astype(numpy.float64) / 2**31 - 1  # in [-1, 1)
    if len(shape) == 2:
        values = uniform * numpy.sqrt(3 / shape[1])
    else:
        values = 0.5 * uniform if name.endswith(".bias") else 1 + 0.25 * uniform
    return torch.from_numpy(values.astype(numpy.float32).reshape(shape))


def sizes(heads, kv_heads, **more):
    return {"vocab_size": 24, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "max_position_embeddings": 64,
            "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, **more}


def rope(kind, theta, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


MODELS = {
    "llama": LlamaConfig(**sizes(4, 2), **rope("default", 10000.0)),
    "llama, tied, biases, wide heads": LlamaConfig(
        **sizes(4, 1, head_dim=10, tie_word_embeddings=True, attention_bias=True, rms_norm_eps=1e-3)),
    "llama, llama3 rope": LlamaConfig(
        **sizes(2, 2, head_dim=16, rms_norm_eps=1e-5),
        **rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=16)),
    "llama, linear rope": LlamaConfig(**sizes(4, 4), **rope("linear", 500.0, factor=2.5)),
    "llama, yarn": LlamaConfig(
        **sizes(2, 1, head_dim=16),
        **rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=64, beta_fast=2.0, beta_slow=0.5)),
    "mistral": MistralConfig(**sizes(4, 2, head_dim=8, sliding_window=None, rms_norm_eps=1e-5),
                             **rope("default", 1000000.0)),
    "mistral, a window as long as the context": MistralConfig(
        **sizes(2, 1, tie_word_embeddings=True, sliding_window=64)),
    "qwen2": Qwen2Config(**sizes(4, 2), **rope("default", 1000000.0)),
    "qwen2, tied, yarn with a given factor of attention": Qwen2Config(
        **sizes(3, 1, tie_word_embeddings=True, use_sliding_window=False, sliding_window=32),
        **rope("yarn", 1000000.0, factor=4.0, original_max_position_embeddings=32768, attention_factor=1.5)),
    "qwen3": Qwen3Config(**sizes(4, 2, head_dim=16), **rope("default", 1000000.0)),
    "qwen3, tied, biases, yarn without truncation": Qwen3Config(
        **sizes(2, 2, head_dim=20, tie_word_embeddings=True, attention_bias=True),
        **rope("yarn", 5000.0, factor=8.0, original_max_position_embeddings=64, beta_fast=2.0, beta_slow=0.25,
               truncate=False, mscale=1.2, mscale_all_dim=0.7)),
}
TOKENS = [int(word) % 24 for word in philox(40, 1)]
ROWS = [0, 1, 7, 20, 39]  # of which the logits are kept


def entry(name, config):
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tensors = {key: value for key, value in model.state_dict().items()
               if not (config.tie_word_embeddings and key == "lm_head.weight")}
    with torch.no_grad():
        for key, value in tensors.items():
            value.copy_(weights(key, tuple(value.shape)))
        logits = model(torch.tensor([TOKENS])).logits[0]
    config.architectures = [type(model).__name__]  # as saving does
    return {"name": name, "config": json.loads(config.to_json_string()),
            "tensors": {key: list(value.shape) for key, value in tensors.items()},
            "logits": [[float(f"{x:.6g}") for x in logits[row].tolist()] for row in ROWS]}


def main():
    models = [entry(name, config) for name, config in MODELS.items()]
    head = {"transformers": transformers.__version__, "torch": torch.__version__, "tokens": TOKENS, "rows": ROWS}
    lines = ",\n".join(json.dumps(model, separators=(",", ":")) for model in models)
    (pathlib.Path(__file__).parent / "logits.json").write_text(
        json.dumps(head)[:-1] + ', "models": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
