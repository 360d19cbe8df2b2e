// SPDX-License-Identifier: MIT
// A small model with random weights, its tokens and rows, for the tests of cuda::Model.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/model.hpp>

#include "emulated_device.hpp"
#include "random.hpp"

namespace small_model {

namespace cpu = specula::cpu;
using specula::LogitsView;
using specula::Token;

inline constexpr int kVocab = 200;

inline cpu::DecoderConfig small_config(int layers = 2) {
  cpu::DecoderConfig out;
  out.heads = 3, out.kv_heads = 1, out.head_dim = 64;
  out.vocab_size = kVocab, out.hidden_size = 96, out.intermediate_size = 160, out.layers = layers;
  out.tied_head = true;
  return out;
}
inline cpu::DecoderWeights<float> small_weights(int layers = 2) {
  return cpu::random_decoder_weights<float>(small_config(layers), 3);
}

inline std::vector<Token> random_tokens(int n, std::uint64_t seed) {
  specula_test::Random random(seed);
  std::vector<Token> out;
  for (int i = 0; i < n; ++i) out.push_back(random.below(kVocab));
  return out;
}
using Row = std::vector<float>;
inline Row row_of(const LogitsView& rows, int i) { return {rows.row(i).begin(), rows.row(i).end()}; }
inline bool same_bits(const Row& a, const Row& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace small_model
