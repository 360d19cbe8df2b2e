// SPDX-License-Identifier: MIT
// labels: vectorised
// Panels of weights in blocks: groups are read back as they were written, each byte has one owner, sizes, the
// order of bits.
#include <specula/cpu/detail/block_layout.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "../random_blocks.hpp"
#include "random.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;
using namespace specula::cpu::detail;
using specula_test::kBlockTypes;
using specula_test::Random;

constexpr int kRows = static_cast<int>(kPanel);

bool same(const BlockGroup& a, const BlockGroup& b) {
  return std::memcmp(a.numbers, b.numbers, sizeof a.numbers) == 0 && a.d == b.d && a.m == b.m && a.s == b.s &&
         a.t == b.t;
}

/// All bits that a group of a format may have, or some.
BlockGroup random_group(const BlockLayout& format, Random& random, int kind) {
  const auto bits = [&](std::uint32_t all) {
    return kind == 1                            ? 0u
           : kind == 2                          ? all
           : kind == 3 && random.bernoulli(0.5) ? all
                                                : static_cast<std::uint32_t>(random.bits()) & all;
  };
  BlockGroup out;
  for (std::uint8_t& number : out.numbers) number = static_cast<std::uint8_t>(bits((1u << format.bits) - 1));
  out.d = static_cast<std::uint16_t>(bits(0xffff));
  if (format.minimum) out.m = static_cast<std::uint16_t>(bits(0xffff));
  if (format.levels)
    out.s = static_cast<std::uint8_t>(bits(0xff)), out.t = static_cast<std::uint8_t>(bits(0xff));
  return out;
}

std::uint32_t word_at(const std::vector<std::byte>& panel, std::ptrdiff_t at, int r) {
  std::uint32_t word = 0;
  std::memcpy(&word, panel.data() + at + 4 * r, 4);
  return word;
}

}  // namespace

TEST_CASE("a group is read back as it was written, in any row and of any block") {
  Random random(1);
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const BlockLayout format = format_of(type);
    const std::int32_t groups = format.levels ? 24 : 19;
    // Two panels, one after the other, in memory that was in use.
    const auto size = static_cast<std::size_t>(format.panel_bytes(groups));
    std::vector<std::byte> panels(2 * size);
    for (std::byte& byte : panels) byte = static_cast<std::byte>(random.below(256));
    std::vector<BlockGroup> all;
    for (std::int32_t i = 0; i < 2 * kRows * groups; ++i) {
      all.push_back(random_group(format, random, i % 4));
      const std::int32_t g = i % groups, shared = g % format.shared();
      if (shared) all.back().d = all[all.size() - 2].d, all.back().m = all[all.size() - 2].m;
    }
    const auto place = [&](std::int32_t row) {
      return panels.data() + static_cast<std::size_t>(row / kRows) * size;
    };
    const auto group = [&](std::int32_t row, std::int32_t g) -> const BlockGroup& {
      return all[static_cast<std::size_t>(row * groups + g)];
    };
    for (std::int32_t i = 0; i < 2 * kRows; ++i)
      for (std::int32_t g = 0; g < groups; ++g) {
        const std::int32_t row = (i * 11 + 5) % (2 * kRows);  // in no order
        pack_group(format, group(row, g), g, row % kRows, place(row));
      }
    int differ = 0;
    for (std::int32_t row = 0; row < 2 * kRows; ++row)
      for (std::int32_t g = 0; g < groups; ++g) {
        BlockGroup got;
        unpack_group(format, place(row), g, row % kRows, got);
        differ += !same(got, group(row, g));
      }
    CHECK(differ == 0);
  }
}

TEST_CASE("each byte of a panel is of one group of one row, and none is of none") {
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const BlockLayout format = format_of(type);
    const std::int32_t groups = 16;
    const std::vector<std::byte> zeros(static_cast<std::size_t>(format.panel_bytes(groups)));
    std::vector<int> owners(zeros.size());
    Random random(2);
    const BlockGroup ones = random_group(format, random, 2);
    for (std::int32_t g = 0; g < groups; ++g)
      for (int r = 0; r < kRows; ++r) {
        std::vector<std::byte> panel = zeros;
        pack_group(format, ones, g, r, panel.data());
        for (std::size_t i = 0; i < panel.size(); ++i) {
          owners[i] += panel[i] != std::byte{0};
          if (panel[i] != std::byte{0} && panel[i] != std::byte{255}) owners[i] += 100;  // all bits are used
        }
      }
    CHECK(owners == std::vector<int>(zeros.size(), 1));
  }
}

