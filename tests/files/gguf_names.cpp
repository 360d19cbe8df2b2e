// SPDX-License-Identifier: MIT
// Names of tensors in GGUF and in Hugging Face folders.
#include <specula/files/gguf_names.hpp>

#include "specula/files/gguf_names.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace specula::files;

TEST_CASE("both ways") {
  const std::vector<std::pair<std::string, std::string>> names{
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"},
      {"blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"},
      {"blk.17.attn_k.bias", "model.layers.17.self_attn.k_proj.bias"},
      {"blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight"},
      {"blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight"},
      {"blk.1.attn_q_norm.weight", "model.layers.1.self_attn.q_norm.weight"},
      {"blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight"},
      {"blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight"},
      {"blk.1.ffn_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
      {"blk.1.ffn_gate.weight", "model.layers.1.mlp.gate_proj.weight"},
      {"blk.1.ffn_up.weight", "model.layers.1.mlp.up_proj.weight"},
      {"blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"}};
  for (const auto& [gguf, hugging_face] : names) {
    CHECK(hugging_face_name(gguf) == hugging_face);
    CHECK(gguf_name(hugging_face) == gguf);
  }
}

TEST_CASE("what no architecture has") {
  for (const char* name :
       {"", "blk.", "blk.0", "blk.0.", "blk..attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_q",
        "blk.0attn_q.weight", "blk.0.attn_q.scale", "blk.0.attn_qkv.weight", "blk.0.ffn_gate_exps.weight",
        "blk.0.weight", "output.bias", "model.norm.weight"})
    CHECK(hugging_face_name(name).empty());
  CHECK(gguf_name("token_embd.weight").empty());
  CHECK(gguf_name("model.layers.0.self_attn.rotary_emb.inv_freq").empty());
}
