// SPDX-License-Identifier: MIT
// Number types of GGUF: blocks against their formulas, rounded rows against what they may lose.
#include <specula/files/gguf_blocks.hpp>

#include "specula/files/gguf_blocks.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../tools/common/gguf_rounding.hpp"
#include "random.hpp"
#include "safetensors_writer.hpp"

namespace {

using namespace specula::files;
using specula_tools::append_rounded;

std::vector<float> expanded(GgufId type, const std::string& bytes, std::size_t count) {
  std::vector<float> out(count, -1.0f);
  expand(type, reinterpret_cast<const std::byte*>(bytes.data()), out);
  return out;
}

std::string random_bytes(std::size_t count, specula_test::Random& random) {
  std::string out;
  while (out.size() < count) out.push_back(static_cast<char>(random.below(256)));
  return out;
}

double half_at(const std::string& block, std::size_t at) {
  const auto bits = static_cast<std::uint16_t>(static_cast<unsigned char>(block[at]) |
                                               static_cast<unsigned char>(block[at + 1]) << 8);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return bits & 0x8000 ? -size : size;
}

/// Number i of a block, by the layout that llama.cpp documents, in double.
double formula(GgufId type, const std::string& block, int i) {
  const auto byte = [&](int at) {
    return static_cast<int>(static_cast<unsigned char>(block[static_cast<std::size_t>(at)]));
  };
  const double d = half_at(block, 0);
  if (type == GgufId::q8_0) return d * static_cast<signed char>(block[static_cast<std::size_t>(2 + i)]);
  const bool offset = type == GgufId::q4_1 || type == GgufId::q5_1,
             five = type == GgufId::q5_0 || type == GgufId::q5_1;
  const int bits = offset ? 4 : 2, nibbles = bits + (five ? 4 : 0);
  int q = byte(nibbles + i % 16) >> (i < 16 ? 0 : 4) & 15;
  if (five) q += 16 * (byte(bits + i / 8) >> i % 8 & 1);
  return offset ? d * q + half_at(block, 2) : d * (q - (five ? 16 : 8));
}

/// What a block of 256 says, and its bytes, set bit by bit. Of Q6_K groups are of 16, of the others of 32.
struct BlockOf256 {
  GgufId type;
  int scales[16] = {}, minimums[8] = {}, numbers[256] = {};
  std::uint16_t d = 0, step = 0;  // as halves

