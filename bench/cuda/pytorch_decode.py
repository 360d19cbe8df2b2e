# SPDX-License-Identifier: MIT
"""Plain decoding as it is written in PyTorch: a Llama over a static cache, compiled; a baseline for bench/cuda/model.cpp and
bench/cuda/model_rounds.cpp, no more.

usage: pytorch_decode.py --out FILE [--device cuda] [--part pack|135m|1b|8b|small]

Weights are random bfloat16 of the sizes that model.cpp has, contexts 512 and 8,192. A step takes one token: its logits' largest is the
next. The step is compiled with its launches in a CUDA graph; milliseconds are medians of a step's time as the host sees it, with the
token read back. `pack` is the target of examples/models with its weights: tokens per second of texts of 128 tokens, in a cache of
256, as model_rounds.cpp has them. `small` is for a machine without a GPU.
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F

#        hidden, intermediate, layers, heads, KV heads, head size, vocabulary, tied head
SIZES = {"135m": (576, 1536, 30, 9, 3, 64, 49152, True),
         "1b": (2048, 8192, 16, 32, 8, 64, 128256, True),
         "8b": (4096, 14336, 32, 32, 8, 128, 128256, False),
         "small": (64, 128, 2, 4, 2, 16, 512, True)}
ROOM = 128  # cells of a cache behind its context: attention reads a static cache whole
EPS, THETA = 1e-5, 10000.0
PACK = pathlib.Path(__file__).resolve().parents[2] / "examples/models/target"


def norm(x, weight):
    return F.rms_norm(x.float(), x.shape[-1:], weight, EPS).to(x.dtype)


def rotate(x, cosine, sine):
    """Halves of a head turn against each other."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


