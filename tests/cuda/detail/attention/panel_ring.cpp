// SPDX-License-Identifier: MIT
// PanelRing: tiles of keys and values in the layout of wgmma.

#include <doctest/doctest.h>
#include <specula/cuda/detail/attention/panel_ring.cuh>

#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention_scene.hpp"
#include "emulated_gpu.hpp"
#include "emulated_wgmma.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Float8E4M3;
using device::Half;
using device::detail::PanelRing;
using device::detail::StoredKv;

namespace {

/// Tiles 0..4 of head 1, keys [load, end), two of them in flight: all keys are loaded, as elements, and the
/// rest is zero.
template <class Element, class Stored, int kHead>
void check_panels(int load, int end) {
  constexpr int kStages = 3, kTiles = 5;
  constexpr bool kBytes = sizeof(Stored) == 1;
  Random random(static_cast<std::uint64_t>(load + end));
  const std::int64_t token = 3 * kHead;
  std::vector<Stored> k(static_cast<std::size_t>(end * token)), v(k.size());
  for (auto* pool : {&k, &v})
    for (Stored& x : *pool) x = {nearest_bits(Stored{}, random.between(-400, 400))};
  device::PagedKv<Stored> kv{};
  kv.k = {k.data(), 0, token, kHead, nullptr};
  kv.v = {v.data(), 0, token, kHead, nullptr};
  using Ring = PanelRing<Element, Stored, kHead, 4, kStages>;
  CHECK(Ring::kStageBytes == 2 * 64 * kHead * 2);
  HopperBlock memory(kStages * Ring::kStageBytes, 128, 1);
  int wrong = 0;
  emulate({.threads = 128, .shared_bytes = kStages * Ring::kStageBytes}, [&](EmulatedCluster cluster, int,
                                                                             unsigned char* shared) {
    const auto block = cluster.block();
    const auto warp = block.warp();
    EmulatedHopper hopper(block, shared, memory);
    const Ring ring(kv, {0, 1}, device::detail::Divisor(100000), 1, {load, load, end, end}, block.warp_rank(),
                    warp.rank(), shared);
    for (int tile = -1; tile < kTiles; ++tile) {
      if (tile + 1 < kTiles) ring.copy(warp, hopper, ring.locate(tile + 1), tile + 1, (tile + 1) % kStages);
      hopper.commit();
      if (tile < 0) continue;
      const int stage = tile % kStages;
      hopper.template wait<1>();
      if constexpr (kBytes) ring.widen(hopper, stage);
      block.sync();
      for (int i = block.rank(); i < 64 * kHead; i += block.size()) {
        const int row = i / kHead, n = i % kHead, key = 64 * tile + row;
        const auto at = static_cast<std::size_t>(key * token + kHead + StoredKv<Element, Stored>::column(n));
        const bool there = key >= load && key < end;
        for (const bool of_v : {false, true}) {
          Element got;
          std::memcpy(&got,
                      (of_v ? ring.v(stage) : ring.k(stage)) + device::detail::panel_offset<64>(row, n / 8) +
                          n % 8 * 2,
                      2);
          wrong += plain_value(got) != (there ? plain_value((of_v ? v : k)[at]) : 0.0);
        }
      }
      block.sync();
    }
  });
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("tiles of elements, and of bytes widened to elements, in panels") {
  for (const auto& [load, end] : {std::pair{0, 320}, {5, 201}, {70, 129}, {63, 64}, {10, 10}}) {
    check_panels<BFloat16, BFloat16, 128>(load, end);
    check_panels<Half, Half, 64>(load, end);
    check_panels<BFloat16, Float8E4M3, 128>(load, end);
    check_panels<Half, Float8E4M3, 128>(load, end);
    check_panels<BFloat16, Float8E4M3, 64>(load, end);
  }
}

TEST_CASE_TEMPLATE("eight lanes that copy, read or write chunks of bytes use all banks", Size,
                   std::integral_constant<int, 64>, std::integral_constant<int, 128>) {
  constexpr int kChunks = Size::value / 16;
  std::set<int> places;
  for (int first = 0; first < 64 * kChunks; first += 8) {
    std::set<int> banks;
    for (int i = first; i < first + 8; ++i) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int place = device::detail::narrow_offset<64>(row, chunk);
      CHECK((place == device::detail::panel_offset<64>(row, 2 * chunk) ||
             place == device::detail::panel_offset<64>(row, 2 * chunk + 1)));
      CHECK((place ^ 16) == device::detail::panel_offset<64>(row, 2 * chunk) +
                                device::detail::panel_offset<64>(row, 2 * chunk + 1) - place);
      banks.insert(place / 16 % 8);
      places.insert(place);
    }
    CHECK(banks.size() == 8);
  }
  CHECK(places.size() == static_cast<std::size_t>(64 * kChunks));
}
