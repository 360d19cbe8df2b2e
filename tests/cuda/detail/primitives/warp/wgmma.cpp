// SPDX-License-Identifier: MIT
// labels: optimised
// Products of a warpgroup by wgmma with the library's layouts, and misuse that the emulated tensor core
// detects.
#include <doctest/doctest.h>
#include <specula/cuda/detail/primitives/thread/mma_layout.cuh>
#include <specula/cuda/detail/primitives/thread/wgmma_layout.cuh>
#include <specula/cuda/detail/primitives/warp/wgmma.cuh>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "emulated_wgmma.hpp"
#include "random.hpp"

using namespace specula_test;
namespace detail = specula::cuda::detail;
using specula::cuda::BFloat16;
using specula::cuda::Half;

namespace {

template <class Element>
std::vector<Element> random_matrix(int size, Random& random) {
  std::vector<Element> out;
  for (int i = 0; i < size; ++i)
    out.push_back({static_cast<std::uint16_t>(
        detail::pack(Element{}, static_cast<float>(random.between(-2, 2)), 0.0f))});
  return out;
}

/// d = A B^T twice over for 64 x 16 and 64 keys of kHead columns (one step of them), and d = A V for 16 of 64
/// keys: the greatest error.
template <class Element, int kHead>
double product_error(int step, std::uint64_t seed) {
  Random random(seed);
  const auto a = random_matrix<Element>(64 * 16, random), tile = random_matrix<Element>(64 * kHead, random);
  const auto value = [](Element e) { return static_cast<double>(detail::to_float(e)); };
  std::vector<float> keys(64 * 64), values(64 * kHead);
  HopperBlock block(64 * kHead * 2, 128, static_cast<std::int64_t>(seed));
  emulate({.threads = 128, .shared_bytes = 64 * kHead * 2, .seed = seed}, [&](EmulatedCluster cluster, int,
                                                                              unsigned char* shared) {
    const auto threads = cluster.block();
    EmulatedHopper hopper(threads, shared, block);
    for (int i = threads.rank(); i < 64 * kHead; i += 128)
      std::memcpy(shared + detail::panel_offset<64>(i / kHead, i % kHead / 8) + i % 8 * 2,
                  &tile[static_cast<std::size_t>(i)], 2);
    threads.sync();
    const int lane = threads.rank() % 32, first = 16 * (threads.rank() / 32);
    std::uint32_t registers[4];
    for (int r = 0; r < 4; ++r) {
      const auto at = detail::a_cell(lane, r);
      std::memcpy(&registers[r], &a[static_cast<std::size_t>((first + at.row) * 16 + at.column)], 4);
    }
    float s[8][4], o[kHead / 8][4];
    for (auto& row : s)
      for (float& x : row) x = NAN;  // not read
    for (auto& row : o)
      for (float& x : row) x = 1;
    const std::uint32_t address = hopper.shared_address(shared);
    hopper.fence_memory();
    hopper.fence_products();
    for (int i = 0; i < 2; ++i)
      hopper.template multiply<0>(Element{}, s, registers,
                                  detail::key_descriptor(address) + detail::key_step<64>(step % (kHead / 16)),
                                  i);
    hopper.commit_products();
    hopper.template multiply<1>(Element{}, o, registers,
                                detail::value_descriptor<64>(address) + detail::value_step(step % 4), 1);
    hopper.commit_products();
    hopper.template wait_products<1>();
    hopper.settle(s);
    CHECK(std::isnan(o[0][0]));
    hopper.template wait_products<0>();
    hopper.settle(o);
    for (int i = 0; i < 4; ++i) {
      const auto at = detail::c_cell(lane, i);
      for (int n = 0; n < 8; ++n)
        keys[static_cast<std::size_t>((first + at.row) * 64 + 8 * n + at.column)] = s[n][i];
      for (int n = 0; n < kHead / 8; ++n)
        values[static_cast<std::size_t>((first + at.row) * kHead + 8 * n + at.column)] = o[n][i];
    }
    CHECK(hopper.idle());
  });
  double worst = 0;
  const int column = 16 * (step % (kHead / 16)), key = 16 * (step % 4);
  for (int row = 0; row < 64; ++row) {
    for (int n = 0; n < 64; ++n) {
      double want = 0;
      for (int k = 0; k < 16; ++k)
        want += 2 * value(a[static_cast<std::size_t>(row * 16 + k)]) *
                value(tile[static_cast<std::size_t>(n * kHead + column + k)]);
      worst = std::max(worst,
                       std::fabs(want - static_cast<double>(keys[static_cast<std::size_t>(row * 64 + n)])));
    }
    for (int n = 0; n < kHead; ++n) {
      double want = 1;
      for (int k = 0; k < 16; ++k)
        want += value(a[static_cast<std::size_t>(row * 16 + k)]) *
                value(tile[static_cast<std::size_t>((key + k) * kHead + n)]);
      worst = std::max(
          worst, std::fabs(want - static_cast<double>(values[static_cast<std::size_t>(row * kHead + n)])));
    }
  }
  return worst;
}

/// The emulated device's error about a warpgroup's calls.
using Doing = std::function<void(EmulatedBlock, EmulatedHopper&, unsigned char*)>;
std::string complaint(const Doing& doing) {
  HopperBlock block(32768, 128, 1);
  try {
    emulate({.threads = 128, .shared_bytes = 32768},
            [&](EmulatedCluster cluster, int, unsigned char* shared) {
              EmulatedHopper hopper(cluster.block(), shared, block);
              doing(cluster.block(), hopper, shared);
            });
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return {};
}
bool says(const std::string& complaint, const char* what) {
  CAPTURE(complaint);
  return complaint.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("products of keys and of values from swizzled tiles") {
  for (int step = 0; step < 8; ++step) {
    CHECK(product_error<BFloat16, 128>(step, static_cast<std::uint64_t>(step) + 1) < 1e-4);
    CHECK(product_error<Half, 64>(step, static_cast<std::uint64_t>(step) + 11) < 1e-4);
  }
}

TEST_CASE("misuse of the tensor core is detected") {
  alignas(16) static unsigned char zeros[16];
  const std::uint64_t keys = detail::key_descriptor(0);
  const auto copy_tile = [](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
    auto* barrier = reinterpret_cast<std::uint64_t*>(shared + 16384);
    if (block.rank() == 0) hopper.init(barrier, 128);
    block.sync();
    for (int i = block.rank(); i < 512; i += 128) hopper.copy(shared + 16 * i, zeros, true);
    hopper.arrive_after_copies(barrier);
    return barrier;
  };
  struct Registers {
    float d[8][4] = {};
    std::uint32_t a[4] = {};
  };
  const auto issue = [&](EmulatedHopper& hopper, Registers& r) {
    hopper.fence_products();
    hopper.multiply<0>(BFloat16{}, r.d, r.a, keys, 0);
    hopper.commit_products();
  };

  CHECK(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
          Registers r;
          hopper.wait_for(copy_tile(block, hopper, shared), 0);
          hopper.fence_memory();
          issue(hopper, r);
          hopper.wait_products<0>();
          hopper.settle(r.d);
          CHECK(r.d[7][3] == 0);
        }).empty());
  CHECK(says(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
               Registers r;  // no memory fence
               hopper.wait_for(copy_tile(block, hopper, shared), 0);
               issue(hopper, r);
             }),
             "memory fence"));
  CHECK(says(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
               Registers r;  // no wait for the copies
               copy_tile(block, hopper, shared);
               hopper.fence_memory();
               issue(hopper, r);
               hopper.wait_for(reinterpret_cast<std::uint64_t*>(shared + 16384), 0);
               hopper.wait_products<0>();
             }),
             "memory fence"));
  CHECK(says(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
               Registers r;  // the tile is overwritten too early
               hopper.wait_for(copy_tile(block, hopper, shared), 0);
               hopper.fence_memory();
               issue(hopper, r);
               block.sync();
               if (block.rank() == 5) hopper.copy(shared + 4096, zeros, true);
               block.sync();
               hopper.wait_products<0>();
             }),
             "memory fence"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char*) {
               Registers r;
               hopper.multiply<0>(BFloat16{}, r.d, r.a, keys, 0);
             }),
             "without a fence"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char*) {
               Registers r;  // sums are read and written before the wait
               issue(hopper, r);
               r.d[3][1] += 1;
               r.d[3][2] = 1;
               hopper.wait_products<0>();
             }),
             "sums were touched"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char*) {
               Registers r;
               issue(hopper, r);
               r.a[2] = 7;
               hopper.wait_products<0>();
             }),
             "A was touched"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char*) {
               Registers r;  // a wait that does not cover the product
               issue(hopper, r);
               hopper.wait_products<1>();
               hopper.settle(r.d);
             }),
             "settled before"));
  CHECK(says(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char*) {
               Registers r;
               hopper.fence_products();
               hopper.multiply<0>(BFloat16{}, r.d, r.a, keys + (block.rank() < 96 ? 0u : 2u), 0);
             }),
             "different products"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char*) {
               Registers r;  // no swizzle, and a base offset
               hopper.fence_products();
               hopper.multiply<0>(BFloat16{}, r.d, r.a, keys & ~(std::uint64_t{3} << 62), 0);
             }),
             "swizzle"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char*) {
               Registers r;
               hopper.fence_products();
               hopper.multiply<0>(BFloat16{}, r.d, r.a, keys | std::uint64_t{1} << 50, 0);
             }),
             "base offset"));
  CHECK(says(complaint([&](EmulatedBlock, EmulatedHopper& hopper, unsigned char* shared) {
               hopper.wait_for(reinterpret_cast<std::uint64_t*>(shared + 16384), 1);
             }),
             "before init"));
  CHECK(says(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
               auto* barrier = reinterpret_cast<std::uint64_t*>(shared + 16384);
               if (block.rank() == 0) hopper.init(barrier, 128);
               block.sync();
               std::uint32_t words[4];  // a thread's own write without its fence
               hopper.copy(shared + 16 * block.rank(), zeros, true);
               hopper.commit();
               hopper.wait<0>();
               hopper.load(shared + 16 * block.rank(), words);
               CHECK(words[3] == 0);
               hopper.store(shared + 16 * block.rank(), words);
               hopper.arrive(barrier);
             }),
             "not fenced"));
  CHECK(says(complaint([&](EmulatedBlock block, EmulatedHopper& hopper, unsigned char* shared) {
               auto* barrier = reinterpret_cast<std::uint64_t*>(shared + 16384);
               if (block.rank() == 0) hopper.init(barrier, 128);
               block.sync();
               if (block.rank() > 0) hopper.arrive(barrier);  // one too few
               hopper.wait_for(barrier, 0);
             }),
             "for ever"));
}
