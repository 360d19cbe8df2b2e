// SPDX-License-Identifier: MIT
// KvRing: tiles of keys and values, loaded asynchronously into shared memory.

#include <doctest/doctest.h>
#include <specula/cuda/detail/attention/kv_ring.cuh>

#include <cstdint>
#include <cstring>
#include <vector>

#include "emulated_gpu.hpp"
#include "emulated_mma.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Float8E4M3;
using device::detail::KvRing;

namespace {

/// Tiles 0..3 of head 1, keys [load, end): all keys are loaded, and the rest is zero.
template <class Stored, int kHead, int kWarps>
void check_tiles(int page_size, int load, int end) {
  constexpr int kStages = 3, kBytes = sizeof(Stored);
  Random random(static_cast<std::uint64_t>(page_size + load + end));
  const int pages = (end + page_size - 1) / page_size;  // as many page table entries as the keys need
  const std::int64_t token = 3 * kHead, page = page_size * token;
  std::vector<Stored> k(static_cast<std::size_t>(page * pages)), v(k.size());
  for (auto* pool : {&k, &v})
    for (Stored& x : *pool) x.bits = static_cast<decltype(x.bits)>(random.bits());
  std::vector<std::int32_t> of_k, of_v;
  for (int p = 0; p < pages; ++p) of_k.push_back((p + 1) % pages), of_v.push_back((p + 2) % pages);
  device::PagedKv<Stored> kv{};
  kv.k = {k.data(), page, token, kHead, of_k.data()};
  kv.v = {v.data(), page, token, kHead, of_v.data()};
  kv.page_size = page_size;
  using Ring = KvRing<Stored, kHead, kWarps, kStages>;
  int wrong = 0;
  emulate({.threads = 32 * kWarps, .shared_bytes = kStages * Ring::kStageBytes},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            const auto block = cluster.block();
            const auto warp = block.warp();
            EmulatedCopies copies;
            const Ring ring(kv, {0, pages}, device::detail::Divisor(static_cast<std::uint32_t>(page_size)), 1,
                            {load, load, end, end}, block.warp_rank(), warp.rank(), shared);
            for (int tile = 0; tile < 4; ++tile) {
              const int stage = tile % kStages;
              ring.copy(warp, copies, ring.locate(tile), tile, stage);
              copies.commit();
              copies.wait<0>();
              block.sync();
              for (int i = block.rank(); i < 64 * kHead; i += block.size()) {
                const int row = i / kHead, column = i % kHead, key = 64 * tile + row;
                const bool there = key >= load && key < end;
                for (const bool of_v_now : {false, true}) {
                  Stored got;
                  decltype(got.bits) want = 0;
                  std::memcpy(&got,
                              (of_v_now ? ring.v(stage) : ring.k(stage)) +
                                  device::detail::chunk_offset<kHead, kBytes>(row, column * kBytes / 16) +
                                  column * kBytes % 16,
                              kBytes);
                  if (there) {
                    const auto entry = static_cast<std::size_t>(key / page_size);
                    const std::int64_t at =
                        (of_v_now ? of_v : of_k)[entry] * page + key % page_size * token + kHead + column;
                    want = (of_v_now ? v : k)[static_cast<std::size_t>(at)].bits;
                  }
                  wrong += got.bits != want;
                }
              }
              block.sync();
            }
          });
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("tiles of K and V arrive, zeros beyond the keys", Stored, BFloat16, Float8E4M3) {
  check_tiles<Stored, 128, 4>(16, 0, 256);
  check_tiles<Stored, 128, 8>(7, 5, 201);
  check_tiles<Stored, 64, 4>(100, 70, 129);
  check_tiles<Stored, 64, 8>(1, 63, 64);
  check_tiles<Stored, 64, 4>(48, 10, 10);
}
