// SPDX-License-Identifier: MIT
// One layer of a small decoder over a tree of three tokens, for the tests of its blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../attention_scores.hpp"
#include "../naive_llama.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/model_input.hpp"
#include "specula/cpu/detail/slot_memory.hpp"
#include "worst.hpp"

namespace specula_test {

/// A token, its child, and a sibling of that. No size is a whole number of panels.
struct OneLayer {
  static specula::cpu::DecoderConfig small() {
    specula::cpu::DecoderConfig config;
    config.vocab_size = 11, config.hidden_size = 20, config.intermediate_size = 18, config.layers = 1;
    config.heads = 4, config.kv_heads = 2, config.head_dim = 6, config.tied_head = true;
    return config;
  }

  specula::cpu::DecoderConfig config;
  specula::cpu::DecoderOptions options{.capacity = 8, .max_nodes = 3, .threads = 2, .prefill_chunk = 4};
  specula::cpu::DecoderWeights<double> weights;
  specula::cpu::detail::Batch<double> batch{config, options, 24};
  std::vector<std::int32_t> paths{0, 0, 1, 0, 2};
  std::vector<specula::cpu::detail::BatchToken> tokens{
      {7, 0, 0, &paths[0], 1, 1}, {3, 1, 1, &paths[1], 2, 2}, {9, 1, 2, &paths[3], 2, 1}};
  specula::cpu::detail::SlotMemory<double> memory{config, options};
  specula::cpu::detail::TargetState<double> target;
  specula::cpu::detail::Segment<double> segment{0, 3, 0, 3, &memory, &target};  // all tokens are one text

  explicit OneLayer(const specula::cpu::DecoderConfig& of = small(),
                    std::shared_ptr<const specula::cpu::DecoderWeights<double>> of_target = {},
                    float scores = kRandom)
      : config(of),
        weights(with_scores(
            specula::cpu::random_decoder_weights<double>(of, 5, specula::cpu::WeightType::full, of_target),
            scores)) {
    batch.tokens = tokens;
    batch.segments = {&segment, 1};
    for (std::int32_t i = 0; i < 3; ++i) weights.tokens().get_row(batch.token(i).token, batch.hidden.at(i));
  }

  /// Calls f(worker) on both threads, which share the tokens.
  template <class F>
  void on_threads(F f) {
    auto body = [&](std::int32_t thread) {
      const auto [first, last] = batch.product.share(thread, batch.count());
      f(specula::cpu::detail::Worker{thread, first, last});
    };
    batch.product.team()->run(body);
  }

  /// The largest difference between the residual stream after `block` and that of plain loops over the layer.
  double error_after(specula::cpu::detail::Block<double>& block) {
    return error_after(block, naive_columns(weights, {{7, 0, {0}}, {3, 1, {0, 1}}, {9, 1, {0, 2}}}));
  }
  double error_after(specula::cpu::detail::Block<double>& block, const NaiveStates& naive) {
    on_threads([&](const auto& worker) { block.run(worker, batch), batch.add(worker); });
    double error = 0;
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < naive.hidden[0][i].size(); ++k)
        error = worse(error,
                      std::abs(naive.hidden[0][i][k] - batch.hidden.at(static_cast<std::ptrdiff_t>(i))[k]));
    return error;
  }
};

}  // namespace specula_test
