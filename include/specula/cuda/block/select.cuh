// The k largest of many, by counting for each how many come before it: no order of work shows in the result.
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

/// Numbers that lie side by side, so that shared memory gives two at a time.
struct alignas(16) TwoNumbers {
  std::uint64_t a, b;
};

/// How many of list[0, n) come before number `mine` at place i, being larger, or as large and earlier; of
/// `parts` threads, a power of two, that share the counting, what thread `part` of them finds. `list` is
/// 16-byte aligned and takes up an even number of places.
SPECULA_HD int count_before(const std::uint64_t* list, int n, int i, std::uint64_t mine, int part,
                            int parts) {
  constexpr int kTwos = 4;  // that a thread reads at once; those of its fellows lie between them
  const auto* twos = reinterpret_cast<const TwoNumbers*>(list);
  const int span = 2 * kTwos * parts;
  int out = 0;
  for (int begin = 0; begin < n; begin += span) {
    TwoNumbers x[kTwos];
    if (begin + span <= n) {
      SPECULA_UNROLL
      for (int m = 0; m < kTwos; ++m) x[m] = twos[begin / 2 + m * parts + part];
    } else {
      SPECULA_UNROLL
      for (int m = 0; m < kTwos; ++m) {
        const int at = begin + 2 * (m * parts + part);
        x[m] = at < n ? twos[at / 2] : TwoNumbers{0, 0};
        if (at + 1 >= n) x[m].b = 0;
      }
    }
    // Equal ones count as well where the whole span is earlier.
    const std::uint64_t bar = begin + span <= i ? mine - 1 : mine;
    SPECULA_UNROLL
    for (int m = 0; m < kTwos; ++m) out += (x[m].a > bar ? 1 : 0) + (x[m].b > bar ? 1 : 0);
  }
  // In the span that i lies in, they are looked at one by one.
  SPECULA_UNROLL
  for (int m = 0; m < kTwos; ++m) {
    const int at = (i & ~(span - 1)) + 2 * (m * parts + part);
    const TwoNumbers x = at < i ? twos[at / 2] : TwoNumbers{0, 0};
    out += ((x.a == mine) & (at < i) ? 1 : 0) + ((x.b == mine) & (at + 1 < i) ? 1 : 0);
  }
  return out;
}

/// The warp of a Group that has several, or the Group itself.
template <class Group>
SPECULA_HD auto warp_of(Group group, int) -> decltype(group.warp()) {
  return group.warp();
}
template <class Group>
SPECULA_HD Group warp_of(Group group, long) {
  return group;
}

/// Selection by a Group (a block, a warp or one thread) in shared memory, either of numbers that are read,
///
///   select.read(n, value), then best(k, out) or choose(k, put)
///
/// or of different ones that single threads add: add(number), then first(k, out). The list of those is empty
/// at first and after best(). 0 stands for nothing.
template <class Group>
class Select {
 public:
  /// 16-byte aligned shared memory to choose among `n` <= 65,536 numbers that are read, and among `added`.
  SPECULA_HD static std::size_t shared_bytes(int n, int added = 0) {
    return sizeof(Head) +
           sizeof(std::uint64_t) * static_cast<std::size_t>(kLanes + whole(n) + room(n, added)) +
           sizeof(std::uint16_t) * static_cast<std::size_t>(whole(n)) +
           sizeof(std::uint32_t) * static_cast<std::size_t>(mask_count(n));
  }
  /// A barrier of the group must come before the first add().
  SPECULA_HD Select(Group group, int n, int added, unsigned char* shared)
      : group_(group),
        head_(reinterpret_cast<Head*>(shared)),
        tops_(reinterpret_cast<std::uint64_t*>(head_ + 1)),
        values_(tops_ + kLanes),
        list_(values_ + whole(n)),
        index_(reinterpret_cast<std::uint16_t*>(list_ + room(n, added))),
        masks_(reinterpret_cast<std::uint32_t*>(index_ + whole(n))) {
    if (group_.rank() == 0) head_->added = 0;
  }

  /// Takes value(0) to value(n - 1), each asked for once, four at a time. No barrier: what is read from
  /// memory may still be on its way while the group does something else.
  template <class Value>
  SPECULA_HD void read(int n, Value value) {
    constexpr int kAtOnce = 4;
    const int lanes = this->lanes(), rank = group_.rank();
    n_ = n;
    if (rank == 0) head_->bound = 1;
    if (rank >= lanes) return;
    std::uint64_t top = 0;
    for (int begin = rank; begin < n; begin += kAtOnce * lanes) {
      std::uint64_t x[kAtOnce];
      SPECULA_UNROLL
      for (int m = 0; m < kAtOnce; ++m) x[m] = begin + m * lanes < n ? value(begin + m * lanes) : 0;
      SPECULA_UNROLL
      for (int m = 0; m < kAtOnce; ++m) {
        if (begin + m * lanes < n) values_[begin + m * lanes] = x[m];
        top = larger(top, x[m]);
      }
    }
    tops_[rank] = top;
  }

  /// The k first, in order, in `out`, (k), which is shared memory; returns how many there are. All threads
  /// see them. Cost: three barriers, five where there are more than 128 numbers.
  SPECULA_HD int best(int k, std::uint64_t* out) {
    if (k <= 0) return 0;
    const Numbers from = gather(k);
    if (group_.rank() == 0) head_->added = 0;
    return compact(
        from.count, parts_of(from.count),
        [&](int i, int parts) {
          const int before = rank_of(from.list, from.count, i, parts);
          const bool chosen = i < from.count && before < k && from.list[i] > 0;
          if (chosen) out[before] = from.list[i];
          return chosen;
        },
        [](int, int) {});
  }

