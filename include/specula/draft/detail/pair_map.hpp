// SPDX-License-Identifier: MIT
// Open-addressing hash map keyed by pairs of integers, for the counts of n-gram drafters.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Keys (a, b), a >= 0. Open addressing with linear probing: a look-up is one access to memory on average.
/// Only clear() removes entries.
template <class Value>
class PairMap {
 public:
  std::size_t size() const { return size_; }

  /// Reserves memory for `pairs` entries. Beyond that the capacity doubles.
  void reserve(std::size_t pairs) {
    if (pairs > limit(slots_.size())) rehash(std::bit_ceil(pairs + pairs / 2 + 1));
  }
  /// O(capacity).
  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    size_ = 0;
  }

  /// The value of (a, b), or null. Valid until the next insertion.
  const Value* find(std::int32_t a, std::int32_t b) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place(a, b)];
    return slot.a == kFree ? nullptr : &slot.value;
  }
  Value* find(std::int32_t a, std::int32_t b) { return const_cast<Value*>(std::as_const(*this).find(a, b)); }
  /// The value of (a, b); inserts Value{} if there is none.
  Value& at(std::int32_t a, std::int32_t b) {
    if (size_ + 1 > limit(slots_.size())) rehash(std::max<std::size_t>(16, 2 * slots_.size()));
    Slot& slot = slots_[place(a, b)];
    if (slot.a == kFree) slot = {a, b, {}}, ++size_;
    return slot.value;
  }
  /// Calls visit(a, b, value) for each entry, in no particular order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.a != kFree) visit(slot.a, slot.b, slot.value);
  }

 private:
  static constexpr std::int32_t kFree = -1;
  struct Slot {
    std::int32_t a = kFree, b = 0;
    Value value = {};
  };

  static std::size_t limit(std::size_t slots) { return slots * 2 / 3; }  // at most 2/3 full

  /// Index of the slot of (a, b), or of the free slot for it.
  std::size_t place(std::int32_t a, std::int32_t b) const {
    std::uint64_t hash =
        (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b)) *
        0x9E3779B97F4A7C15ull;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93ull;
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (hash >> 32) & mask;
    while (slots_[i].a != kFree && (slots_[i].a != a || slots_[i].b != b)) i = (i + 1) & mask;
    return i;
  }
  void rehash(std::size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.a != kFree) slots_[place(slot.a, slot.b)] = slot;
  }

  std::vector<Slot> slots_;  // their number is a power of two
  std::size_t size_ = 0;
};

}  // namespace specula::detail
