// SPDX-License-Identifier: MIT
// KvCache: slots are stored, moved, copied, and read as the panel product reads them, as numbers of both
// types.
#include <specula/cpu/kv_cache.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

using namespace specula::cpu;

namespace {

constexpr int kLayers = 2, kHeads = 3, kSize = 22, kTokens = 20;  // no size is a whole number of panels

template <class T>
T stored(float value) {
  if constexpr (std::is_same_v<T, std::uint16_t>)
    return detail::round_to_half(value);
  else
    return value;
}

template <class T>
KvCache<float> make_cache(int capacity) {
  return {kLayers, kHeads, kSize, capacity, std::is_same_v<T, float> ? CacheType::full : CacheType::half};
}

/// Element d of the key of a token, which half floats round; its value's is the negative.
float number(int layer, int head, int token, int d) {
  return static_cast<float>(1000 * layer + 100 * head + token) + 0.123f * static_cast<float>(d);
}

void store(KvCache<float>& cache, int token, int slot) {
  for (int layer = 0; layer < kLayers; ++layer)
    for (int head = 0; head < kHeads; ++head) {
      std::vector<float> k, v;
      for (int d = 0; d < kSize; ++d)
        k.push_back(number(layer, head, token, d)), v.push_back(-number(layer, head, token, d));
      cache.store(layer, head, slot, k.data(), v.data());
    }
}

template <class T>
bool holds(const KvCache<float>& cache, int slot, int token) {
  bool same = true;
  for (int layer = 0; layer < kLayers; ++layer)
    for (int head = 0; head < kHeads; ++head) {
      const auto keys = cache.keys<T>(layer, head);
      const auto values = cache.values<T>(layer, head, slot);
      for (int d = 0; d < kSize; ++d) {
        const float want = number(layer, head, token, d);
        same = same && keys.w[slot / 16 * keys.panel + d * 16 + slot % 16] == stored<T>(want) &&
               values.w[d / 16 * values.panel + d % 16] == stored<T>(-want);
      }
    }
  return same;
}

}  // namespace

TEST_CASE_TEMPLATE("a slot keeps its keys and values per layer and head, also when moved", T, float,
                   std::uint16_t) {
  auto cache = make_cache<T>(kTokens);
  CHECK(cache.slots() == 32);
  CHECK((cache.type() == CacheType::half) == (sizeof(T) == 2));
  for (int slot = 0; slot < kTokens; ++slot) store(cache, slot, slot);
  cache.move(19, 3);
  cache.move(5, 5);
  for (int slot = 0; slot < kTokens; ++slot) CHECK(holds<T>(cache, slot, slot == 3 ? 19 : slot));
}

TEST_CASE_TEMPLATE("slots are copied to another cache, and stay when a cache grows", T, float,
                   std::uint16_t) {
  auto cache = make_cache<T>(kTokens), other = make_cache<T>(50);
  for (int slot = 0; slot < kTokens; ++slot) store(cache, slot, slot), store(other, 100 + slot, slot + 16);
  other.copy(cache, 16);
  for (int slot = 0; slot < kTokens; ++slot) CHECK(holds<T>(other, slot, slot < 16 ? slot : 100 + slot - 16));
  cache.grow(100);
  CHECK(cache.slots() == 112);
  CHECK((cache.type() == CacheType::half) == (sizeof(T) == 2));
  store(cache, 7, 111);
  CHECK(holds<T>(cache, 111, 7));
  for (int slot = 0; slot < kTokens; ++slot) CHECK(holds<T>(cache, slot, slot));
}

TEST_CASE("every instruction set stores the same half floats") {
  for (const auto isa : {specula::Isa::portable, specula::Isa::avx2, specula::Isa::avx512})
    if (specula::supported(isa)) {
      KvCache<float> cache(kLayers, kHeads, kSize, kTokens, CacheType::half, isa);
      store(cache, 1234, 17);
      CHECK(holds<std::uint16_t>(cache, 17, 1234));
    }
}