TEST_CASE("bits of a weight: those of the file, but that scales of 6 bits take 8") {
  const std::pair<GgufId, double> kBits[] = {
      {GgufId::q4_0, 4.5}, {GgufId::q4_1, 5},     {GgufId::q5_0, 5.5},   {GgufId::q5_1, 6},
      {GgufId::q8_0, 8.5}, {GgufId::q4_k, 4.625}, {GgufId::q5_k, 5.625}, {GgufId::q6_k, 6.5625}};
  for (const auto& [type, bits] : kBits) {
    const BlockLayout format = format_of(type);
    for (const int groups : {8, 16, 64})
      CHECK(8 * static_cast<double>(format.panel_bytes(groups)) == bits * kRows * kGroup * groups);
  }
  const BlockLayout format = format_of(GgufId::q4_k);
  CHECK(format.panel_bytes(9) == format.panel_bytes(16) - 7 * format.group_bytes());
}

TEST_CASE("groups of rows of files: those that expand() gives, bit for bit") {
  Random random(3);
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const BlockLayout format = format_of(type);
    const std::int32_t cols = 512, groups = cols / kGroup;
    std::vector<std::byte> panel(static_cast<std::size_t>(format.panel_bytes(groups)));
    std::vector<std::vector<std::byte>> rows;
    for (int r = 0; r < kRows; ++r) {
      rows.push_back(specula_test::random_row(type, cols, random, r % 2 == 1));
      for (std::int32_t g = 0; g < groups; ++g) {
        BlockGroup group;
        read_group(type, rows.back().data(), g, group);
        pack_group(format, group, g, r, panel.data());
      }
    }
    int differ = 0;
    for (int r = 0; r < kRows; ++r) {
      std::vector<float> want(static_cast<std::size_t>(cols)), got = want;
      expand(type, rows[static_cast<std::size_t>(r)].data(), want);
      for (std::int32_t g = 0; g < groups; ++g) {
        BlockGroup group;
        unpack_group(format, panel.data(), g, r, group);
        expand_group(format, group, got.data() + g * kGroup);
      }
      differ += std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) != 0;
      // And what the tests take for the weights is that.
      for (int k = 0; k < cols; ++k) {
        const auto plain = specula_test::plain_weight(type, rows[static_cast<std::size_t>(r)].data(), k);
        const float weight = plain.scale * static_cast<float>(plain.number);
        differ += want[static_cast<std::size_t>(k)] != (format.minimum ? weight + plain.minimum : weight);
      }
    }
    CHECK(differ == 0);
  }
}

TEST_CASE("the order of nibbles, planes and bytes") {
  Random random(4);
  for (const GgufId type : kBlockTypes) {
    CAPTURE(static_cast<int>(type));
    const BlockLayout format = format_of(type);
    std::vector<std::byte> panel(static_cast<std::size_t>(format.panel_bytes(8)));
    for (const int r : {0, 6, 15}) {
      const BlockGroup group = random_group(format, random, 0);
      const std::int32_t g = 5;
      pack_group(format, group, g, r, panel.data());
      const std::ptrdiff_t words = format.group_at(g) + format.group_head();
      const auto word = [&](int j) { return word_at(panel, words + 64 * j, r); };
      const auto number = [&](int column) { return std::uint32_t{group.numbers[column]}; };
      for (int j = 0; j < 4; ++j)
        if (format.bits == 8) {
          for (int i = 0; i < 2; ++i) {
            const int columns[] = {0, 1, 4, 5};
            for (int b = 0; b < 4; ++b)
              CHECK((word(2 * j + i) >> 8 * b & 255) == number(8 * j + 2 * i + columns[b]));
          }
        } else {
          for (int f = 0; f < 8; ++f) CHECK((word(j) >> 4 * f & 15) == (number(8 * j + f) & 15));
        }
      for (int p = 0; format.planes() > 0 && p < 16; ++p) {
        const int more = format.bits - 4, bit = more == 1 ? p : 2 * (p % 8), column = p / 4 * 8 + p % 4;
        const std::uint32_t plane = word(more == 1 ? 4 : 4 + p / 8), mask = (1u << more) - 1;
        CHECK((plane >> bit & mask) == number(column) >> 4);
        CHECK((plane >> (16 + bit) & mask) == number(column + 4) >> 4);
      }
      if (format.levels) {
        CHECK(panel[static_cast<std::size_t>(format.group_at(g) + r)] == std::byte{group.s});
        CHECK(panel[static_cast<std::size_t>(format.group_at(g) + 16 + r)] == std::byte{group.t});
      }
    }
  }
}
