#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the EAGLE-3 heads of examples/models, on texts that their target wrote at temperature 1, and writes their folders.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch==2.15.0 numpy safetensors
    for s in 1 9; do build/release/bin/specula run --special --prompt "<s>" --pipeline autoregressive -n 1000 --batch 64 \\
        --temperature 1 --max-new-tokens 255 --seed $s --json /tmp/text$s.json; done
    /tmp/venv/bin/python tests/cpu/eagle3/train_heads.py eagle3 190 480 /tmp/text9.json /tmp/text1.json
    /tmp/venv/bin/python tests/cpu/eagle3/train_heads.py eagle31 300 1000 /tmp/text9.json /tmp/text1.json

The arguments: the head; seconds of processor time; how many of the texts it is trained on; a file of texts of which the first
96 are held out, and one to train on. A row is trained for three draft tokens, as EAGLE-3's paper does: the second and third
take what the head made of the one before. The labels are the target's distributions.
"""
import json
import math
import pathlib
import sys
import time

import torch
from safetensors.torch import save_file
from torch.nn.functional import scaled_dot_product_attention, silu

torch.manual_seed(1)
torch.set_num_threads(1)
MODELS = pathlib.Path(__file__).parents[3] / "examples/models"
HIDDEN, VOCAB, LAYERS, SIZE, LENGTH, DEPTH = 384, 2048, 16, 64, 256, 3
STATES = (2, LAYERS // 2, LAYERS - 3)
SHAPE = {"hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1,
         "head_dim": SIZE, "num_hidden_layers": 1, "vocab_size": VOCAB, "draft_vocab_size": VOCAB, "max_position_embeddings": 2048,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "model_type": "llama",
         "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
# SafeAILab's layout, whose files do not name the states; SpecForge's, whose ids are outputs of layers, of EAGLE-3.1.
HEADS = {"eagle3": {"architectures": ["LlamaForCausalLM"], **SHAPE},
         "eagle31": {"architectures": ["LlamaForCausalLMEagle3"], **SHAPE, "fc_norm": True, "norm_output": True,
                     "eagle_config": {"eagle_aux_hidden_state_layer_ids": [k - 1 for k in STATES], "use_aux_hidden_state": True}}}


def rms(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def turned(x, heads, first):
    """(batch, heads, n, SIZE) at positions `first` and on, by RoPE."""
    x = x.unflatten(-1, (heads, SIZE)).transpose(1, 2)
    angle = torch.arange(first, first + x.shape[2])[:, None] / 10000 ** (torch.arange(SIZE // 2) / (SIZE // 2))
    a, b = x[..., :SIZE // 2].float(), x[..., SIZE // 2:].float()
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Target:
    """The pack's target: matrices are whole numbers times powers of two in groups of 32."""

    def __init__(self):
        stored = read_tensors(MODELS / "target/model.safetensors")
        self.w = {name: value for name, value in stored.items() if not name.endswith(".exponents")}
        for name in self.w:
            if name + ".exponents" in stored:
                scale = torch.exp2(stored[name + ".exponents"].float()).repeat_interleave(32, -1)
                self.w[name] = self.w[name].float() * scale[:, :self.w[name].shape[1]]
            else:
                self.w[name] = self.w[name].float()
        self.embedding = self.w["model.embed_tokens.weight"]

    @torch.inference_mode()
    def states(self, tokens):
        """(batch, n, H) for each of STATES, then the one that enters the LM head."""
        x, kept = self.embedding[tokens], []
        for layer in range(LAYERS):
            if layer in STATES:
                kept.append(x)
            at = lambda name: self.w[f"model.layers.{layer}.{name}.weight"]
            with torch.autocast("cpu", torch.bfloat16):
                y = rms(x, at("input_layernorm"))
                q, k, v = (y @ at(f"self_attn.{name}_proj").T for name in "qkv")
                v = v.unflatten(-1, (2, SIZE)).transpose(1, 2).repeat_interleave(3, 1)
                q, k = turned(q, 6, 0), turned(k, 2, 0).repeat_interleave(3, 1)
                y = scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v, is_causal=True).transpose(1, 2).flatten(2)
                x = x + y @ at("self_attn.o_proj").T
                y = rms(x, at("post_attention_layernorm"))
                x = x + (silu(y @ at("mlp.gate_proj").T) * (y @ at("mlp.up_proj").T)) @ at("mlp.down_proj").T
        return [*kept, rms(x, self.w["model.norm.weight"])]