  int bits() const { return type == GgufId::q4_k ? 4 : type == GgufId::q5_k ? 5 : 6; }
  /// In double, which holds it exactly.
  double number(int i) const {
    std::string halves;
    for (const std::uint16_t half : {d, step})
      halves.push_back(static_cast<char>(half & 255)), halves.push_back(static_cast<char>(half >> 8));
    const double size = half_at(halves, 0);
    if (type == GgufId::q6_k) return size * scales[i / 16] * (numbers[i] - 32);
    return size * scales[i / 32] * numbers[i] - half_at(halves, 2) * minimums[i / 32];
  }
  std::string bytes() const {
    std::string out(find_gguf_type(static_cast<std::uint32_t>(type))->bytes, '\0');
    // `count` bits of `value`, from bit `from`, into a byte from its bit `to` on
    const auto put = [&](int byte, int to, int value, int from, int count) {
      for (int b = 0; b < count; ++b)
        if (value >> (from + b) & 1)
          out[static_cast<std::size_t>(byte)] =
              static_cast<char>(out[static_cast<std::size_t>(byte)] | 1 << (to + b));
    };
    const auto put_half = [&](int byte, std::uint16_t half) {
      put(byte, 0, half, 0, 8), put(byte + 1, 0, half, 8, 8);
    };
    if (type == GgufId::q6_k) {
      for (int i = 0; i < 256; ++i) {  // four quarters of 32 in each half: below, below, above, above
        const int half = i / 128, quarter = i / 32 % 4, at = i % 32;
        put(64 * half + 32 * (quarter % 2) + at, quarter < 2 ? 0 : 4, numbers[i], 0, 4);
        put(128 + 32 * half + at, 2 * quarter, numbers[i], 4, 2);
      }
      for (int g = 0; g < 16; ++g) put(192 + g, 0, scales[g], 0, 8);
      put_half(208, d);
      return out;
    }
    put_half(0, d), put_half(2, step);
    for (int g = 0; g < 4; ++g) {
      put(4 + g, 0, scales[g], 0, 6), put(8 + g, 0, minimums[g], 0, 6);
      put(12 + g, 0, scales[g + 4], 0, 4), put(12 + g, 4, minimums[g + 4], 0, 4);
      put(4 + g, 6, scales[g + 4], 4, 2), put(8 + g, 6, minimums[g + 4], 4, 2);
    }
    const int first = bits() == 5 ? 48 : 16;
    for (int i = 0; i < 256; ++i) {
      put(first + i / 64 * 32 + i % 32, i / 32 % 2 ? 4 : 0, numbers[i], 0, 4);
      if (bits() == 5) put(16 + i % 32, i / 32, numbers[i], 4, 1);
    }
    return out;
  }
};

/// `extreme`: every scale, minimum and number is one of the two ends of its range.
BlockOf256 random_block(GgufId type, bool extreme, specula_test::Random& random) {
  BlockOf256 out{type};
  const auto within = [&](int from, int to) {
    return extreme ? random.bernoulli(0.5) ? from : to : from + random.below(to - from + 1);
  };
  for (int& scale : out.scales) scale = type == GgufId::q6_k ? within(-128, 127) : within(0, 63);
  for (int& minimum : out.minimums) minimum = within(0, 63);
  for (int& number : out.numbers) number = within(0, (1 << out.bits()) - 1);
  // Halves of either sign, from 0 and the least subnormal number to the largest finite one.
  for (std::uint16_t* const half : {&out.d, &out.step})
    *half = static_cast<std::uint16_t>(within(0, 0x7bff) | random.below(2) << 15);
  return out;
}

constexpr GgufId kBlocksOf256[] = {GgufId::q4_k, GgufId::q5_k, GgufId::q6_k};
constexpr GgufId kBlocks[] = {GgufId::q4_0, GgufId::q4_1, GgufId::q5_0, GgufId::q5_1, GgufId::q8_0};

}  // namespace

TEST_CASE("blocks are expanded by their formulas") {
  specula_test::Random random(1);
  for (const GgufId type : kBlocks) {
    const GgufType& about = *find_gguf_type(static_cast<std::uint32_t>(type));
    CHECK(about.expands);
    REQUIRE(about.block == 32);
    for (int round = 0; round < 50; ++round) {
      std::string bytes;
      for (int b = 0; b < 2; ++b) {
        std::string block = random_bytes(about.bytes, random);
        for (const std::size_t at : {std::size_t{1}, std::size_t{3}})  // halves are finite
          if ((block[at] & 0x7c) == 0x7c) block[at] = static_cast<char>(block[at] & 0x3f);
        bytes += block;
      }
      const auto got = expanded(type, bytes, 64);
      for (std::size_t i = 0; i < 64; ++i) {
        const std::string block = bytes.substr(i / 32 * about.bytes, about.bytes);
        const auto wanted = static_cast<float>(formula(type, block, static_cast<int>(i % 32)));
        REQUIRE(std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(wanted));
      }
    }
  }
}

TEST_CASE("blocks of 256 are expanded to the bits of what they say") {
  specula_test::Random random(3);
  for (const GgufId type : kBlocksOf256) {
    CAPTURE(static_cast<int>(type));
    for (int round = 0; round < 200; ++round) {
      const BlockOf256 blocks[] = {random_block(type, round % 4 == 0, random),
                                   random_block(type, round % 4 == 1, random)};
      // At any alignment.
      const std::string shift(static_cast<std::size_t>(round % 8), 'x');
      const std::string bytes = shift + blocks[0].bytes() + blocks[1].bytes();
      std::vector<float> got(512, -1.0f);
      expand(type, reinterpret_cast<const std::byte*>(bytes.data()) + shift.size(), got);
      for (int i = 0; i < 512; ++i) {
        const auto wanted = static_cast<float>(blocks[i / 256].number(i % 256));
        REQUIRE(std::bit_cast<std::uint32_t>(got[static_cast<std::size_t>(i)]) ==
                std::bit_cast<std::uint32_t>(wanted));
      }
    }
  }
}

