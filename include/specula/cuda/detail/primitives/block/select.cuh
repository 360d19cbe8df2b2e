// SPDX-License-Identifier: MIT
// Deterministic top-k: an element's rank is the number of elements before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/block/shares.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Larger for larger logits, the same for both zeros, 0 for -infinity. Not for NaN.
SPECULA_HD std::uint32_t rank_value(float logit) {
  const std::uint32_t bits = bits_of(logit);
  return bits == 0xFF800000u ? 0 : key_of(bits == 0x80000000u ? 0.0f : logit);
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

/// A value and its index as one number: larger for larger values, then for lower indices; 0 for value 0.
SPECULA_HD std::uint64_t ranked(std::uint32_t value, std::int32_t index) {
  return value == 0 ? 0 : std::uint64_t{value} << 32 | (0xFFFFFFFFu - static_cast<std::uint32_t>(index));
}
SPECULA_HD std::uint32_t value_of(std::uint64_t ranked) { return static_cast<std::uint32_t>(ranked >> 32); }
SPECULA_HD std::int32_t index_of(std::uint64_t ranked) {
  return static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(ranked));
}

/// Adjacent numbers, so that one access to shared memory reads two.
struct alignas(16) TwoNumbers {
  std::uint64_t a, b;
};

/// -1 if a > b, else 0. As a number: a predicate would be counted by two instructions, one after the other.
SPECULA_HD int minus_one_if_above(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  int out;
  asm("set.gt.s32.u64 %0, %1, %2;" : "=r"(out) : "l"(a), "l"(b));
  return out;
#else
  return a > b ? -1 : 0;
#endif
}

/// How many of list[0, n) come before number i of it: are larger or, where equal numbers may occur, as large
/// and earlier. `share` threads share the counting; this is the count of thread `part`. `list` is 16-byte
/// aligned, and 0 from n to the next multiple of 8 * share.
template <int share, bool equals>
SPECULA_HD int count_before(const std::uint64_t* list, int n, int i, int part) {
  constexpr int kTwos = 4;  // that a thread reads at once, interleaved with the other threads'
  constexpr int kSpan = 2 * kTwos * share;
  const std::uint64_t mine = list[i];
  const TwoNumbers* mine_of_all = reinterpret_cast<const TwoNumbers*>(list) + part;
  int out = 0;
  SPECULA_NO_UNROLL
  for (int begin = 0; begin < n; begin += kSpan) {
    TwoNumbers x[kTwos];
    SPECULA_UNROLL
    for (int m = 0; m < kTwos; ++m) x[m] = mine_of_all[begin / 2 + m * share];
    // Equal ones count as well where the whole span is earlier.
    const std::uint64_t bar = equals && begin + kSpan <= i ? mine - 1 : mine;
    SPECULA_UNROLL
    for (int m = 0; m < kTwos; ++m) out -= minus_one_if_above(x[m].a, bar) + minus_one_if_above(x[m].b, bar);
  }
  if (equals) {  // in the span that i lies in, one by one
    const int begin = i / kSpan * kSpan, left = i - begin - 2 * part;
    SPECULA_UNROLL
    for (int m = 0; m < kTwos; ++m) {
      const TwoNumbers x = mine_of_all[begin / 2 + m * share];
      out += (((x.a == mine) & (2 * m * share < left)) ? 1 : 0) +
             (((x.b == mine) & (2 * m * share + 1 < left)) ? 1 : 0);
    }
  }
  return out;
}

