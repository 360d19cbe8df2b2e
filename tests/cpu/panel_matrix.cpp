// SPDX-License-Identifier: MIT
// labels: vectorised
// PanelMatrix: rows are stored and read back, with all weight types, of several in one matrix too.
#include <specula/cpu/panel_matrix.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "random.hpp"
#include "random_blocks.hpp"

using namespace specula::cpu;
using namespace specula::files;
using specula_test::kBlockTypes;
using specula_test::Random;

TEST_CASE("rows read back equal those stored, rounded for bfloat16; padding rows are zero") {
  for (const WeightType type : {WeightType::bf16, WeightType::full}) {
    PanelMatrix<float> matrix(21, 5, type);
    CHECK(matrix.panels() == 2);
    CHECK(matrix.padded_rows() == 32);
    for (std::int32_t r = 0; r < 21; ++r) {
      std::vector<float> row(5);
      for (std::int32_t k = 0; k < 5; ++k)
        row[static_cast<std::size_t>(k)] = static_cast<float>(r) - 0.5f * static_cast<float>(k);
      matrix.set_row(r, row);
    }
    std::vector<float> out(5);
    for (std::int32_t r = 0; r < 21; ++r) {
      matrix.get_row(r, out.data());
      for (std::int32_t k = 0; k < 5; ++k)
        CHECK(out[static_cast<std::size_t>(k)] == static_cast<float>(r) - 0.5f * static_cast<float>(k));
    }
    CHECK(matrix.value(31, 4) == 0.0f);
  }
}

TEST_CASE("bfloat16 is the nearest, ties to even") {
  PanelMatrix<float> coarse(1, 8, WeightType::bf16);
  const float infinity = std::numeric_limits<float>::infinity();
  coarse.set_row(0, std::vector<float>{1.001f, 1.005f, 1 + 0x1p-8f, 1 + 0x3p-8f, -1.005f, infinity,
                                       std::bit_cast<float>(0x7fffffffu), std::numeric_limits<float>::max()});
  CHECK(coarse.value(0, 0) == 1.0f);
  CHECK(coarse.value(0, 1) == 1 + 0x1p-7f);
  CHECK(coarse.value(0, 2) == 1.0f);
  CHECK(coarse.value(0, 3) == 1 + 0x1p-6f);
  CHECK(coarse.value(0, 4) == -1 - 0x1p-7f);
  CHECK(coarse.value(0, 5) == infinity);
  CHECK(std::isnan(coarse.value(0, 6)));
  CHECK(coarse.value(0, 7) == infinity);
}

TEST_CASE("selected rows keep their bits and type; padding rows are zero") {
  for (const WeightType type : {WeightType::bf16, WeightType::full}) {
    PanelMatrix<double> matrix(40, 5, type);
    for (std::int32_t r = 0; r < 40; ++r)
      matrix.set_row(r, std::vector<float>{static_cast<float>(r), 1, -2, 3, 0.5f * static_cast<float>(r)});
    const std::vector<std::int32_t> rows{39, 0, 16, 17, 0};
    const PanelMatrix<double> some = matrix.select(rows);
    CHECK(some.rows() == 5);
    CHECK(some.cols() == 5);
    CHECK(some.type() == type);
    for (std::int32_t r = 0; r < 5; ++r)
      for (std::int32_t k = 0; k < 5; ++k)
        CHECK(some.value(r, k) == matrix.value(rows[static_cast<std::size_t>(r)], k));
    CHECK(some.value(15, 4) == 0);
    CHECK(matrix.select({}).rows() == 0);
  }
}

TEST_CASE("matrices of an arena are contiguous, and outlive it") {
  PanelMatrix<float> first, second;
  {
    specula::cpu::detail::Arena arena;
    first = {17, 3, WeightType::bf16, arena};
    second = {5, 7, WeightType::full, arena};
  }
  CHECK(static_cast<const void*>(first.bf16_panels(2).w) == second.real_panels(0).w);
  first.set_row(16, std::vector<float>{1, 2, 3});
  CHECK(first.value(16, 2) == 3.0f);
  CHECK(second.value(4, 6) == 0.0f);
  const PanelMatrix<float> larger_than_a_chunk(1 << 11, 1 << 11, WeightType::full);
  CHECK(larger_than_a_chunk.value((1 << 11) - 1, (1 << 11) - 1) == 0.0f);
}

