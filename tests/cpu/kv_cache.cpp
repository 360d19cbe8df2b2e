// SPDX-License-Identifier: MIT
// KvCache: slots are stored, moved, and read as the panel product reads them.
#include <specula/cpu/kv_cache.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace specula::cpu;

TEST_CASE("a slot keeps its keys and values per layer and head, also when moved") {
  KvCache<float> cache(2, 3, 6, 20);
  CHECK(cache.slots() == 32);
  const auto key = [&](int layer, int head, int slot, int d) {
    const auto panels = cache.keys(layer, head);
    return panels.w[slot / 16 * panels.panel + d * panels.column + slot % 16];
  };
  const auto value = [&](int layer, int head, int slot, int d) {
    const auto panels = cache.values(layer, head, slot);
    return panels.w[d / 16 * panels.panel + d % 16];
  };
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < 3; ++head)
      for (int slot = 0; slot < 20; ++slot) {
        std::vector<float> k(6), v(6);
        for (int d = 0; d < 6; ++d) {
          k[static_cast<std::size_t>(d)] =
              static_cast<float>(1000 * layer + 100 * head + slot) + 0.125f * static_cast<float>(d);
          v[static_cast<std::size_t>(d)] = -k[static_cast<std::size_t>(d)];
        }
        cache.store(layer, head, slot, k.data(), v.data());
      }
  cache.move(19, 3);
  cache.move(5, 5);
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < 3; ++head)
      for (int slot = 0; slot < 20; ++slot)
        for (int d = 0; d < 6; ++d) {
          const float want = static_cast<float>(1000 * layer + 100 * head + (slot == 3 ? 19 : slot)) +
                             0.125f * static_cast<float>(d);
          CHECK(key(layer, head, slot, d) == want);
          CHECK(value(layer, head, slot, d) == -want);
        }
}
