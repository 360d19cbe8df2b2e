// SPDX-License-Identifier: MIT
// Training equals inference for drafts conditioned on the target: with the masks of losses/, all rows and all
// predicted features are those of the steps of a round.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention_scores.hpp"
#include "losses/block_mask.hpp"
#include "losses/context_alignment.hpp"
#include "naive_llama.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "worst.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using namespace specula_test;

using Weights = std::shared_ptr<const DecoderWeights<double>>;

DecoderConfig config_of(int hidden, int layers, int heads, int kv_heads, int head_dim) {
  DecoderConfig c;
  c.vocab_size = 31, c.hidden_size = hidden, c.intermediate_size = 20, c.layers = layers;
  c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim, c.tied_head = true;
  return c;
}

Weights random_weights(const DecoderConfig& config, std::uint64_t seed, float scores,
                       const Weights& target = {}) {
  return std::make_shared<const DecoderWeights<double>>(
      with_scores(random_decoder_weights<double>(config, seed, WeightType::bf16, target), scores));
}

/// A round with its root at position `root`, in which the text itself is drafted: the logits of step 1, 2,
/// ... The context is fed in pieces before, as in rounds.
template <class ReadTarget>
std::vector<std::vector<double>> round(Decoder<double>& draft, Decoder<double>& target,
                                       const std::vector<Token>& text, std::int32_t root, std::int32_t steps,
                                       ReadTarget read_target) {
  target.truncate(0);
  draft.truncate(0);
  for (std::int32_t at = 0; at < root;) {
    const auto piece = static_cast<std::size_t>(std::min(3, root - at));
    target.append(Tokens(text).subspan(static_cast<std::size_t>(at), piece));
    read_target();
    draft.append(Tokens(text).subspan(static_cast<std::size_t>(at), piece));
    at += static_cast<std::int32_t>(piece);
  }
  read_target();
  std::vector<std::vector<double>> rows;
  for (NodeId step = 0; step < steps; ++step) {
    const NodeId parent = step - 1;
    draft.extend(Tokens(text).subspan(static_cast<std::size_t>(root + step), 1), Nodes(&parent, 1));
    const auto row = draft.logits(0);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

std::vector<Token> random_text(std::size_t length) {
  Random random(4);
  std::vector<Token> text;
  while (text.size() < length) text.push_back(random.below(31));
  return text;
}

TEST_CASE("GLIDE: a training block is a round") {
  float scores = kRandom;
  SUBCASE("random scores") {}
  SUBCASE("steep scores") { scores = kSteep; }
  const auto target_weights = random_weights(config_of(24, 3, 4, 2, 6), 5, scores);
  const BlockMask mask{.block = 4};
  const auto text = random_text(18);
  const auto length = static_cast<std::int32_t>(text.size());
  const NaiveStates seen = naive_states(*target_weights, text);
  for (const int layers : {1, 2}) {
    CAPTURE(layers);
    DecoderConfig config = config_of(18, layers, 3, 1, 8);
    config.conditioned_on = Conditioning::key_values;
    static_cast<AttentionShape&>(config.target) = target_weights->config;
    config.target.layers = 3;
    const auto weights = random_weights(config, 6, scores);

    // Training: two columns per token, one as context and one within its block. With one layer both have the
    // same keys and values, so a trainer needs only the second.
    std::vector<NaiveColumn> columns;
    for (const bool in_block : {false, true})
      for (std::int32_t q = 0; q < length; ++q) {
        const std::int32_t visible = in_block ? mask.visible(q) : q;
        NaiveColumn column{text[static_cast<std::size_t>(q)],
                           static_cast<std::size_t>(q),
                           {},
                           static_cast<std::size_t>(visible)};
        for (std::int32_t s = 0; s <= q; ++s) {
          const bool fresh = !in_block || s < visible;
          const std::int32_t one_layer = in_block && layers == 1 ? length : 0;
          column.sees.push_back(static_cast<std::size_t>(s + (fresh ? one_layer : length)));
        }
        columns.push_back(column);
      }
    const NaiveStates trained = naive_columns(*weights, columns, &seen);

    Decoder<double> target(target_weights, {.capacity = 64}), draft(weights, {.capacity = 64});
    for (std::int32_t root = 0; root + mask.block <= length; ++root) {
      if (root >= mask.block && root % mask.block != 0) continue;  // in block 0, any token is a root
      const std::int32_t steps = root < mask.block ? 1 : mask.block;
      const auto rows =
          round(draft, target, text, root, steps, [&] { draft.set_target_state(target.key_values()); });
      for (std::int32_t step = 0; step < steps; ++step) {
        CAPTURE(root);
        CAPTURE(step);
        CHECK(mask.step(root + step) == step + 1);
        CHECK(farthest(rows[static_cast<std::size_t>(step)],
                       trained.logits[static_cast<std::size_t>(length + root + step)]) < 1e-11);
      }
    }
  }
}

TEST_CASE("HASS: forward pass j equals draft step j") {
  float scores = kRandom;
  DecoderConfig config = config_of(24, 1, 2, 1, 10);
  config.conditioned_on = Conditioning::features;
  SUBCASE("on the last layer") {}
  SUBCASE("on three layers") { config.feature_layers = {1, 2}; }
  SUBCASE("on two layers, steep scores") { config.feature_layers = {1}, scores = kSteep; }
  const auto target_weights = random_weights(config_of(24, 3, 4, 2, 6), 5, scores);
  const auto weights = random_weights(config, 6, scores, target_weights);
  const ContextAlignment alignment{.forwards = 4};
  const auto text = random_text(12);
  const auto length = static_cast<std::int32_t>(text.size());
  const NaiveStates seen = naive_states(*target_weights, text);
  const auto index = [&](std::int32_t stream, std::int32_t column) {
    return static_cast<std::size_t>(stream * length + column);
  };

  // Training: one stream after the other, each from the features that the one before predicted.
  std::vector<NaiveColumn> columns;
  NaiveStates trained;
  for (std::int32_t forward = 1; forward <= alignment.forwards; ++forward) {
    const std::vector<Vector> before = trained.features;
    for (std::int32_t row = 0; row < length; ++row) {
      NaiveColumn column{text[static_cast<std::size_t>(row)], static_cast<std::size_t>(row), {}};
      if (row > 0)
        column.feature = forward == 1 ? naive_feature(*weights, seen, static_cast<std::size_t>(row - 1))
                                      : before[index(forward - 2, row - 1)];
      for (std::int32_t stream = 0; stream < forward; ++stream)
        for (std::int32_t c = 0; c < length; ++c)
          if (alignment.sees(forward, row, stream, c)) column.sees.push_back(index(stream, c));
      columns.push_back(column);
    }
    trained = naive_columns(*weights, columns);
  }

  Decoder<double> target(target_weights, {.capacity = 64, .feature_layers = config.feature_layers});
  Decoder<double> head(weights, {.capacity = 64});
  for (std::int32_t root = 0; root + alignment.forwards <= length; ++root) {
    const auto rows = round(head, target, text, root, alignment.forwards,
                            [&] { head.set_target_state(target.features()); });
    head.commit(std::vector<NodeId>{0, 1, 2, 3});  // nodes become rows of features()
    const auto features = head.features();
    for (std::int32_t step = 0; step < alignment.forwards; ++step) {
      CAPTURE(root);
      CAPTURE(step);
      const std::size_t at = index(step, root + step);
      CHECK(root + step >= alignment.first_row(step + 1));
      CHECK(farthest(rows[static_cast<std::size_t>(step)], trained.logits[at]) < 1e-11);
      CHECK(farthest(features.row(root + step), trained.features[at]) < 1e-11);
    }
  }
}

}  // namespace
