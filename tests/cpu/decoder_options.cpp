// SPDX-License-Identifier: MIT
// DecoderOptions: ranges, instruction sets, wide products.
#include <specula/cpu/decoder_options.hpp>

#include <doctest/doctest.h>

#include <stdexcept>

using namespace specula::cpu;
using detail::checked;
using specula::best_isa;
using specula::Isa;

TEST_CASE("an option out of range is named, with its value and its range") {
  const auto make = [](DecoderOptions options) { checked<float>(options); };
  CHECK_THROWS_WITH_AS(make({.capacity = 0}), "DecoderOptions::capacity is 0, must be 1 to 16777216",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(make({.max_nodes = 0}), "DecoderOptions::max_nodes is 0, must be 1 to 1024",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(make({.max_nodes = 1025}), "DecoderOptions::max_nodes is 1025, must be 1 to 1024",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(make({.threads = 0}), "DecoderOptions::threads is 0, must be 1 to 256",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(make({.prefill_chunk = 0}), "DecoderOptions::prefill_chunk is 0, must be 1 to 4096",
                       std::invalid_argument);
  CHECK_NOTHROW(make({.capacity = 1 << 24, .max_nodes = 1024, .threads = 256, .prefill_chunk = 4096}));
}

TEST_CASE("instructions that the machine lacks are refused, and rounded inputs in double") {
  CHECK_THROWS_WITH_AS(checked<float>({.isa = Isa::reference}),
                       "DecoderOptions::isa is reference, which only rows have; use a Decoder<double>",
                       std::invalid_argument);
  CHECK_NOTHROW(checked<double>({}));
  if (best_isa() != Isa::avx512) {
    CHECK_THROWS_WITH_AS(checked<float>({.isa = Isa::avx512}), doctest::Contains("DecoderOptions::isa"),
                         std::invalid_argument);
  }
  CHECK_THROWS_WITH_AS(checked<double>({.inputs = Inputs::bf16}),
                       doctest::Contains("DecoderOptions::inputs is bf16"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(checked<double>({.cache = CacheType::half}),
                       "DecoderOptions::cache is half, which takes a model that calculates in float",
                       std::invalid_argument);
  for (const Inputs inputs : {Inputs::int16, Inputs::int8}) {
    CHECK_THROWS_WITH_AS(checked<double>({.inputs = inputs}),
                         "DecoderOptions::inputs are integers, which take a model that calculates in float",
                         std::invalid_argument);
    CHECK(checked<float>({.inputs = inputs}).inputs == inputs);
  }
  CHECK_NOTHROW(checked<double>({.cache = CacheType::full}));
  CHECK(checked<float>({.cache = CacheType::half}).cache == CacheType::half);
  CHECK_FALSE(checked<double>({}).cache);
  if (!has_bf16_products()) {
    CHECK_THROWS_AS(checked<float>({.inputs = Inputs::bf16}), std::invalid_argument);
  } else {
    CHECK(checked<float>({.inputs = Inputs::bf16}).inputs == Inputs::bf16);
  }
}

TEST_CASE("a pass has room for a chunk, or for all nodes and the deferred tokens") {
  CHECK(detail::pass_columns({.max_nodes = 64, .prefill_chunk = 128}) == 128);
  CHECK(detail::pass_columns({.max_nodes = 120, .prefill_chunk = 128}) == 120 + detail::kLazyTokens);
}
