// SPDX-License-Identifier: MIT
// Philox4x32-10.
#include <specula/base/philox.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

#include "philox_of_arrays.hpp"
#include "random.hpp"

namespace {

/// Philox4x32-10 transcribed from the paper's listing: multiply, exchange, xor, bump the key before
/// each round but the first.
std::array<std::uint32_t, 4> transcribed(std::array<std::uint32_t, 4> x, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    if (round > 0) k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    const auto multiply = [](std::uint32_t a, std::uint32_t b, std::uint32_t& high) {
      const auto product = static_cast<std::uint64_t>(a) * b;
      high = static_cast<std::uint32_t>(product >> 32);
      return static_cast<std::uint32_t>(product & 0xFFFFFFFFu);
    };
    std::uint32_t high0 = 0, high1 = 0;
    const std::uint32_t low0 = multiply(0xD2511F53u, x[0], high0), low1 = multiply(0xCD9E8D57u, x[2], high1);
    const std::array<std::uint32_t, 4> next{high1 ^ x[1] ^ k0, low1, high0 ^ x[3] ^ k1, low0};
    x = next;
  }
  return x;
}

}  // namespace

TEST_CASE("the known answers of Random123, and an independent transcription") {
  using Words = std::array<std::uint32_t, 4>;
  constexpr std::uint32_t f = 0xFFFFFFFFu;
  CHECK(specula_test::philox({0, 0, 0, 0}, {0, 0}) ==
        Words{0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u});
  CHECK(specula_test::philox({f, f, f, f}, {f, f}) ==
        Words{0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu});
  CHECK(specula_test::philox({0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u},
                             {0xA4093822u, 0x299F31D0u}) ==
        Words{0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u});
  specula_test::Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto word = [&] { return static_cast<std::uint32_t>(random.bits()); };
    const Words counter{word(), word(), word(), word()};
    const std::uint32_t k0 = word(), k1 = word();
    CHECK(specula_test::philox(counter, {k0, k1}) == transcribed(counter, k0, k1));
  }
}
