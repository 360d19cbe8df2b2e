// SPDX-License-Identifier: MIT
// Small targets, and EAGLE-3 heads of random weights for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_weights.hpp"

namespace specula_test {

template <class Real>
using HeadWeights = std::shared_ptr<const specula::cpu::DecoderWeights<Real>>;

inline specula::cpu::DecoderConfig small_target(std::int32_t vocab, std::int32_t hidden = 24) {
  specula::cpu::DecoderConfig c;
  c.vocab_size = vocab, c.hidden_size = hidden, c.intermediate_size = 33, c.layers = 4;
  c.heads = 3, c.kv_heads = 1, c.head_dim = 6, c.tied_head = true;
  return c;
}

/// A head of `target` that takes its embedding, and predicts `tokens` of its tokens, or all (0).
inline specula::cpu::DecoderConfig small_head(const specula::cpu::DecoderConfig& target, std::int32_t tokens,
                                              std::vector<std::int32_t> states = {3, 0, 4}) {
  specula::cpu::DecoderConfig c = target;
  c.layers = 1, c.heads = 2, c.kv_heads = 2, c.head_dim = 10, c.intermediate_size = 30;
  c.tied_head = false;
  c.conditioned_on = specula::Conditioning::features;
  c.draft_vocab_size = tokens;
  c.eagle3.emplace().target_hidden_size = target.hidden_size;
  c.eagle3->states_from = specula::cpu::StatesFrom::states;
  c.eagle3->states = std::move(states);
  c.feature_layers = c.eagle3->ascending_states();
  return c;
}

/// Every kind of head, by name.
inline std::vector<std::pair<std::string, specula::cpu::DecoderConfig>> head_kinds(
    const specula::cpu::DecoderConfig& target, std::int32_t tokens) {
  const auto plain = small_head(target, tokens);
  std::vector<std::pair<std::string, specula::cpu::DecoderConfig>> all{{"plain", plain}};
  const auto add = [&](const char* name, auto change) {
    auto config = plain;
    change(config);
    all.emplace_back(name, config);
  };
  add("norm_before_residual, norm_before_fc",
      [](auto& c) { c.eagle3->norm_before_residual = c.eagle3->norm_before_fc = true; });
  add("fc_norm, norm_output", [](auto& c) { c.eagle3->fc_norm = c.eagle3->norm_output = true; });
  add("two layers with norms of queries and keys", [](auto& c) { c.layers = 2, c.query_key_norms = true; });
  add("one state, all tokens", [](auto& c) {
    c.eagle3->states.clear(), c.feature_layers.clear();
    c.eagle3->states_from = specula::cpu::StatesFrom::final_norm;
    c.draft_vocab_size = 0, c.eagle3->own_head = false;
  });
  add("another width, its own embedding",
      [](auto& c) { c.hidden_size = 19, c.eagle3->own_embedding = true; });
  return all;
}

template <class Real>
HeadWeights<Real> random_weights(const specula::cpu::DecoderConfig& config, std::uint64_t seed,
                                 HeadWeights<Real> target = {}) {
  return std::make_shared<const specula::cpu::DecoderWeights<Real>>(
      specula::cpu::random_decoder_weights<Real>(config, seed, specula::cpu::WeightType::bf16, target));
}

}  // namespace specula_test
