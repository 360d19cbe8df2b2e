// SPDX-License-Identifier: MIT
// Rows of logits: of all tokens, or an LM head's outputs spread over the tokens of a draft vocabulary.
#include <specula/cpu/detail/logit_rows.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "one_layer.hpp"

using namespace specula::cpu;

namespace {

/// Row `row` of the logits of the tokens [first, last), which are written from `to` on.
template <class Layer>
std::vector<double> row_of(Layer& layer, detail::LogitRows<double>& logits, const PanelMatrix<double>& head,
                           std::int32_t first, std::int32_t last, std::int32_t to, std::int32_t row) {
  layer.on_threads([&](const auto& worker) {
    logits.run(worker, head, layer.batch.product, layer.batch.normed, first, last, to);
  });
  const double* const at = logits.rows().at(row);
  return {at, at + layer.config.vocab_size};
}

}  // namespace

TEST_CASE("the logits of draft tokens have the same bits as in a full row, others are minus infinity") {
  specula_test::OneLayer layer;
  layer.batch.normed = layer.batch.hidden;
  DecoderWeights<double> some = layer.weights;
  some.draft_tokens = {0, 3, 4, 10};
  const auto part = layer.weights.head().select(some.draft_tokens);
  detail::LogitRows<double> all_rows(layer.weights, 3), some_rows(some, 3);
  const auto check = [&](std::int32_t first, std::int32_t last, std::int32_t to, std::int32_t row) {
    const auto all = row_of(layer, all_rows, layer.weights.head(), first, last, to, row),
               drafted = row_of(layer, some_rows, part, first, last, to, row);
    for (std::size_t token = 0; token < 11; ++token) {
      CAPTURE(token);
      if (token == 0 || token == 3 || token == 4 || token == 10)
        CHECK(drafted[token] == all[token]);
      else
        CHECK(drafted[token] == -std::numeric_limits<double>::infinity());
      CHECK(std::isfinite(all[token]));
    }
  };
  for (std::int32_t row = 0; row < 3; ++row) check(0, 3, 0, row);
  check(2, 3, 0, 0);  // the last token's logits, in the first row
  check(1, 3, 1, 2);
  check(2, 3, 2, 2);
  check(0, 1, 2, 2);  // the first token's, in the last row
}