def read_tensors(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    types, out = {"I8": torch.int8, "BF16": torch.bfloat16, "F32": torch.float32}, {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            first, last = (8 + size + at for at in entry["data_offsets"])
            out[name] = torch.frombuffer(bytearray(raw[first:last]), dtype=types[entry["dtype"]]).reshape(entry["shape"])
    return out


class Head(torch.nn.Module):
    """Names of parameters are those of the file, with _ for a dot."""

    def __init__(self, config):
        super().__init__()
        self.normed, self.hands_on_norm = config.get("fc_norm", False), config.get("norm_output", False)
        # The states have root mean squares of about 6, 14 and 22: training divides them by that, and the file's fc does so.
        self.scale = torch.tensor([1.0] * 3 if self.normed else [6.0, 14.0, 22.0]).repeat_interleave(HIDDEN)
        ones = ["midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm"]
        ones += [f"fc_norm.{k}" for k in range(3) if self.normed]
        attention = "midlayer.self_attn."
        matrices = {"fc": (HIDDEN, 3 * HIDDEN), attention + "q_proj": (2 * SIZE, 2 * HIDDEN), attention + "k_proj": (SIZE, 2 * HIDDEN),
                    attention + "v_proj": (SIZE, 2 * HIDDEN), attention + "o_proj": (HIDDEN, 2 * SIZE),
                    "midlayer.mlp.gate_proj": (256, HIDDEN), "midlayer.mlp.up_proj": (256, HIDDEN), "midlayer.mlp.down_proj": (HIDDEN, 256)}
        self.p = torch.nn.ParameterDict({key(name): torch.ones(HIDDEN) for name in ones})
        for name, shape in matrices.items():
            start = torch.randn(shape) * shape[1] ** -0.5 * (0.3 if name.endswith(("o_proj", "down_proj")) else 1)
            if name == "fc" and self.normed:  # begins as the last of the states
                start *= 0.1
                start[:, 2 * HIDDEN:] += torch.eye(HIDDEN)
            self.p[key(name)] = start

    def at(self, name):
        return self.p[key(name)]

    def feature(self, states):
        if self.normed:
            states = [rms(state, self.at(f"fc_norm.{k}")) for k, state in enumerate(states)]
        return torch.cat(states, -1) / self.scale @ self.at("fc").T

    def forward(self, embedded, states):
        """embedded: (batch, n, H) of all tokens. Per step, what enters the LM head: (batch, n - 1 - step, H)."""
        g, past, out = self.feature([state[:, :-1] for state in states]), [], []
        for step in range(DEPTH):
            e = embedded[:, 1 + step:]
            g = g[:, :e.shape[1]]
            x = torch.cat([rms(e, self.at("midlayer.input_layernorm")), rms(g, self.at("midlayer.hidden_norm"))], -1)
            q, k = (turned(x @ self.at(f"midlayer.self_attn.{name}_proj").T, heads, step) for name, heads in (("q", 2), ("k", 1)))
            past.append((k, (x @ self.at("midlayer.self_attn.v_proj").T)[:, None]))
            n = e.shape[1]
            scores = q @ past[0][0][:, :, :n].transpose(-1, -2) + torch.full((n, n), -torch.inf).triu(1)
            scores = torch.cat([scores, *((q * k[:, :, :n]).sum(-1, keepdim=True) for k, _ in past[1:])], -1)
            share = (scores * SIZE ** -0.5).softmax(-1)
            y = share[..., :n] @ past[0][1][:, :, :n]
            for d, (_, v) in enumerate(past[1:]):
                y = y + share[..., n + d, None] * v[:, :, :n]
            y = g + y.transpose(1, 2).flatten(2) @ self.at("midlayer.self_attn.o_proj").T
            z, mlp = rms(y, self.at("midlayer.post_attention_layernorm")), lambda name: self.at(f"midlayer.mlp.{name}_proj").T
            y = y + (silu(z @ mlp("gate")) * (z @ mlp("up"))) @ mlp("down")
            normed = rms(y, self.at("norm"))
            out.append(normed)
            g = normed if self.hands_on_norm else y
        return out


def key(name):
    return name.replace(".", "_")


def load(path, count, target):
    """Batches of the first `count` texts, by length: tokens, states, and what enters the target's LM head. Short texts are left
    out, and all of a batch are cut to the shortest."""
    told = json.loads(pathlib.Path(path).read_text())["prompts"][:count]
    rows = sorted(([1, *text["tokens"]][:LENGTH] for text in told if len(text["tokens"]) > 32), key=len)
    batches = []
    for at in range(0, len(rows) - 7, 8):
        tokens = torch.tensor([row[:len(rows[at])] for row in rows[at:at + 8]])
        batches.append((tokens, [state.bfloat16() for state in target.states(tokens)]))
    print(sum(tokens.numel() for tokens, _ in batches), "tokens", flush=True)
    return batches


def evaluate(head, held_out, target):
    right = torch.zeros(DEPTH, 2)
    with torch.inference_mode():
        for tokens, states in held_out:
            states = [state.float() for state in states]
            best = (states[3] @ target.embedding.T).argmax(-1)
            for step, row in enumerate(head(target.embedding[tokens], states[:3])):
                same = (row @ target.embedding.T).argmax(-1) == best[:, 1 + step:]
                right[step] += torch.tensor([same.sum(), same.numel()])
    return [f"{share:.4f}" for share in (right[:, 0] / right[:, 1]).tolist()]


def train(name, seconds, count, held_out, path):
    config, target = HEADS[name], Target()
    test, batches = load(held_out, 96, target), load(path, count, target)
    head = Head(config)
    matrices, vectors = ([value for value in head.parameters() if value.dim() == dim] for dim in (2, 1))
    warm_up, floor = (20, 0.03) if name == "eagle3" else (50, 0.05)
    if name == "eagle3":
        optimizers = [torch.optim.Muon(matrices, 0.006, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
                      torch.optim.AdamW(vectors, 0.004, betas=(0.9, 0.95), weight_decay=0.0)]
    else:
        optimizers = [torch.optim.AdamW(head.parameters(), 0.002, betas=(0.9, 0.95), weight_decay=0.01)]
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    start, step = time.process_time(), 0
    while (part := (time.process_time() - start) / seconds) < 1:
        for i in torch.randperm(len(batches)).tolist():
            part = (time.process_time() - start) / seconds
            if part >= 1:
                break
            tokens, states = batches[i]
            states = [state.float() for state in states]
            label = (states[3] @ target.embedding.T).softmax(-1)
            loss = 0
            for depth, row in enumerate(head(target.embedding[tokens], states[:3])):
                log_q = (row @ target.embedding.T).log_softmax(-1)
                loss = loss - 0.8 ** depth * (label[:, 1 + depth:] * log_q).sum(-1).mean()
            head.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            for optimizer, peak in zip(optimizers, peaks):
                optimizer.param_groups[0]["lr"] = peak * min(1, (step + 1) / warm_up) * (floor + (1 - floor) * (1 + math.cos(math.pi * part)) / 2)
                optimizer.step()
            step += 1
            if step % 50 == 0:
                print(name, step, f"{part:.3f} loss {loss.item():.4f}", *(evaluate(head, test, target) if step % 250 == 0 else ()), flush=True)
    head.at("fc").data /= head.scale
    head.scale = torch.ones(3 * HIDDEN)
    stored = {file: head.at(file).detach().bfloat16().contiguous() for file in names(config)}
    for file, value in stored.items():
        head.at(file).data.copy_(value)
    print(name, step, "steps; held out, agreement of draft tokens 1 to 3:", *evaluate(head, test, target))
    folder = MODELS / name
    folder.mkdir(exist_ok=True)
    save_file({file + ".weight": value for file, value in stored.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def names(config):
    """The file's names of the parameters."""
    known = ["fc", "norm", *(f"fc_norm.{k}" for k in range(3) if config.get("fc_norm"))]
    layer = ["input_layernorm", "hidden_norm", "post_attention_layernorm", *(f"self_attn.{k}_proj" for k in "qkvo"),
             *(f"mlp.{k}_proj" for k in ("gate", "up", "down"))]
    return known + ["midlayer." + name for name in layer]


if __name__ == "__main__":
    train(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