TEST_CASE("the distance between inputs is not a multiple of 4096 bytes") {
  using specula::cpu::detail::column_stride;
  CHECK(column_stride<float>(383) == 384);
  CHECK(column_stride<float>(1024) == 1040);
  CHECK(column_stride<double>(500) == 528);
}

namespace {

/// Ranges of rows of several types, and what they were set to.
struct Mixed {
  static constexpr std::int32_t kCols = 512;
  std::vector<RowRange> ranges;
  specula::cpu::detail::Arena arena;
  PanelMatrix<float> matrix;
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<std::byte>> blocks;  // empty rows of other types

  explicit Mixed(std::vector<RowRange> r) : ranges(std::move(r)), matrix(ranges, kCols, arena) {
    Random random(1);
    for (const RowRange& range : ranges)
      for (std::int32_t i = 0; i < range.rows; ++i) {
        const auto row = static_cast<std::int32_t>(rows.size());
        std::vector<float>& values = rows.emplace_back(static_cast<std::size_t>(kCols));
        std::vector<std::byte>& bytes = blocks.emplace_back();
        if (range.stored.type == WeightType::blocks) {
          bytes = specula_test::random_row(range.stored.blocks, kCols, random, row % 2 == 1);
          CHECK(matrix.set_blocks(row, bytes.data()) == -1);
          expand(range.stored.blocks, bytes.data(), values);
        } else {
          for (float& value : values) value = static_cast<float>(random.below(255) - 127);
          matrix.set_row(row, values);
        }
      }
  }
};

const std::vector<RowRange> kRanges{{32, {WeightType::blocks, GgufId::q4_k}},
                                    {16, {WeightType::blocks, GgufId::q6_k}},
                                    {48, {WeightType::bf16}},
                                    {16, {WeightType::full}},
                                    {37, {WeightType::blocks, GgufId::q5_0}}};  // ends within a panel

bool same(const std::vector<float>& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("ranges of several types in one matrix: rows, values, types, bytes") {
  const Mixed mixed(kRanges);
  const PanelMatrix<float>& matrix = mixed.matrix;
  CHECK(matrix.rows() == 149);
  CHECK(matrix.panels() == 10);
  CHECK(matrix.padded_rows() == 160);
  CHECK(matrix.type() == WeightType::blocks);
  CHECK(matrix.has_blocks());
  const auto bits = [](double of_each, int rows) {
    return static_cast<std::size_t>(of_each * rows * Mixed::kCols / 8);
  };
  CHECK(matrix.bytes() == bits(4.625, 32) + bits(6.5625, 16) + bits(16, 48) + bits(32, 16) + bits(5.5, 48));
  std::int32_t row = 0;
  std::vector<float> got(static_cast<std::size_t>(Mixed::kCols));
  for (const RowRange& range : kRanges)
    for (std::int32_t i = 0; i < range.rows; ++i, ++row) {
      CHECK(matrix.stored_at(row) == range.stored);
      matrix.get_row(row, got.data());
      CHECK(same(mixed.rows[static_cast<std::size_t>(row)], got.data()));
      for (std::int32_t k = 0; k < Mixed::kCols; ++k) got[static_cast<std::size_t>(k)] = matrix.value(row, k);
      CHECK(same(mixed.rows[static_cast<std::size_t>(row)], got.data()));
    }
  for (std::int32_t k = 0; k < Mixed::kCols; k += 7) CHECK(matrix.value(155, k) == 0.0f);
  CHECK(StoredType{WeightType::bf16, GgufId::q4_0} == StoredType{WeightType::bf16});
  CHECK_FALSE(StoredType{WeightType::blocks, GgufId::q4_0} == StoredType{WeightType::blocks, GgufId::q4_1});
}

TEST_CASE("rows of every type of blocks are those of the file, bit for bit") {
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const Mixed mixed({{32, {WeightType::blocks, type}}, {21, {WeightType::blocks, type}}});
    std::vector<float> got(static_cast<std::size_t>(Mixed::kCols));
    for (std::int32_t row = 0; row < 53; ++row) {
      mixed.matrix.get_row(row, got.data());
      CHECK(same(mixed.rows[static_cast<std::size_t>(row)], got.data()));
    }
  }
}

TEST_CASE("any panels: in parts that are stored alike, in order, each from its own first panel on") {
  const Mixed mixed(kRanges);
  const PanelMatrix<float>& matrix = mixed.matrix;
  // Of the whole: where each panel begins.
  std::vector<const void*> begins;
  const std::int32_t ends[] = {2, 3, 6, 7, 10};
  for (std::int32_t v = 0; v < 10; ++v)
    matrix.for_panels(v, 1, [&](auto panels, std::int32_t first, std::int32_t count) {
      CHECK(first == v);
      CHECK(count == 1);
      const std::size_t part = static_cast<std::size_t>(std::upper_bound(ends, ends + 5, v) - ends);
      if constexpr (std::is_same_v<decltype(panels), specula::cpu::detail::BlockPanels>) {
        CHECK(StoredType{WeightType::blocks, panels.type} == kRanges[part].stored);
        begins.push_back(panels.at);
        // It is that panel: its first row's first group.
        specula::files::detail::BlockGroup group, want;
        specula::cpu::detail::unpack_group(specula::files::detail::format_of(panels.type), panels.at, 0, 0,
                                           group);
        specula::files::detail::read_group(panels.type, mixed.blocks[static_cast<std::size_t>(16 * v)].data(),
                                           0, want);
        CHECK((std::memcmp(group.numbers, want.numbers, sizeof want.numbers) == 0 && group.d == want.d));
      } else {
        begins.push_back(panels.w);
        CHECK(kRanges[part].stored.type ==
              (std::is_same_v<decltype(panels), specula::cpu::detail::Bf16Panels> ? WeightType::bf16
                                                                                  : WeightType::full));
      }
    });
  REQUIRE(begins.size() == 10);
  for (std::int32_t from = 0; from <= 10; ++from)
    for (std::int32_t count = 0; from + count <= 10; ++count) {
      std::int32_t next = from;
      bool right = true;
      matrix.for_panels(from, count, [&](auto panels, std::int32_t first, std::int32_t n) {
        const void* at = nullptr;
        if constexpr (std::is_same_v<decltype(panels), specula::cpu::detail::BlockPanels>)
          at = panels.at;
        else
          at = panels.w;
        const std::int32_t end = std::min(from + count, *std::upper_bound(ends, ends + 5, first));
        right = right && first == next && n == end - first && at == begins[static_cast<std::size_t>(first)];
        next = first + n;
      });
      CHECK((right && next == from + count));
    }
}

TEST_CASE("a range that ends within a panel, and is not the last, is refused by its row") {
  specula::cpu::detail::Arena arena;
  const auto make = [&](std::int32_t first, std::int32_t second) {
    const PanelMatrix<float> matrix(
        {{first, {WeightType::full}}, {second, {WeightType::bf16}}, {1, {WeightType::full}}}, 4, arena);
  };
  CHECK_NOTHROW(make(16, 32));
  CHECK_THROWS_WITH_AS(make(8, 32), "PanelMatrix: a range ends with row 8, expected a multiple of 16",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(make(16, 33), "PanelMatrix: a range ends with row 49, expected a multiple of 16",
                       std::invalid_argument);
}

TEST_CASE("selected rows of one type stay in its blocks, of several are floats") {
  const Mixed mixed(kRanges);
  const auto all_same = [&](const PanelMatrix<float>& some, const std::vector<std::int32_t>& rows) {
    std::vector<float> got(static_cast<std::size_t>(Mixed::kCols));
    bool right = some.rows() == static_cast<std::int32_t>(rows.size()) && some.cols() == Mixed::kCols;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      some.get_row(static_cast<std::int32_t>(r), got.data());
      right = right && same(mixed.rows[static_cast<std::size_t>(rows[r])], got.data());
    }
    return right;
  };
  const std::pair<std::vector<std::int32_t>, StoredType> kCases[] = {
      {{31, 0, 16, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 30}, kRanges[0].stored},
      {{47, 32}, kRanges[1].stored},
      {{50, 49, 95}, kRanges[2].stored},
      {{148, 112, 128, 147}, kRanges[4].stored},
      {{0, 40}, {WeightType::full}},
      {{0, 60, 100, 148}, {WeightType::full}}};
  for (const auto& [rows, stored] : kCases) {
    const PanelMatrix<float> some = mixed.matrix.select(rows);
    CHECK(some.stored_at(0) == stored);
    CHECK(all_same(some, rows));
    const auto last = static_cast<std::int32_t>(rows.size()) - 1;
    if (last % 16 != 15) CHECK(some.value(last + 1, 3) == 0.0f);
  }
}

TEST_CASE("the first block with a scale that is infinite or NaN is reported") {
  Random random(2);
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    specula::cpu::detail::Arena arena;
    PanelMatrix<float> matrix({{3, {WeightType::blocks, type}}}, 768, arena);
    const std::size_t size = specula_test::about(type).bytes;
    auto row = specula_test::random_row(type, 768, random, true);
    const auto blocks = static_cast<std::int32_t>(row.size() / size);
    CHECK(matrix.set_blocks(1, row.data()) == -1);
    for (const int bad : {0x7c00, 0xfc00, 0x7c01, 0x7fff, 0xfe00})
      for (std::int32_t b = 0; b < blocks; b += blocks / 3) {
        auto damaged = row;
        const auto put = [&](std::int32_t block, std::size_t place) {
          specula_test::put_half(damaged.data() + static_cast<std::size_t>(block) * size + place,
                                 static_cast<std::uint16_t>(bad));
        };
        put(b, specula_test::place_of_d(type));
        CHECK(matrix.set_blocks(1, damaged.data()) == b);
        put(blocks - 1, specula_test::place_of_d(type));
        CHECK(matrix.set_blocks(2, damaged.data()) == b);
        if (!specula_test::has_minimum(type)) continue;
        damaged = row;
        put(b, 2);
        CHECK(matrix.set_blocks(1, damaged.data()) == b);
      }
  }
}

