// SPDX-License-Identifier: MIT
// Number types of GGUF: blocks against their formulas, rounded rows against what they may lose.
#include <specula/cpu/gguf_blocks.hpp>

#include "specula/cpu/gguf_blocks.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../examples/common/gguf_rounding.hpp"
#include "random.hpp"
#include "safetensors_writer.hpp"

namespace {

using namespace specula::cpu;
using specula_examples::append_rounded;

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
      for (int i = 0; i < 64; ++i)
        REQUIRE(
            got[static_cast<std::size_t>(i)] ==
            static_cast<float>(formula(
                type, bytes.substr(static_cast<std::size_t>(i / 32) * about.bytes, about.bytes), i % 32)));
    }
  }
}

TEST_CASE("types by number") {
  CHECK(find_gguf_type(2)->name == std::string("Q4_0"));
  CHECK(find_gguf_type(12)->bytes == 144);
  CHECK(!find_gguf_type(12)->expands);
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