class SavedWeights:
    """A folder's tensors in bfloat16. Those of 8 bits have a power of two for each 32 numbers of a row."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.data = bytearray((folder / "model.safetensors").read_bytes())
        self.begin = 8 + int.from_bytes(self.data[:8], "little")
        self.header = json.loads(self.data[8:self.begin])

    def saved(self, name):
        entry = self.header[name]
        begin, end = (self.begin + at for at in entry["data_offsets"])
        types = {"I8": torch.int8, "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
        return torch.frombuffer(self.data[begin:end], dtype=types[entry["dtype"]]).view(entry["shape"])

    def __getitem__(self, name):
        numbers = self.saved(name)
        if numbers.dtype == torch.int8:
            powers = torch.exp2(self.saved(name + ".exponents").float()).repeat_interleave(32, 1)
            numbers = numbers.float() * powers[:, :numbers.shape[1]]
        return numbers.to(torch.bfloat16)

    def size(self):
        c = self.config
        return (c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"],
                c["head_dim"], c["vocab_size"], c["tie_word_embeddings"])

    def fill(self, model):
        """Of a Decoder of this size."""
        model.embedding.copy_(self["model.embed_tokens.weight"])
        model.head_weight.copy_(self["model.embed_tokens.weight" if self.config["tie_word_embeddings"] else "lm_head.weight"])
        model.final.copy_(self["model.norm.weight"])
        for number, weights in enumerate(model.layers):
            def of(*names):
                return torch.cat([self[f"model.layers.{number}.{name}.weight"] for name in names])
            weights["attention_norm"].copy_(of("input_layernorm"))
            weights["mlp_norm"].copy_(of("post_attention_layernorm"))
            weights["qkv"].copy_(of("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
            weights["output"].copy_(of("self_attn.o_proj"))
            weights["gate_up"].copy_(of("mlp.gate_proj", "mlp.up_proj"))
            weights["down"].copy_(of("mlp.down_proj"))


class Decoder(torch.nn.Module):
    def __init__(self, size, device, capacity, dtype=torch.bfloat16):
        super().__init__()
        hidden, intermediate, layers, self.heads, self.kv_heads, self.head, vocab, tied = size
        generator = torch.Generator(device=device).manual_seed(1)

        def matrix(rows, cols):
            return (0.02 * torch.randn(rows, cols, device=device, generator=generator)).to(dtype)

        def ones():
            return torch.ones(hidden, device=device)

        self.embedding = matrix(vocab, hidden)
        self.head_weight = self.embedding if tied else matrix(vocab, hidden)
        self.final = ones()
        self.layers = [{"attention_norm": ones(), "mlp_norm": ones(), "qkv": matrix((self.heads + 2 * self.kv_heads) * self.head, hidden),
                        "output": matrix(hidden, self.heads * self.head), "gate_up": matrix(2 * intermediate, hidden), "down": matrix(hidden, intermediate)}
                       for _ in range(layers)]
        shape = (1, self.kv_heads, capacity, self.head)
        self.cache = [(torch.zeros(shape, device=device, dtype=dtype), torch.zeros(shape, device=device, dtype=dtype)) for _ in range(layers)]
        angles = torch.outer(torch.arange(capacity, device=device), THETA ** (-torch.arange(0, self.head, 2, device=device) / self.head))
        self.cosine, self.sine = angles.cos(), angles.sin()
        self.places = torch.arange(capacity, device=device)

    def forward(self, tokens, positions):
        """tokens (n), positions (n), ascending from the cache's end: logits (V) after the last."""
        x = self.embedding[tokens]
        cosine, sine = self.cosine[positions], self.sine[positions]
        sees = (self.places <= positions[:, None])[None, None]  # (1, 1, n, capacity)
        n = len(tokens)
        for weights, (keys, values) in zip(self.layers, self.cache):
            qkv = F.linear(norm(x, weights["attention_norm"]), weights["qkv"]).view(n, -1, self.head).transpose(0, 1)
            q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads])
            keys.index_copy_(2, positions, rotate(k, cosine, sine)[None])
            values.index_copy_(2, positions, v[None])
            y = F.scaled_dot_product_attention(rotate(q, cosine, sine)[None], keys, values, attn_mask=sees, enable_gqa=True)
            x = x + F.linear(y[0].transpose(0, 1).reshape(n, -1), weights["output"])
            gate, up = F.linear(norm(x, weights["mlp_norm"]), weights["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, weights["down"])
        return F.linear(norm(x[-1:], self.final), self.head_weight)[0].float()


def milliseconds(step, device, context, runs=29):
    """Of one token after `context` others, whose keys and values are whatever the cache holds: for times that is as good."""
    token = torch.zeros(1, dtype=torch.long, device=device)
    times = []
    for run in range(runs):
        position = torch.full((1,), context + run, dtype=torch.long, device=device)
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        following = step(token, position).argmax().item()
        if run >= 4:
            times.append(1e3 * (time.perf_counter() - began))
        token.fill_(following)
    return statistics.median(times)


def text_of(model, step, device, fresh):
    """The likeliest tokens after a prompt, and seconds from the prompt's beginning."""
    prompt = torch.tensor([1, 415, 1014, 318, 99, 270, 1203, 57], device=device)
    began = time.perf_counter()
    text = [model(prompt, torch.arange(len(prompt), device=device)).argmax().item()]
    while len(text) < fresh:
        token, position = (torch.full((1,), n, dtype=torch.long, device=device) for n in (text[-1], len(prompt) + len(text) - 1))
        text.append(step(token, position).argmax().item())
    return text, time.perf_counter() - began


@torch.inference_mode()
def measure_pack(device, fresh=128, runs=12):
    saved = SavedWeights(PACK)
    model = Decoder(saved.size(), device, 256)
    saved.fill(model)
    step = torch.compile(model, fullgraph=True, mode="reduce-overhead" if device == "cuda" else None)
    out = {}
    for name, of in (("compiled", step), ("eager", model)):
        texts = [text_of(model, of, device, fresh) for _ in range(runs)]
        out[name] = {"tokens_per_second": fresh / statistics.median(seconds for _, seconds in texts[2:]), "text": texts[-1][0]}
    rates = [out[name]["tokens_per_second"] for name in ("compiled", "eager")]
    print(f"| PyTorch, pack, plain decoding, tokens/s | {rates[0]:.4g} compiled | {rates[1]:.4g} eagerly |", flush=True)
    torch.compiler.reset()
    return out


@torch.inference_mode()
def measure(part, device):
    if part == "pack":
        return measure_pack(device)
    out = {}
    for context in (512, 8192):
        model = Decoder(SIZES[part], device, context + ROOM)
        step = torch.compile(model, fullgraph=True, mode="reduce-overhead" if device == "cuda" else None)
        at = out[f"context {context}"] = {"compiled_ms": milliseconds(step, device, context), "eager_ms": milliseconds(model, device, context)}
        print(f"| PyTorch, {part}, one token, context {context}, ms | {at['compiled_ms']:.4g} compiled | {at['eager_ms']:.4g} eagerly |", flush=True)
        del model, step
        torch.compiler.reset()  # lets go of the weights, too
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", choices=["pack", *SIZES])
    options = parser.parse_args()
    name = torch.cuda.get_device_name(0) if options.device == "cuda" else "cpu"
    results = {"torch": torch.__version__, "device": name, "sizes": {}}
    for part in [options.part] if options.part else ["135m", "1b", "8b", "pack"]:
        try:
            results["sizes"][part] = measure(part, options.device)
        except RuntimeError as error:  # such as too little memory: the sizes before it count
            results["sizes"][part] = {"error": str(error)[:300]}
            print(f"| PyTorch, {part} | ERROR: {str(error)[:120]} |", flush=True)
        with open(options.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
