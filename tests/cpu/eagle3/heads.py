#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes heads.json and rows.bin: rows of EAGLE-3 heads by the classes of the projects that publish them, to which
tests/cpu/eagle3.cpp compares ours. Weights and states are a formula of a name and an element's index (../transformers).

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch==2.14.1 transformers==5.19.0 speculators==0.9.0 \\
        nvidia-modelopt==0.47.0 omegaconf pulp scipy shortuuid pillow
    /tmp/venv/bin/python tests/cpu/eagle3/heads.py SPECFORGE DEEPSPEC ANGELSLIM  # checkouts: a6b6b02, afdfa7c, 67394ce
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = sys.argv[1:] + [str(HERE.parent / "transformers")]
import torch

torch.float32 = torch.float = torch.float64  # the classes round to float here and there: all in double
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)
torch._dynamo.config.disable = True
from logits import weights as formula
from transformers import DynamicCache, LlamaConfig, Qwen3Config

V, D, H, HEADS, STEPS, ROWS = 256, 96, 64, 2, 3, (4, 10)
TOKENS = [(7 * i * i + 3 * i + 1) % V for i in range(14)]
D2T = [(37 * i + 5) % V - i for i in range(D)]
SIZES = {"vocab_size": V, "hidden_size": H, "intermediate_size": 96, "num_attention_heads": HEADS, "num_hidden_layers": 1,
         "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
CAUSAL = torch.full((14, 14), -torch.inf).triu(1)


def weights(name, shape):
    return formula(name, shape).double()


def states(numbers, width=H):
    """(13, n width): states 0 to 12 of the target, side by side; they grow from layer to layer."""
    return torch.cat([weights(f"state {k}", (13, width)) * (k + 1.0) for k in numbers], -1)


def fill(model):
    """The formula for each parameter; the draft vocabulary. Returns names and shapes."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(weights(name, tuple(value.shape)))
        for name, value in model.named_buffers():
            if name == "d2t":
                value.copy_(torch.tensor(D2T[:len(value)]))
            if name == "t2d":
                value.copy_(torch.isin(torch.arange(V), torch.tensor(D2T) + torch.arange(D)))
    return {name: list(value.shape) for name, value in model.state_dict().items()}


def entry(name, config, tensors, ids, rows, width=H):
    """`rows`: (steps, 13 or 2, D). `ids`: the states that it reads."""
    kept = [[(step if len(step) == 2 else step[list(ROWS)])[i].tolist() for i in range(2)] for step in rows]
    return {"name": name, "config": config, "tensors": tensors, "states": ids, "width": width}, torch.tensor(kept)


def speculators(name, ids=(2, 8, 13), layer=LlamaConfig, layers=1, **keys):
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    shape = layer(**{**SIZES, "num_hidden_layers": layers}, tie_word_embeddings=False)
    shape._attn_implementation = "eager"
    model = Eagle3DraftModel(Eagle3SpeculatorConfig(
        transformer_layer_config=shape, draft_vocab_size=D, eagle_aux_hidden_state_layer_ids=list(ids),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3", proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="target", architectures=["LlamaForCausalLM"])), **keys)).eval()
    tensors = fill(model)
    rows = []
    model.lm_head.register_forward_hook(lambda *a: rows.append(a[2][0].clone()))
    model(hidden_states=states(ids)[None], input_ids=torch.tensor([TOKENS[1:]]),
          document_ids=torch.zeros(1, 13, dtype=torch.long), ttt_steps=STEPS)
    config = json.loads(model.config.to_json_string())
    return entry(name, config, {k: v for k, v in tensors.items() if not k.startswith("verifier")}, list(ids), rows)


def shifted(step):
    """Tokens 1 to 13 and those `step` after them; what stands at the end is not looked at."""
    return torch.tensor([TOKENS[1 + step:] + [0] * step])


def specforge(name, ids, width=H, **keys):
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3 as Model
    config = {"architectures": [Model.__name__], "model_type": "llama", "draft_vocab_size": D, "pad_token_id": 0,
              "tie_word_embeddings": False, **SIZES, **keys}
    model = Model(LlamaConfig(**config)).eval()
    tensors = fill(model)
    g, cache, rows = model.project_hidden_states(states(ids, width)[None]), [[], []], []
    for step in range(STEPS):
        g = model.backbone(model.embed_input_ids(shifted(step)), g, cache, CAUSAL[None, None, :13, :13],
                           torch.arange(13)[None])
        rows.append(model.compute_logits(g)[0])
    if width == H:  # its export leaves them out
        del tensors["embed_tokens.weight"]
    return entry(name, config, tensors, list(ids), rows, width)


def angelslim(name, ids=(2, 8, 13), one_state=False):
    from angelslim.compressor.speculative.train.models.draft.llama_eagle3 import Eagle3LlamaForCausalLM as Model
    config = {"architectures": [Model.__name__], "model_type": "llama", "target_model_type": "qwen3",
              "draft_vocab_size": D, "rope_scaling": None, "rope_theta": 10000, "tie_word_embeddings": True, **SIZES}
    model = Model(LlamaConfig(**{**config, "tie_word_embeddings": False})).eval()
    tensors = fill(model)
    del tensors["embed_tokens.weight"]
    given = states(ids)[None]
    if one_state:  # as SafeAILab's class, which has the same layer, a vector of width H is not mixed
        given = weights("after the final norm", (13, H))[None]
        model.midlayer.hidden_norm.weight.data.fill_(1)
        tensors = {k: v for k, v in tensors.items() if k not in ("fc.weight", "midlayer.hidden_norm.weight")}
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [], "use_aux_hidden_state": False,
            "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_mtp_layernorm": False,
            "next_layer_regular": True, "parallel_draft_step": 1, "parallel_draft_heads_num_layers": 1}}
    g, cache, rows = given if one_state else model.combine_hidden_states(given), [[], []], []
    for step in range(STEPS):
        g, cache = model.encode_layers(model.embed_input_ids(shifted(step)), g, cache, CAUSAL[None, None, :13, :13],
                                       torch.arange(13)[None], True)
        rows.append(model.compute_logits(g)[0])
    return entry(name, config, tensors, [] if one_state else list(ids), rows)


def chains(first, step, head):
    """Rows of models with a cache: a chain of its own after each row. `first(n)`: the cache and what the last of n
    rows hands on; `step(cache, handed on, token, position)`: that of the next; `head`: logits."""
    rows = [[None, None] for _ in range(STEPS)]
    for at, row in enumerate(ROWS):
        cache, g = first(row + 1)
        for j in range(STEPS):
            rows[j][at] = head(g)[0, -1]
            if j + 1 < STEPS:
                g = step(cache, g, torch.tensor([[TOKENS[row + 2 + j]]]), row + 1 + j)
    return [torch.stack(pair) for pair in rows]


def modelopt(name, ids=(2, 8, 13)):
    from modelopt.torch.export.plugins.hf_spec_configs import llama_eagle_template_config as template
    from modelopt.torch.speculative.plugins.modeling_eagle import EagleModule
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    class Layer(LlamaDecoderLayer):
        """Its norm is of the embedding alone, as in the project's Megatron class and in engines: LlamaDecoderLayer
        norms the mixed states by it, too, before hidden_norm."""

        def forward(self, hidden_states, **kwargs):
            self.input_layernorm, norm = torch.nn.Identity(), self.input_layernorm
            hook = self.self_attn.register_forward_pre_hook(lambda *a: setattr(self, "input_layernorm", norm),
                                                            prepend=True)
            out = super().forward(hidden_states, **kwargs)
            hook.remove()
            return out

    eagle = {"eagle_aux_hidden_state_layer_ids": [k - 1 for k in ids], "use_aux_hidden_state": True,
             "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_mtp_layernorm": False,
             "parallel_draft_step": 1, "parallel_draft_heads_num_layers": 1}
    shape = LlamaConfig(**SIZES, draft_vocab_size=D, has_lm_head=False, eagle_decoder_type="llama", **eagle,
                        rope_scaling={"rope_type": "default", "rope_theta": 10000})
    shape._attn_implementation = "eager"
    model = EagleModule(shape, Layer).eval()
    model.rotary_emb = LlamaRotaryEmbedding(shape)
    tensors = fill(model)
    embed = weights("embed_tokens.weight", (V, H))
    given = model.fc(states(ids))[None]

    def first(n):
        cache = DynamicCache()
        _, g, _ = model(given[:, :n], embed[TOKENS[1:n + 1]][None], CAUSAL[None, None, :n, :n], None, cache, True)
        return cache, g[:, -1:]

    def step(cache, g, token, at):
        return model(g, embed[token], torch.zeros(1, 1, 1, at + 1), torch.tensor([[at]]), cache, True)[1]

    config = {key: (SIZES.get(key, getattr(shape, key, None)) if value is None else value)
              for key, value in template.items()}
    config |= {"draft_vocab_size": D, "torch_dtype": "bfloat16", "transformers_version": "5.19.0", "rope_theta": 10000,
               "rope_scaling": {"rope_type": "default", "rope_theta": 10000},
               "eagle_config": {**template["eagle_config"], **eagle}}
    return entry(name, config, {k: v for k, v in tensors.items() if "rotary" not in k}, list(ids),
                 chains(first, step, lambda g: model.lm_head(model.norm(g))))


def deepspec(name, outputs=(1, 4, 7, 10, 13)):
    from deepspec.modeling.eagle3.qwen3.modeling import Qwen3Eagle3Model as Model
    config = {"architectures": [Model.__name__], "model_type": "qwen3", "num_target_layers": 16,
              "layer_types": ["full_attention"], "target_model_name_or_path": "target",
              "target_layer_ids": list(outputs), "ttt_length": 7, "step_loss_decay": 0.8,
              "draft_num_hidden_layers": 1, "tie_word_embeddings": False, **SIZES}
    shape = Qwen3Config(**config)
    shape._attn_implementation = "sdpa"
    model = Model(shape).eval()
    tensors = fill(model)
    given = states([k + 1 for k in outputs])[None]

    def first(n):
        cache = DynamicCache()
        return cache, model.extend_draft_cache(given[:, :n], torch.tensor([TOKENS[1:n + 1]]), torch.arange(n)[None],
                                               cache)

    def step(cache, g, token, at):
        return model(g, token, torch.tensor([[at]]), cache, True)

    return entry(name, config, tensors, [k + 1 for k in outputs], chains(first, step, model.compute_logits))


def main():
    with torch.no_grad():
        made = [
            speculators("speculators, plain"),
            speculators("speculators, norm_before_residual", norm_before_residual=True),
            speculators("speculators, norm_before_fc", norm_before_fc=True, norm_before_residual=True),
            speculators("speculators, fc_norm, norm_output", fc_norm=True, norm_output=True),
            speculators("speculators, three layers of Qwen3, states 16, 0 and 8", (16, 0, 8), Qwen3Config, 3),
            specforge("SpecForge, fc_norm, llama3 rope", (3, 7, 12), fc_norm=True, rope_theta=500000.0,
                      rope_scaling=LLAMA3,
                      eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 6, 11]}),
            specforge("SafeAILab, a wider target", (2, 8, 13), width=80, target_hidden_size=80),
            angelslim("AngelSlim"), angelslim("ModelOpt, one state", one_state=True), modelopt("ModelOpt"),
            deepspec("DeepSpec")]
    lines = ",\n".join(json.dumps(head, separators=(",", ":")) for head, _ in made)
    top = {"tokens": TOKENS, "rows": ROWS, "d2t": D2T, "torch": torch.__version__}
    (HERE / "heads.json").write_text(json.dumps(top)[:-1] + ', "heads": [\n' + lines + "\n]}\n")
    (HERE / "rows.bin").write_bytes(b"".join(rows.numpy().astype("<f4").tobytes() for _, rows in made))


if __name__ == "__main__":
    main()
