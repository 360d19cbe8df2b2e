// SPDX-License-Identifier: MIT
// Choice of rounded inputs, weight types and types of cache.
#include <specula/cpu/inputs.hpp>

// Included first: the header must define them without the model's.
using specula::cpu::CacheType;
using specula::cpu::Inputs;
using specula::cpu::WeightType;

#include <doctest/doctest.h>
#include <specula/cpu/decoder_options.hpp>
#include <specula/cpu/kv_cache.hpp>
#include <specula/cpu/panel_matrix.hpp>

TEST_CASE("by default neither inputs nor weights are rounded") {
  CHECK(specula::cpu::DecoderOptions{}.inputs == Inputs::full);
  CHECK(specula::cpu::PanelMatrix<float>().type() == WeightType::full);
  CHECK_FALSE(specula::cpu::DecoderOptions{}.cache);
  CHECK(specula::cpu::KvCache<float>(1, 1, 2, 1).type() == CacheType::full);
}