TEST_CASE("blocks of floats are Q8_0, exact for groups of 8 bits; other blocks are not made of floats") {
  Random random(3);
  for (const std::int32_t cols : {5, 32, 70}) {  // groups that are not whole are filled with zeros
    PanelMatrix<float> matrix(20, cols, WeightType::blocks);
    CHECK(matrix.stored_at(19) == StoredType{WeightType::blocks, GgufId::q8_0});
    std::vector<float> row(static_cast<std::size_t>(cols)), got = row;
    for (std::int32_t r = 0; r < 20; ++r) {
      std::vector<std::int8_t> exponents(Int8Groups::count(row.size()));
      for (std::int8_t& e : exponents) e = static_cast<std::int8_t>(random.below(40) - 24);
      for (float& value : row) value = static_cast<float>(random.below(255) - 127);
      for (std::size_t k = 0; k < row.size(); k += 32) row[k] = 127;
      scale_groups(row, exponents);
      matrix.set_row(r, row);
      matrix.get_row(r, got.data());
      CHECK(got == row);
    }
    // Others are rounded as the folder's 8 bits are.
    for (float& value : row) value = static_cast<float>(random.between(-1, 1));
    matrix.set_row(7, row);
    matrix.get_row(7, got.data());
    std::vector<std::int8_t> numbers(row.size()), exponents(Int8Groups::count(row.size()));
    round_to_groups(row, numbers, exponents);
    std::vector<float> want(numbers.begin(), numbers.end());
    scale_groups(want, exponents);
    CHECK(got == want);
  }
  specula::cpu::detail::Arena arena;
  for (const GgufId type : kBlockTypes) {
    PanelMatrix<float> matrix({{3, {WeightType::blocks, type}}}, 256, arena);
    const std::vector<float> row(256, 1.0f);
    if (type == GgufId::q8_0)
      CHECK_NOTHROW(matrix.set_row(0, row));
    else
      CHECK_THROWS_WITH_AS(matrix.set_row(0, row), "PanelMatrix: only blocks of Q8_0 are made of floats",
                           std::invalid_argument);
  }
}
