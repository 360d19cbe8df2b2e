// SPDX-License-Identifier: MIT
// Products shared by the threads of a team, against plain loops.
#include <specula/cpu/detail/team_product.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../random_blocks.hpp"
#include "random.hpp"

using namespace specula::cpu;
using namespace specula::files;
using namespace specula::cpu::detail;

TEST_CASE("any number of threads gives the product of all rows, into the outputs that were asked for") {
  specula_test::Random random(1);
  const std::int32_t rows = 150, cols = 7, count = 5;  // three blocks of four panels
  PanelMatrix<double> matrix(rows, cols, WeightType::full);
  for (std::int32_t r = 0; r < rows; ++r) {
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (float& x : row) x = static_cast<float>(random.between(-1, 1));
    matrix.set_row(r, row);
  }
  Activations<double> in(count, cols), out(count, rows);
  for (std::int32_t i = 0; i < count; ++i)
    for (std::int32_t k = 0; k < cols; ++k) in.at(i)[k] = random.between(-1, 1);
  for (const std::int32_t threads : {1, 2, 4}) {
    TeamProduct<double> product({.threads = threads, .prefill_chunk = 8}, cols);
    CHECK(product.team()->size() == threads);
    for (double& x : out.values) x = -100;
    auto body = [&](std::int32_t thread) { product.multiply(thread, matrix, in, out, 2, 5, 1); };
    product.team()->run(body);
    for (std::int32_t r = 0; r < rows; ++r) {
      CHECK(out.at(0)[r] == -100);
      CHECK(out.at(4)[r] == -100);
      for (std::int32_t i = 2; i < 5; ++i) {
        double want = 0;
        for (std::int32_t k = 0; k < cols; ++k) want += matrix.value(r, k) * in.at(i)[k];
        CHECK(out.at(i - 1)[r] == doctest::Approx(want).epsilon(1e-13));
      }
    }
  }
}

TEST_CASE("rows of several types, some in blocks: any number of threads gives the bits of each range alone") {
  specula_test::Random random(2);
  const std::int32_t cols = 256, count = 15;
  const std::vector<RowRange> ranges{
      {48, {WeightType::blocks, GgufId::q4_k}}, {16, {WeightType::full}},
      {80, {WeightType::blocks, GgufId::q6_k}}, {32, {WeightType::bf16}},
      {16, {WeightType::blocks, GgufId::q8_0}}, {20, {WeightType::blocks, GgufId::q4_0}}};
  Arena arena;
  PanelMatrix<float> mixed(ranges, cols, arena);
  std::vector<PanelMatrix<float>> parts;
  std::int32_t row = 0;
  for (const RowRange& range : ranges) {
    parts.emplace_back(std::vector<RowRange>{range}, cols, arena);
    for (std::int32_t r = 0; r < range.rows; ++r, ++row) {
      if (range.stored.type == WeightType::blocks) {
        const auto bytes = specula_test::random_row(range.stored.blocks, cols, random);
        mixed.set_blocks(row, bytes.data()), parts.back().set_blocks(r, bytes.data());
      } else {
        std::vector<float> values(static_cast<std::size_t>(cols));
        for (float& value : values) value = static_cast<float>(random.between(-1, 1));
        mixed.set_row(row, values), parts.back().set_row(r, values);
      }
    }
  }
  Activations<float> in(count, cols);
  for (std::int32_t i = 0; i < count; ++i)
    for (std::int32_t k = 0; k < cols; ++k) in.at(i)[k] = static_cast<float>(random.between(-1, 1));
  for (const Inputs inputs : {Inputs::full, Inputs::int16, Inputs::int8, Inputs::bf16}) {
    if (inputs == Inputs::bf16 && !has_bf16_products()) continue;
    const auto multiply = [&](const PanelMatrix<float>& matrix, std::int32_t threads, bool vnni) {
      TeamProduct<float> product({.threads = threads, .prefill_chunk = 8, .inputs = inputs, .vnni = vnni},
                                 cols, 0, cols);
      Activations<float> out(count, matrix.rows());
      std::fill(out.values.begin(), out.values.end(), -100.0f);
      auto body = [&](std::int32_t thread) { product.multiply(thread, matrix, in, out, 1, 14, 2); };
      product.team()->run(body);
      for (const std::int32_t i : {0, 1})
        CHECK(std::all_of(out.at(i), out.at(i) + out.stride, [](float value) { return value == -100; }));
      return out;
    };
    for (const std::int32_t threads : {1, 2, 3})
      for (const bool vnni : {true, false}) {
        auto all = multiply(mixed, threads, vnni);
        std::int32_t first = 0;
        for (const PanelMatrix<float>& part : parts) {
          auto alone = multiply(part, 1, true);
          bool same = true;
          for (std::int32_t i = 2; i < count; ++i)
            same = same && std::equal(alone.at(i), alone.at(i) + part.rows(), all.at(i) + first);
          CAPTURE(static_cast<int>(inputs));
          CAPTURE(threads);
          CAPTURE(first);
          CHECK(same);
          first += part.rows();
        }
        // And it is the product.
        for (std::int32_t r = 0; r < mixed.rows(); r += 5) {
          double want = 0, most = 0;
          for (std::int32_t k = 0; k < cols; ++k) {
            const double term = double{mixed.value(r, k)} * double{in.at(3)[k]};
            want += term, most += std::abs(term);
          }
          CHECK(std::abs(double{all.at(4)[r]} - want) <=
                most * (inputs == Inputs::int8 || inputs == Inputs::bf16 ? 4e-3 : 2e-5));
        }
      }
  }
}

TEST_CASE("shares are neighbours, and all of it") {
  const TeamProduct<double> product({.threads = 3, .prefill_chunk = 8}, 4);
  for (const std::int32_t total : {0, 1, 2, 3, 100}) {
    std::int32_t next = 0;
    for (std::int32_t thread = 0; thread < 3; ++thread) {
      const auto share = product.share(thread, total);
      CHECK(share.first == next);
      next = share.second;
    }
    CHECK(next == total);
  }
}

TEST_CASE("vectors of one kind are copied whole") {
  Activations<float> all(3, 5);
  CHECK(all.stride == 16);
  for (int k = 0; k < 16; ++k) all.at(2)[k] = static_cast<float>(k);
  all.copy(2, 0);
  for (int k = 0; k < 16; ++k) CHECK((all.at(0)[k] == static_cast<float>(k) && all.at(1)[k] == 0));
}
