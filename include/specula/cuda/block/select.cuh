// The best of many: found by counting who comes before, so that no order of work shows in the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Something of a value, by its index. Larger values come first, then lower indices; value 0: nothing.
struct alignas(16) Ranked {
  std::uint64_t value;
  std::int32_t index;
};

SPECULA_HD bool comes_before(const Ranked& a, const Ranked& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// How many of list[0, n) come before `mine`.
SPECULA_HD int count_before(const Ranked* list, int n, const Ranked& mine) {
  int out = 0;
  for (int i = 0; i < n; ++i) out += comes_before(list[i], mine) ? 1 : 0;
  return out;
}

/// Larger for larger logits, the same for both zeros, 0 for -infinity. Not for NaN.
SPECULA_HD std::uint64_t rank_value(float logit) {
  const std::uint32_t bits = bits_of(logit);
  if (bits == 0xFF800000u) return 0;
  return key_of(bits == 0x80000000u ? 0.0f : logit);
}
/// Larger for larger numbers that are not negative, 0 for those that are.
SPECULA_HD std::uint64_t rank_value(double reach) {
#ifdef __CUDA_ARCH__
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(reach));
#else
  std::uint64_t bits;
  std::memcpy(&bits, &reach, sizeof bits);
#endif
  return bits >> 63 ? 0 : bits + 1;
}

/// Selection by a Group (a block, a warp or one thread) in shared memory.
template <class Group>
class Select {
 public:
  /// 16-byte aligned shared memory to choose among `n`.
  SPECULA_HD static std::size_t shared_bytes(int n) {
    return sizeof(Head) + sizeof(Ranked) * static_cast<std::size_t>(kLanes + n);
  }
  SPECULA_HD Select(Group group, unsigned char* shared)
      : group_(group),
        head_(reinterpret_cast<Head*>(shared)),
        lanes_(reinterpret_cast<Ranked*>(head_ + 1)),
        list_(lanes_ + kLanes) {}

  /// The k first of those with values value(0) to value(n - 1), in order, in `out`, (k), which is shared
  /// memory; returns how many there are that have a value. Cost: each value is asked for twice; then about
  /// k^2 comparisons, n^2 where most are alike.
  template <class Value>
  SPECULA_HD int best(int n, Value value, int k, Ranked* out) {
    if (k <= 0) return 0;
    clear();
    const int lanes = smaller(group_.size(), kLanes), rank = group_.rank();
    if (n > lanes && k <= lanes) {
      // Of the largest that each lane saw, k are no less than the k-th, so nothing below that one is wanted.
      if (rank < lanes) {
        Ranked top{0, 0};
        for (int i = rank; i < n; i += lanes) {
          const std::uint64_t v = value(i);
          if (v > top.value) top = {v, i};
        }
        lanes_[rank] = top;
      }
      group_.sync();
      if (rank < lanes && lanes_[rank].value > 0 && count_before(lanes_, lanes, lanes_[rank]) == k - 1)
        head_->bound = lanes_[rank].value;
      group_.sync();
    }
    const std::uint64_t bound = head_->bound;
    for (int i = rank; i < n; i += group_.size()) {
      const std::uint64_t v = value(i);
      if (v >= bound) add({v, i});
    }
    return first(k, out);
  }

  // ---- the same of a list that is made by hand

  /// Begins an empty list.
  SPECULA_HD void clear() {
    group_.sync();
    if (group_.rank() == 0) {
      head_->bound = 1;
      head_->count = 0;
    }
    group_.sync();
  }
  /// By any one thread; no more than there is memory for, each with a value.
  SPECULA_HD void add(Ranked one) { list_[atomic_add(&head_->count, std::int32_t{1})] = one; }
  /// The k first of the list, in order; returns how many there are.
  SPECULA_HD int first(int k, Ranked* out) {
    group_.sync();
    const int n = head_->count;
    for (int i = group_.rank(); i < n; i += group_.size()) {
      const int before = count_before(list_, n, list_[i]);
      if (before < k) out[before] = list_[i];
    }
    group_.sync();
    return smaller(n, k);
  }

 private:
  static constexpr int kLanes = 128;
  struct alignas(16) Head {
    std::uint64_t bound;
    std::int32_t count;
  };

  Group group_;
  Head* head_;
  Ranked* lanes_;  // (kLanes)
  Ranked* list_;   // (n)
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
