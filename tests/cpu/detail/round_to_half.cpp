// SPDX-License-Identifier: MIT
// labels: vectorised
// Vectors rounded to half floats: every instruction set's bits are those of single numbers.
#include <specula/cpu/detail/round_to_half.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

using specula::Isa;
using specula::detail::half_to_float;
using specula::cpu::detail::round_to_half;

namespace {

/// Every half float, the middles between them and the floats beside both; then all exponents of floats, with
/// the first bits that rounding takes off, and NaNs.
std::vector<float> numbers() {
  std::vector<float> out;
  const auto beside = [&](std::uint32_t bits) {
    for (const std::uint32_t near_by : {bits - 1, bits, bits + 1})
      out.push_back(std::bit_cast<float>(near_by));
  };
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const auto bits = std::bit_cast<std::uint32_t>(half_to_float(static_cast<std::uint16_t>(half)));
    beside(bits), beside(bits + 0x1000u);
  }
  for (std::uint32_t exponent = 0; exponent < 0x200; ++exponent)
    for (const std::uint32_t fraction : {0u, 0x1000u, 0x2000u, 0x3000u, 0x555555u, 0x7fefffu, 0x7ff000u})
      beside(exponent << 23 | fraction);
  return out;
}

}  // namespace

TEST_CASE("all half floats, ties and exponents, on each instruction set") {
  const std::vector<float> x = numbers();
  const auto size = static_cast<std::int32_t>(x.size());
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (!specula::supported(isa)) continue;
    CAPTURE(static_cast<int>(isa));
    std::vector<std::uint16_t> out(x.size());
    round_to_half(isa, x.data(), size, out.data());
    bool same = true;
    for (std::size_t i = 0; i < x.size(); ++i) same = same && out[i] == round_to_half(x[i]);
    CHECK(same);
  }
}

TEST_CASE("any size, and nothing after it is written") {
  const std::vector<float> x(40, 1.0f);
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
    for (std::int32_t size = 0; size < 40 && specula::supported(isa); ++size) {
      std::vector<std::uint16_t> out(41, 7);
      round_to_half(isa, x.data(), size, out.data());
      for (std::int32_t i = 0; i < 41; ++i)
        CHECK(out[static_cast<std::size_t>(i)] == (i < size ? 0x3c00 : 7));
    }
}