/// Selection by a Group (a block, a warp or one thread) in shared memory, either of numbers that are read,
///
///   select.read(n, value), then best(k, out) or choose(k, put)
///
/// or of numbers that single threads add after that: add(number), then first(k, out). 0 means no number.
template <class Group>
class Select {
 public:
  /// 16-byte aligned shared memory to choose among `n` <= 65,536 numbers that are read, and among `added`.
  SPECULA_HD static std::size_t shared_bytes(int n, int added = 0) {
    return array_bytes<Head>(1) + array_bytes<std::uint64_t>(kLanes) + array_bytes<std::uint64_t>(whole(n)) +
           array_bytes<std::uint64_t>(whole(n) + whole(added)) + array_bytes<std::uint16_t>(whole(n)) +
           array_bytes<std::uint32_t>(mask_count(n));
  }
  SPECULA_HD Select(Group group, int n, int added, unsigned char* shared)
      : group_(group),
        head_(reinterpret_cast<Head*>(shared)),
        tops_(behind<std::uint64_t>(head_, 1)),
        values_(behind<std::uint64_t>(tops_, kLanes)),
        list_(behind<std::uint64_t>(values_, whole(n))),
        added_(list_ + whole(n)),
        index_(behind<std::uint16_t>(added_, whole(added))),
        masks_(behind<std::uint32_t>(index_, whole(n))),
        zeros_(whole(n) + whole(added)) {
    end_array(masks_, mask_count(n));
  }

  /// Takes value(0) to value(n - 1), each read once, four at a time, and empties the list of added numbers.
  /// No barrier: reads from memory may be in flight while the group does other work.
  template <class Value>
  SPECULA_HD void read(int n, Value value) {
    constexpr int kAtOnce = 4;
    const int lanes = this->lanes(), rank = group_.rank();
    n_ = n;
    if (rank == 0) *head_ = {1, 0, 0};
    SPECULA_NO_UNROLL
    for (int i = rank; i < zeros_; i += group_.size()) list_[i] = 0;
    if (rank >= lanes) return;
    std::uint64_t top = 0;
    SPECULA_NO_UNROLL
    for (int begin = rank; begin < whole(n); begin += kAtOnce * lanes) {
      std::uint64_t x[kAtOnce];
      SPECULA_UNROLL
      for (int m = 0; m < kAtOnce; ++m) x[m] = begin + m * lanes < n ? value(begin + m * lanes) : 0;
      SPECULA_UNROLL
      for (int m = 0; m < kAtOnce; ++m) {
        if (begin + m * lanes < whole(n)) values_[begin + m * lanes] = x[m];
        top = larger(top, x[m]);
      }
    }
    tops_[rank] = top;
  }

  /// The k first of different numbers, in order, in `out`, (k), which is shared memory; returns their count,
  /// at most k. Visible to all threads. Three barriers, four where there are more than 128 numbers.
  SPECULA_HD int best(int k, std::uint64_t* out) {
    if (k <= 0) return 0;
    find_bound<false>(k);
    const std::uint64_t bound = head_->bound;
    SPECULA_NO_UNROLL
    for (int i = group_.rank(); i < n_; i += group_.size())
      if (values_[i] >= bound) list_[atomic_add(&head_->listed, std::int32_t{1})] = values_[i];
    return first_of(list_, &head_->listed, k, out);
  }

  /// put(i, place) for the k first, ties to the lower i, each by one thread: `place` of them, from 0 on, have
  /// lower i. Returns their count; the writes of put() are visible to all. Three barriers, six where there
  /// are more than 128 numbers.
  template <class Put>
  SPECULA_HD int choose(int k, Put put) {
    if (k <= 0) return 0;
    const std::uint64_t* list = values_;
    const bool all = !find_bound<true>(k);
    int count = n_;
    if (!all) {
      const std::uint64_t bound = head_->bound;
      count = compact<1>(
          n_, [&](int i, int) { return values_[i] >= bound; },
          [&](int i, int place) {
            list_[place] = values_[i];
            index_[place] = static_cast<std::uint16_t>(i);
          });
      group_.sync();
      list = list_;
    }
    const int out = compact<kShare>(
        count,
        [&](int i, int part) {
          const int before = rank_of<true>(list, count, i, part);
          return i < count && before < k && list[i] > 0;
        },
        [&](int i, int place) { put(all ? i : index_[i], place); });
    group_.sync();
    return out;
  }

  /// By any one thread; no more than there is memory for, none twice.
  SPECULA_HD void add(std::uint64_t number) { added_[atomic_add(&head_->added, std::int32_t{1})] = number; }
  /// As best(), of the added numbers. Two barriers.
  SPECULA_HD int first(int k, std::uint64_t* out) { return first_of(added_, &head_->added, k, out); }

