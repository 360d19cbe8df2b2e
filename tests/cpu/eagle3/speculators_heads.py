#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains EAGLE-3 heads of SmolLM2-135M-Instruct by the classes of speculators, and compares their choices with ours, position by
position. docs/heads.md has the figures; neither heads nor rows are in the repository.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch==2.15.0 transformers==5.19.0 numpy safetensors pydantic \\
        pydantic-settings loguru tqdm psutil typer rich "datasets<=5.1.0" openai aiohttp httpx click sentencepiece protobuf pyyaml
    /tmp/venv/bin/pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0  # its own list wants an older torch
    build/release/bin/specula convert ~/.cache/specula/SmolLM2-135M-Instruct.Q4_1.gguf /tmp/smollm2
    mkdir -p /tmp/text && tar -xf examples/smollm2/text.tar.xz -C /tmp/text
    /tmp/venv/bin/python tests/cpu/eagle3/speculators_heads.py states /tmp/smollm2 /tmp/text /tmp/states.pt 200000
    /tmp/venv/bin/python tests/cpu/eagle3/speculators_heads.py train /tmp/smollm2 /tmp/states.pt build/smollm2/eagle3 25
    /tmp/venv/bin/python tests/cpu/eagle3/speculators_heads.py train /tmp/smollm2 /tmp/states.pt build/smollm2/eagle31 25 fc_norm norm_output
    build/release/bin/specula head /tmp/smollm2 build/smollm2/eagle3 --tokens 5120 --json /tmp/rows.json
    /tmp/venv/bin/python tests/cpu/eagle3/speculators_heads.py compare /tmp/smollm2 build/smollm2/eagle3 /tmp/rows.json
    build/release/bin/specula head /tmp/smollm2 build/smollm2/eagle3,layers=27-15-2 --tokens 5120 --json /tmp/wrong.json
    /tmp/venv/bin/python tests/cpu/eagle3/speculators_heads.py stretches /tmp/rows.json /tmp/wrong.json

The last arguments of the first two: tokens of text; minutes of processor time, then flags of the head that are on. The project's own
trainer wants a GPU, so this is a loop over its model class and its optimizers: three draft tokens, its default loss. `stretches`
says in how many texts the first 64 rows show the wrong reading.
"""
import collections
import json
import math
import pathlib
import random
import sys
import time
import types

import numpy
import torch

torch._dynamo.config.disable = True
import transformers
from speculators.losses import resolve_loss_config
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.train.optimizers import build_optimizers
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

READ, LONGEST, DRAFTED, STEPS = (2, 15, 27), 512, 6144, 3


def load_target(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def states_of(target, tokens):
    """(n, 3 H) of READ, and (n, H) that the final norm takes."""
    last = []
    hook = target.model.norm.register_forward_pre_hook(lambda _, given: last.append(given[0]))
    with torch.inference_mode():
        every = target.model(tokens[None], output_hidden_states=True, use_cache=False).hidden_states
    hook.remove()
    return torch.cat([every[k][0] for k in READ], -1), last[0][0]


def texts(folder):
    """(tokens, how many of them were given to the target) of each text to train on."""
    for style in json.loads((folder / "tokens.json").read_text())["styles"]:
        tokens, lengths, given = (numpy.fromfile(folder / f"{style}.train.{kind}", numpy.uint32).astype(numpy.int64)
                                  for kind in ("tokens", "documents", "given"))
        at = 0
        for length, first in zip(lengths, given):
            yield torch.from_numpy(tokens[at:at + length][:LONGEST]), int(first)
            at += length


def save_states(target, folder, out, count):
    every = [text for text in texts(pathlib.Path(folder)) if text[1] < LONGEST - 32 and len(text[0]) > 48]
    random.Random(1).shuffle(every)
    target, rows, done, begin = load_target(target), [], 0, time.time()
    for tokens, given in every:
        if done >= int(count):
            break
        with torch.autocast("cpu", torch.bfloat16):
            states, last = states_of(target, tokens)
        rows.append((tokens, given, states.bfloat16(), last.bfloat16()))
        done += len(tokens)
        if len(rows) % 100 == 0:
            print(done, "tokens", round(done / (time.time() - begin)), "a second", flush=True)
    torch.save(rows, out)


def train(target, states, out, minutes, *flags):
    torch.manual_seed(1)
    rows = torch.load(states)
    counts = collections.Counter(token for row in rows for token in row[0].tolist())
    config = transformers.AutoConfig.from_pretrained(target)
    d2t, t2d = build_vocab_mappings_from_distribution(counts, DRAFTED, config.vocab_size)
    config.num_hidden_layers, config.tie_word_embeddings = 1, False
    head = Eagle3DraftModel.from_training_args(
        config, t2d, d2t, target_layer_ids=list(READ), verifier_name_or_path=target, draft_attn_impl="eager", draft_vocab_size=DRAFTED,
        norm_before_residual=False, ttt_steps=STEPS, **dict.fromkeys(flags, True))
    kept = min(40, len(rows) // 10)
    held_out, rows = rows[:kept], rows[kept:]
    optimizers = build_optimizers(head, types.SimpleNamespace(
        optimizer="muon", lr=3e-3, weight_decay=0.01, muon_lr=1e-2, muon_momentum=0.95, muon_weight_decay=0.01, muon_ns_steps=5,
        muon_adjust_lr_fn="match_rms_adamw"))
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]

    def run(batch):
        """As the project's shift_batch aligns a text: its token 0 has no row."""
        given = [torch.cat([row[k][begin:len(row[k]) + end] for row in batch])[None].float()
                 for k, begin, end in ((2, 0, -1), (3, 1, 0))]
        tokens = torch.cat([row[0][1:] for row in batch])[None]
        places = torch.cat([torch.arange(1, len(row[0])) for row in batch])[None]
        numbers = torch.cat([torch.full((len(row[0]) - 1,), i) for i, row in enumerate(batch)])[None]
        own = torch.cat([torch.arange(1, len(row[0])) >= row[1] for row in batch])[None]  # what the target wrote
        with torch.autocast("cpu", torch.bfloat16):
            return head(given[0], tokens, numbers, own, places, given[1], ttt_steps=STEPS,
                        loss_config=resolve_loss_config("kl_div", "eager"))[1:]

    begin, step, seen, spent, mean = time.process_time(), 0, 0, 0.0, 0.0
    while spent < 1:
        random.Random(step).shuffle(rows)
        at = 0
        while at < len(rows) and spent < 1:
            for optimizer in optimizers:
                optimizer.zero_grad()
            batch = []
            while at < len(rows) and sum(len(row[0]) for row in batch) < 600:
                batch.append(rows[at])
                at += 1
            loss, _ = run(batch)
            loss.backward()
            seen += sum(len(row[0]) for row in batch)
            mean = loss.item() if step == 0 else 0.95 * mean + 0.05 * loss.item()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            spent = (time.process_time() - begin) / 60 / float(minutes)
            rate = min(1, (step + 1) / 40) * (0.03 + 0.97 * (1 + math.cos(math.pi * min(1, spent))) / 2)
            for group, peak in zip((group for optimizer in optimizers for group in optimizer.param_groups), peaks):
                group["lr"] = peak * rate
            for optimizer in optimizers:
                optimizer.step()
            step += 1
            if step % 25 == 0:
                print(step, "steps", seen, "tokens", f"{spent:.2f} loss {mean:.4f}", flush=True)
    head.eval()
    with torch.inference_mode():
        sums = collections.Counter()
        for row in held_out:
            sums.update({name: value.item() for name, value in run([row])[1].items() if "full_acc" in name})
    print("held out, right:", *(f"{sums[f'full_acc_{k}_sum'] / sums[f'full_acc_{k}_total']:.3f}" for k in range(STEPS)))
    head.bfloat16().save_pretrained(out)


