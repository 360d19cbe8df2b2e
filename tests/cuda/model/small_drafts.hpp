// SPDX-License-Identifier: MIT
// Drafts with random weights for a model of small_config(3): what they read of it, and how they differ.
#pragma once

#include <cstdint>
#include <vector>

#include "small_model.hpp"

namespace small_model {

using specula::Conditioning;

/// A draft for the model of small_config(3), or `target` if it attends to keys of other heads.
struct Draft {
  const char* name;
  Conditioning reads = Conditioning::nothing;
  int layers = 1, vocab = 0, head_dim = 32;
  bool projects = false;
  int target_head_dim = 64;
  std::vector<std::int32_t> layers_read = {};
};

inline cpu::DecoderConfig target_config(const Draft& draft) {
  cpu::DecoderConfig out = small_config(3);
  out.head_dim = draft.target_head_dim;
  return out;
}
inline cpu::DecoderConfig draft_config(const Draft& draft) {
  const cpu::DecoderConfig target = target_config(draft);
  cpu::DecoderConfig out;
  out.heads = 2, out.kv_heads = 1, out.head_dim = draft.head_dim;
  out.vocab_size = kVocab, out.hidden_size = draft.reads == Conditioning::features ? target.hidden_size : 64;
  out.intermediate_size = 96, out.layers = draft.layers;
  out.conditioned_on = draft.reads;
  out.draft_vocab_size = draft.vocab;
  out.tied_head = draft.reads == Conditioning::features || (draft.vocab == 0 && !draft.projects);
  if (draft.projects) out.target_hidden_size = target.hidden_size;
  if (draft.reads == Conditioning::key_values) {
    static_cast<cpu::AttentionShape&>(out.target) = target;
    out.target.layers = target.layers, out.target.reads = draft.layers_read;
  }
  return out;
}

}  // namespace small_model