 private:
  using Warp = WarpOf<Group>;
  static constexpr int kLanes = 128;  // with more numbers a bound is found first
  static constexpr int kShare = share_of<Group>();
  struct alignas(16) Head {
    std::uint64_t bound;
    std::int32_t listed, added;  // numbers in `list_` that best() put there, and in `added_`
  };

  /// Places of a list of n numbers with the zeros after it.
  SPECULA_HD static int whole(int n) { return ceil_div(n, 32) * 32; }
  /// A mask is of the numbers of a warp: 32 of those that are read, 8 of those that are ranked.
  SPECULA_HD static int mask_count(int n) { return whole(n) * kShare / Warp::size(); }
  SPECULA_HD int lanes() const { return smaller(group_.size(), kLanes); }
  SPECULA_HD Warp warp() const { return warp_of(group_, 0); }

  /// How many of the n numbers come before number i < whole(n), known to all lanes that share the counting.
  template <bool equals>
  SPECULA_HD int rank_of(const std::uint64_t* list, int n, int i, int part) const {
    int out = count_before<kShare, equals>(list, n, i, part);
    SPECULA_UNROLL
    for (int mask = 1; mask < kShare; mask *= 2) out += warp().shuffle_xor(out, mask);
    return out;
  }

  /// put(i, place) for every i in [0, n) for which flag(i, part), called by all its lanes, is true; `place`
  /// of them are lower. Returns their count. One barrier, before put() is called.
  template <int share, class Flag, class Put>
  SPECULA_HD int compact(int n, Flag flag, Put put) {
    each_task<share>(group_, n, [&](int i, int part, int chunk) {
      const bool set = flag(i, part);
      const std::uint32_t mask = warp().ballot(set && part == 0);
      if (group_.rank() % Warp::size() == 0) masks_[chunk] = mask;
    });
    group_.sync();
    int base = 0, next = 0;  // how many there are before chunk `next`
    each_task<share>(group_, n, [&](int i, int, int chunk) {
      for (; next < chunk; ++next) base += count_lanes(masks_[next]);
      const std::uint32_t mask = masks_[chunk], lane = 1u << (group_.rank() % Warp::size());
      if (mask & lane) put(i, base + count_lanes(mask & (lane - 1)));
    });
    for (; next * (Warp::size() / share) < n; ++next) base += count_lanes(masks_[next]);
    return base;
  }

  /// Begins with a barrier. With many numbers it then finds one that is at most each of the k first, ends
  /// with another barrier, and returns true; else that number is 1.
  template <bool equals>
  SPECULA_HD bool find_bound(int k) {
    const int lanes = this->lanes();
    group_.sync();
    if (n_ <= lanes || k > lanes || lanes < 32) return false;
    // At least k of the lanes' maxima are no less than the k-th maximum, so no smaller number is needed.
    each_task<kShare>(group_, lanes, [&](int i, int part, int) {
      if (rank_of<equals>(tops_, lanes, i, part) == k - 1 && part == 0 && tops_[i] > 0)
        head_->bound = tops_[i];
    });
    group_.sync();
    return true;
  }

  /// The k first of list[0, *count), different numbers, between two barriers.
  SPECULA_HD int first_of(const std::uint64_t* list, const std::int32_t* count, int k, std::uint64_t* out) {
    group_.sync();
    const int n = *count;
    each_task<kShare>(group_, n, [&](int i, int part, int) {
      const int before = rank_of<false>(list, n, i, part);
      if (i < n && before < k && part == 0) out[before] = list[i];
    });
    group_.sync();
    return smaller(n, k);
  }

  Group group_;
  Head* head_;
  std::uint64_t* tops_;    // (kLanes) the largest that each lane has read
  std::uint64_t* values_;  // (whole(n)) as they were read
  std::uint64_t* list_;    // (whole(n)) candidates for the k first
  std::uint64_t* added_;   // (whole(added))
  std::uint16_t* index_;   // (whole(n)) of those in `list_`
  std::uint32_t* masks_;   // (mask_count(n)) bit set: chosen
  int zeros_, n_ = 0;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
