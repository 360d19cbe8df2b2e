// SPDX-License-Identifier: MIT
// Choice of rounded inputs, weight types and types of cache; the table of processors.
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

TEST_CASE("products of bfloat16 pay on Zen 4 and Zen 5") {
  using specula::cpu::detail::is_zen_with_bf16;
  for (const unsigned model : {0x10u, 0x11u, 0x1fu, 0x60u, 0x61u, 0x74u, 0x7fu, 0xa0u, 0xafu})
    CHECK(is_zen_with_bf16(25, model));
  for (const unsigned model : {0x00u, 0x0fu, 0x20u, 0x21u, 0x50u, 0x5fu, 0x80u, 0x9fu, 0xb0u})
    CHECK_FALSE(is_zen_with_bf16(25, model));
  for (const unsigned model : {0x02u, 0x44u}) CHECK(is_zen_with_bf16(26, model));
  CHECK_FALSE(is_zen_with_bf16(23, 0x31));
  CHECK_FALSE(is_zen_with_bf16(24, 0x10));
  CHECK_FALSE(is_zen_with_bf16(6, 0x8f));
  if (specula::cpu::bf16_products_pay()) CHECK(specula::cpu::has_bf16_products());
  if (specula::cpu::has_avx_vnni()) CHECK(specula::supported(specula::Isa::avx2));
}
