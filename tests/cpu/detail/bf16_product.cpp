// SPDX-License-Identifier: MIT
// labels: threads vectorised
// Matrix products of inputs rounded to bfloat16: against sums in double, and the same bits for any number of
// inputs.
#include <specula/cpu/detail/bf16_product.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "random.hpp"
#include "skip.hpp"
#include "specula/cpu/decoder.hpp"
#include "thread_sanitizer.hpp"
#include "worst.hpp"

namespace {

using namespace specula::cpu;
using specula::NodeId;
using specula::Token;

bool lacks_bf16() {
  if (has_bf16_products()) return false;
  specula_test::skip("this processor has no AVX512_BF16");
  return true;
}

double rounded(float value) {  // to nearest, ties to even, on the bits
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<double>(std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u));
}

DecoderConfig small_config() {
  DecoderConfig c;
  c.vocab_size = 96, c.hidden_size = 64, c.intermediate_size = 88, c.layers = 2;
  c.heads = 4, c.kv_heads = 2, c.head_dim = 16;
  return c;
}

}  // namespace

UNTHREADED_TEST_CASE("any number of inputs gives the sums of the rounded inputs, with the same bits") {
  if (lacks_bf16()) return;
  specula_test::Random random(3);
  for (const std::int32_t cols : {1, 2, 31, 64, 255, 344}) {
    const std::int32_t rows = 16 * 29, columns = 19;
    PanelMatrix<float> matrix(rows, cols, WeightType::bf16);
    for (std::int32_t r = 0; r < rows; ++r) {
      std::vector<float> row(static_cast<std::size_t>(cols));
      for (float& value : row) value = static_cast<float>(rounded(static_cast<float>(random.between(-1, 1))));
      matrix.set_row(r, row);
    }
    const std::ptrdiff_t ldx = cols + 3;  // padding after an input must not enter a sum
    std::vector<float> x(static_cast<std::size_t>(columns * ldx), std::numeric_limits<float>::quiet_NaN());
    for (std::int32_t c = 0; c < columns; ++c)
      for (std::int32_t k = 0; k < cols; ++k)
        x[static_cast<std::size_t>(c * ldx + k)] = static_cast<float>(random.between(-1, 1));
    detail::Bf16Product cached(columns, cols), streamed(columns, cols, true);
    const auto multiply = [&](std::int32_t first, std::int32_t count, bool streams = false) {
      std::vector<float> y(static_cast<std::size_t>(count * rows), 99.0f);
      (streams ? streamed : cached)
          .run(matrix.bf16_panels(0), matrix.panels(), cols, {x.data() + first * ldx, ldx, y.data(), rows},
               count);
      return y;
    };
    const std::vector<float> all = multiply(0, columns);
    double error = 0;
    for (std::int32_t c = 0; c < columns; ++c)
      for (std::int32_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int32_t k = 0; k < cols; ++k)
          sum += static_cast<double>(matrix.value(r, k)) * rounded(x[static_cast<std::size_t>(c * ldx + k)]);
        error = specula_test::worse(
            error, std::abs(sum - static_cast<double>(all[static_cast<std::size_t>(c * rows + r)])));
      }
    CAPTURE(cols);
    CHECK(error < 2e-5);
    for (std::int32_t count = 1; count <= 14; ++count) {
      const std::vector<float> some = multiply(columns - count, count);
      CHECK(multiply(columns - count, count, true) == some);
      const bool same =
          std::equal(some.begin(), some.end(), all.end() - static_cast<std::ptrdiff_t>(some.size()));
      CAPTURE(count);
      CHECK(same);
    }
  }
}

TEST_CASE(
    "a model with rounded inputs gives a token the same bits alone, in a tree and on two threads, near its "
    "full logits") {
  if (lacks_bf16()) return;
  const auto weights =
      std::make_shared<const DecoderWeights<float>>(random_decoder_weights<float>(small_config(), 5));
  const auto model_of = [&](Inputs inputs, std::int32_t threads) {
    DecoderOptions options;
    options.capacity = 128, options.inputs = inputs, options.threads = threads;
    return Decoder<float>(weights, options);
  };
  auto alone = model_of(Inputs::bf16, 1), tree = model_of(Inputs::bf16, 2), full = model_of(Inputs::full, 1);
  specula_test::Random random(11);
  std::vector<Token> context, tokens;
  for (int i = 0; i < 40; ++i) context.push_back(random.below(96));
  for (auto* model : {&alone, &tree, &full}) model->append(context);
  std::vector<NodeId> parents;
  for (NodeId i = 0; i < 64; ++i) {
    tokens.push_back(random.below(96));
    parents.push_back(i == 0 ? specula::kNoParent : random.below(i));
  }
  const auto rows = tree.extend(tokens, parents), exact = full.extend(tokens, parents);
  double worst = 0, largest = 0;
  std::int32_t same = 0;
  for (NodeId i = 0; i < 64; ++i) {
    const auto one =
        alone.extend({&tokens[static_cast<std::size_t>(i)], 1}, {&parents[static_cast<std::size_t>(i)], 1});
    same += std::equal(one.row(0).begin(), one.row(0).end(), rows.row(i).begin());
    for (std::size_t v = 0; v < 96; ++v) {
      worst = specula_test::worse(worst, static_cast<double>(std::abs(rows.row(i)[v] - exact.row(i)[v])));
      largest = std::max(largest, static_cast<double>(std::abs(exact.row(i)[v])));
    }
  }
  CHECK(same == 64);
  CHECK(worst < 0.03 * largest);
  CHECK(worst > 0);  // shows that inputs were rounded
}