def compare(target, folder, rows):
    told, target = json.loads(pathlib.Path(rows).read_text()), load_target(target)
    config = Eagle3DraftModel.config_class.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"  # the default needs a compiler
    head = Eagle3DraftModel.from_pretrained(folder, config=config, dtype=torch.float32).eval()
    head.load_verifier_weights()
    ids = torch.arange(len(head.d2t)) + head.d2t
    made = []
    head.lm_head.register_forward_hook(lambda *a: made.append(a[2][0].clone()))
    ours, theirs, differ, gaps = 0, 0, 0, []
    for text in told["texts"]:
        tokens = torch.tensor(text["tokens"])
        states, last = states_of(target, tokens)
        with torch.inference_mode():
            best = target.lm_head(target.model.norm(last)).argmax(-1)[1:]
            made.clear()
            head(states[:-1][None], tokens[1:][None], torch.zeros(1, len(tokens) - 1, dtype=torch.long), ttt_steps=1)
        choice = ids[made[0].argmax(-1)]
        right = choice == best
        here = torch.tensor(text["head"]) == torch.tensor(text["target"])
        ours, theirs, differ = ours + here.sum().item(), theirs + right.sum().item(), differ + (here != right).sum().item()
        top = made[0].topk(2).values
        gaps += (top[:, 0] - top[:, 1])[torch.tensor(text["head"]) != choice].tolist()
    print(f"right: {ours} here, {theirs} there; at {differ} positions in one of both alone; the first choice differs at {len(gaps)}, "
          f"where the two best logits there are at most {max(gaps, default=0):.4f} apart")


def stretches(right, *others):
    rule = [text["losses"][:64] for text in json.loads(pathlib.Path(right).read_text())["texts"]]
    for name in others:
        larger = doubtless = 0
        for own, wrong in zip(rule, json.loads(pathlib.Path(name).read_text())["texts"], strict=True):
            d = numpy.array([b - a for a, b in zip(own, wrong["losses"]) if a is not None and b is not None])
            larger += d.mean() > 0
            doubtless += d.mean() > 4 * d.std(ddof=1) / len(d) ** 0.5
        print(f"{name}: of {len(rule)} texts {larger} have the larger loss, {doubtless} by more than four standard errors")


if __name__ == "__main__":
    {"states": save_states, "train": train, "compare": compare, "stretches": stretches}[sys.argv[1]](*sys.argv[2:])