TEST_CASE("scales and minimums of 6 bits") {
  specula_test::Random random(4);
  for (int round = 0; round < 200; ++round) {
    const BlockOf256 block = random_block(GgufId::q4_k, round % 2 == 0, random);
    const std::string bytes = block.bytes();
    for (int g = 0; g < 8; ++g) {
      const auto [scale, minimum] =
          detail::scale_and_minimum(reinterpret_cast<const std::byte*>(bytes.data()) + 4, g);
      REQUIRE(static_cast<int>(scale) == block.scales[g]);
      REQUIRE(static_cast<int>(minimum) == block.minimums[g]);
    }
  }
}

TEST_CASE("types by number") {
  CHECK(find_gguf_type(2)->name == std::string("Q4_0"));
  CHECK(find_gguf_type(12)->bytes == 144);
  CHECK(find_gguf_type(12)->expands);
  CHECK(!find_gguf_type(10)->expands);
  CHECK(find_gguf_type(4) == nullptr);
  CHECK(find_gguf_type(31) == nullptr);
  CHECK(find_gguf_type(43) == nullptr);
}

TEST_CASE("a rounded row is within half a step of what it was made of") {
  specula_test::Random random(2);
  for (int round = 0; round < 100; ++round) {
    std::vector<float> row(64);
    for (float& weight : row) weight = static_cast<float>(random.between(-0.4, 0.5));
    if (round == 0) row.assign(64, 0.0f);
    if (round == 1) row.assign(64, 0.25f);
    for (const GgufId type : kBlocks) {
      std::string bytes;
      append_rounded(type, row, bytes);
      REQUIRE(bytes.size() == 2 * find_gguf_type(static_cast<std::uint32_t>(type))->bytes);
      const auto back = expanded(type, bytes, 64);
      for (std::size_t i = 0; i < 64; ++i) {
        const std::string block = bytes.substr(i / 32 * bytes.size() / 2, bytes.size() / 2);
        // The scale is rounded to a half, and the largest step up is cut off.
        const double step = std::abs(half_at(block, 0));
        REQUIRE(std::abs(row[i] - back[i]) <=
                step * (type == GgufId::q4_0 || type == GgufId::q5_0 ? 1.02 : 0.52) + 1e-3 * 0.5);
      }
    }
    for (const GgufId type : {GgufId::f32, GgufId::f16, GgufId::bf16}) {
      std::string bytes;
      append_rounded(type, row, bytes);
      const auto back = expanded(type, bytes, 64);
      for (std::size_t i = 0; i < 64; ++i)
        REQUIRE(std::abs(row[i] - back[i]) <= std::abs(row[i]) * (type == GgufId::f32   ? 0
                                                                  : type == GgufId::f16 ? 0x1p-11
                                                                                        : 0x1p-8));
    }
  }
}

TEST_CASE("numbers that a type cannot hold are refused") {
  std::string bytes;
  std::vector<float> row(32, 1.0f);
  row[5] = 65536.0f;
  for (const GgufId type : kBlocks) CHECK_THROWS_AS(append_rounded(type, row, bytes), std::runtime_error);
  CHECK_THROWS_AS(append_rounded(GgufId::f16, row, bytes), std::runtime_error);
  append_rounded(GgufId::bf16, row, bytes);
  row[5] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH_AS(append_rounded(GgufId::f32, row, bytes),
                       doctest::Contains("inf, expected a number of at most"), std::runtime_error);
}