  /// put(i, place) for the k first, ties to the lower i, each by one thread: `place` of them, from 0 on, have
  /// lower i. Returns how many there are; what put() wrote is seen by all. Cost: one barrier more than
  /// best().
  template <class Put>
  SPECULA_HD int choose(int k, Put put) {
    if (k <= 0) return 0;
    const Numbers from = gather(k);
    const int out = compact(
        from.count, parts_of(from.count),
        [&](int i, int parts) {
          const int before = rank_of(from.list, from.count, i, parts);
          return i < from.count && before < k && from.list[i] > 0;
        },
        [&](int i, int place) { put(from.index ? from.index[i] : i, place); });
    group_.sync();
    return out;
  }

  /// By any one thread; no more than there is memory for, none twice.
  SPECULA_HD void add(std::uint64_t number) { list_[atomic_add(&head_->added, std::int32_t{1})] = number; }
  /// As best(), of what was added. Two barriers.
  SPECULA_HD int first(int k, std::uint64_t* out) {
    group_.sync();
    const int n = head_->added, parts = parts_of(n);
    each(n, parts, [&](int i, int, int) {
      const int before = rank_of(list_, n, i, parts);
      if (i < n && before < k) out[before] = list_[i];
    });
    group_.sync();
    return smaller(n, k);
  }

 private:
  static constexpr int kLanes = 128;  // beyond so many numbers a bound is found first
  struct alignas(16) Head {
    std::uint64_t bound;
    std::int32_t added;
  };
  struct Numbers {
    const std::uint64_t* list;
    const std::uint16_t* index;  // null: as they were read
    int count;
  };
  using Warp = decltype(warp_of(*static_cast<Group*>(nullptr), 0));

  // In all multiples of 16 bytes.
  SPECULA_HD static int whole(int n) { return ceil_div(n, 8) * 8; }
  SPECULA_HD static int room(int n, int added) { return whole(larger(n, added)); }
  SPECULA_HD static int mask_count(int n) { return larger(whole(ceil_div(n, Warp::size())), 32); }
  SPECULA_HD int lanes() const { return smaller(group_.size(), kLanes); }
  SPECULA_HD Warp warp() const { return warp_of(group_, 0); }
  /// Neighbouring threads, a power of two, that share the counting for one of n numbers.
  SPECULA_HD int parts_of(int n) const {
    int out = 1;
    while (out < 4 && 2 * out * larger(n, 1) <= group_.size()) out *= 2;
    return out;
  }

  /// step(i, chunk, lane) by all lanes of a warp, for i in [0, n) and somewhat beyond, `parts` lanes each.
  template <class Step>
  SPECULA_HD void each(int n, int parts, Step step) const {
    const int size = warp().size(), lane = group_.rank() % size, per = size / parts;
    for (int chunk = group_.rank() / size; chunk * per < n; chunk += group_.size() / size)
      step(chunk * per + lane / parts, chunk, lane);
  }

  /// How many of the n numbers come before number i, known to the `parts` lanes that ask.
  SPECULA_HD int rank_of(const std::uint64_t* list, int n, int i, int parts) const {
    int out = 0;
    if (i < n) out = count_before(list, n, i, list[i], group_.rank() % parts, parts);
    for (int mask = 1; mask < parts; mask *= 2) out += warp().shuffle_xor(out, mask);
    return out;
  }

  /// put(i, place) for every i in [0, n) for which flag(i, parts), asked of all its lanes, is true; `place`
  /// of them are lower. Returns how many there are. One barrier, before put() is called.
  template <class Flag, class Put>
  SPECULA_HD int compact(int n, int parts, Flag flag, Put put) {
    each(n, parts, [&](int i, int chunk, int lane) {
      const std::uint32_t mask = warp().ballot(flag(i, parts) && lane % parts == 0);
      if (lane == 0) masks_[chunk] = mask;
    });
    group_.sync();
    int base = 0, next = 0;  // of the chunks before `next` the flags
    each(n, parts, [&](int i, int chunk, int lane) {
      for (; next < chunk; ++next) base += count_lanes(masks_[next]);
      const std::uint32_t mask = masks_[chunk];
      if (mask >> lane & 1) put(i, base + count_lanes(mask & ((1u << lane) - 1)));
    });
    for (; next * (warp().size() / parts) < n; ++next) base += count_lanes(masks_[next]);
    return base;
  }

  /// What of the numbers can be one of the k first, in their order. Its last barrier is not the last word:
  /// another one must come before `values_` and `tops_` are written again.
  SPECULA_HD Numbers gather(int k) {
    const int lanes = this->lanes();
    group_.sync();
    if (n_ <= lanes || k > lanes) return {values_, nullptr, n_};
    // Of the largest that each lane saw, k are no less than the k-th, so nothing below that one is wanted.
    const int parts = parts_of(lanes);
    each(lanes, parts, [&](int i, int, int) {
      if (rank_of(tops_, lanes, i, parts) == k - 1 && i < lanes && tops_[i] > 0) head_->bound = tops_[i];
    });
    group_.sync();
    const std::uint64_t bound = head_->bound;
    const int count = compact(
        n_, 1, [&](int i, int) { return i < n_ && values_[i] >= bound; },
        [&](int i, int place) {
          list_[place] = values_[i];
          index_[place] = static_cast<std::uint16_t>(i);
        });
    group_.sync();
    return {list_, index_, count};
  }

  Group group_;
  Head* head_;
  std::uint64_t* tops_;    // (kLanes) the largest that each lane has read
  std::uint64_t* values_;  // (n) as they were read
  std::uint64_t* list_;    // (room(n, added)) those that may be wanted, in order; or those that were added
  std::uint16_t* index_;   // (n) of those in `list_`
  std::uint32_t* masks_;   // of each chunk, who is chosen
  int n_ = 0;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
