// SPDX-License-Identifier: MIT
// The product of weights in blocks with rounded inputs, for one instruction set. Included by
// kernels_blocks.hpp once for each, in a namespace that has `Ops`, with SPECULA_BLOCKS_TARGET set to the
// attribute of its functions: a template cannot take that as a parameter, and a function without it cannot
// inline the instructions.
//
//   y[c][r] = sum over groups g, ascending, of
//     minimum(g, r) * total(c, g) + (sum over k of number(r, k) * x(c, k)) * (scale(g, r) * step(c, g))
//
// The sums over k are of integers, and each of the two additions to y is one with its product: so the bits
// are the same on every instruction set, for any number of inputs, panels and threads.

#include "specula/base/compiler_options.hpp"

#ifdef SPECULA_BLOCKS_TARGET

/// Pair 4 j + f of a group's numbers, for the rows of a strip. `word`: the one with it; `plane`: its further
/// bits, from bit 0 on.
template <BlockLayout format, int f>
[[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline Ops::Ints numbers(const Ops::Ints& word,
                                                                              const Ops::Ints& plane) {
  if constexpr (format.bits == 8)
    return Ops::template shift_signed<8>(f % 2 == 0 ? Ops::template shift<8>(word) : word);
  constexpr int more = format.bits - 4;
  Ops::Ints low = Ops::template shift<-4 * f>(word);
  if constexpr (f < 3) low = Ops::both(low, Ops::same16(15));
  if constexpr (more == 1 || more == 2)
    low = Ops::add_bits(low, Ops::template shift<4 - more * f>(plane), Ops::same16(((1 << more) - 1) << 4));
  return low;
}

/// sums += numbers * inputs, pair 4 j + f.
template <BlockLayout format, int f, int T, int N>
[[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline void add_pair(Ops::Ints (&sums)[T][N],
                                                                          const Ops::Ints (&words)[2][T],
                                                                          const Ops::Ints (&planes)[T],
                                                                          const std::uint32_t* x) {
  Ops::Ints w[T];
  SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) w[s] =
      numbers<format, f>(words[format.bits == 8 ? f / 2 : 0][s], planes[s]);
  SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
    const Ops::Ints same = Ops::same(x + n * kPairs + f);
    SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) sums[s][n] = Ops::dot(sums[s][n], w[s], same);
  }
}
/// Columns 8 j to 8 j + 7. `strips`: where the words of T strips begin.
template <BlockLayout format, int T, int N>
[[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline void add_pairs(
    Ops::Ints (&sums)[T][N], const std::byte* const (&strips)[T], int j, const std::uint32_t* x) {
  constexpr int more = format.bits - 4;
  Ops::Ints words[2][T], planes[T];
  SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) {
    words[0][s] = words[1][s] = Ops::load(strips[s] + 4 * kPanel * (format.bits == 8 ? 2 * j : j));
    if constexpr (format.bits == 8) words[1][s] = Ops::load(strips[s] + 4 * kPanel * (2 * j + 1));
    planes[s] = words[0][s];
    if constexpr (format.planes() > 0)
      planes[s] = Ops::shift_right(Ops::load(strips[s] + 4 * kPanel * (4 + (more == 1 ? 0 : j / 2))),
                                   more == 1 ? 4 * j : j % 2 * 8);
  }
  x += 4 * j;
  add_pair<format, 0>(sums, words, planes, x);
  add_pair<format, 1>(sums, words, planes, x);
  add_pair<format, 2>(sums, words, planes, x);
  add_pair<format, 3>(sums, words, planes, x);
}

/// The same for 4 bits with inputs of 8 bits: four columns at a time, of the even and of the odd nibbles.
template <int T, int N>
[[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline void add_bytes(
    Ops::Ints (&sums)[T][N], const std::byte* const (&strips)[T], const std::uint32_t* x) {
  SPECULA_ROLLED for (int j = 0; j < 4; ++j) {
    Ops::Ints w[2][T];
    SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) {
      const Ops::Ints word = Ops::load(strips[s] + 4 * kPanel * j);
      w[0][s] = Ops::both(word, Ops::same16(0x0f0f));
      w[1][s] = Ops::both(Ops::template shift<-4>(word), Ops::same16(0x0f0f));
    }
    SPECULA_UNROLL_LANES for (int f = 0; f < 2; ++f) {
      SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
        const Ops::Ints same = Ops::same(x + n * (kPairs / 2) + 2 * j + f);
        SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) sums[s][n] =
            Ops::dot_bytes(sums[s][n], w[f][s], same);
      }
    }
  }
  SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) {
    SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) sums[s][n] = Ops::end_bytes(sums[s][n]);
  }
}

/// For templates over the instruction set.
struct Kernels {
  using Vector = Ops;

  /// P panels times N inputs. `a`: the first panel.
  template <files::GgufId type, bool bytes, int P, int N>
  [[SPECULA_BLOCKS_TARGET]] static void block(const std::byte* a, std::ptrdiff_t panel, std::int32_t groups,
                                              RoundedColumns in, float* y, std::ptrdiff_t ldy) {
    [[maybe_unused]] const Ops::Used used;
    constexpr BlockLayout format = format_of(type);
    // How far ahead memory is asked for: docs/design.md, "Weights in blocks".
    constexpr int kPrefetch = 4096, kLines = static_cast<int>(format.group_bytes() + 63) / 64;
    // T strips are done at a time. Their sums of floats stay in registers if there are enough; else, and with
    // more strips than T, they wait in the L1 cache.
    constexpr int S = P * Ops::kStrips, T = S < Ops::kTogether ? S : Ops::kTogether;
    constexpr bool kMemory = S > T || S * N > Ops::kSums;
    alignas(64) float waiting[kMemory ? S : 1][kMemory ? N : 1][Ops::kLanes];
    Ops::Floats out[kMemory ? 1 : S][kMemory ? 1 : N];
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
        if constexpr (kMemory)
          Ops::store(waiting[s][n], Ops::zero());
        else
          out[s][n] = Ops::zero();
      }
    }
    const std::byte *head = a, *halves = a;  // of the group, and of the scales that it shares
    for (std::int32_t g = 0; g < groups; ++g, head += format.group_bytes()) {
      if (!format.levels || g % format.shared() == 0) {
        halves = head;
        head += format.shared_head();
      }
      // What lies ahead of a panel's end is another panel of this block: the next block's is further on.
      const std::byte* const ahead =
          head + kPrefetch + (g >= groups - kPrefetch / format.group_bytes() ? (P - 1) * panel : 0);
      SPECULA_UNROLL_LANES for (int v = 0; v < P; ++v) {
        SPECULA_UNROLL_LANES for (int line = 0; line < kLines; ++line)
            __builtin_prefetch(ahead + v * panel + 64 * line);
      }
      SPECULA_ROLLED for (int first = 0; first < S; first += T) {
        const auto strip = [&](const std::byte* at, int s, int size) __attribute__((always_inline)) {
          return at + (first + s) / Ops::kStrips * panel + (first + s) % Ops::kStrips * Ops::kLanes * size;
        };
        const std::byte* words[T];
        SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) words[s] = strip(head + format.group_head(), s, 4);
        constexpr int kParts = format.in_two ? 2 : 1;
        Ops::Ints sums[kParts][T][N];
        SPECULA_UNROLL_LANES for (int part = 0; part < kParts; ++part) {
          SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
            Ops::Ints begin = Ops::no_ints();
            if constexpr (format.zero > 0 && !(bytes && Ops::kBytesApart))
              begin = Ops::template shift_wide<std::countr_zero(static_cast<unsigned>(format.zero))>(
                  Ops::same(in.minus + (format.in_two ? part + 1 : 0) * N + n));
            SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) sums[part][s][n] = begin;
          }
        }
        if constexpr (bytes) {
          add_bytes(sums[0], words, in.bytes);
          if constexpr (format.zero > 0 && Ops::kBytesApart) {
            SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
              const Ops::Ints begin = Ops::template shift_wide<3>(Ops::same(in.minus + n));
              SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) sums[0][s][n] = Ops::add(sums[0][s][n], begin);
            }
          }
        } else if constexpr (kParts == 1 && Ops::apart(N)) {
          // Every other word has sums of its own, which need not wait: of integers, so no bit changes.
          Ops::Ints others[T][N];
          SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) {
            SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) others[s][n] = Ops::no_ints();
          }
          SPECULA_ROLLED for (int j = 0; j < 4; j += 2) {
            add_pairs<format>(sums[0], words, j, in.pairs);
            add_pairs<format>(others, words, j + 1, in.pairs);
          }
          SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) {
            SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) sums[0][s][n] =
                Ops::add(sums[0][s][n], others[s][n]);
          }
        } else {
          SPECULA_UNROLL_LANES for (int part = 0; part < kParts; ++part) {
            SPECULA_ROLLED for (int j = part * 2; j < (kParts == 2 ? part * 2 + 2 : 4); ++j)
                add_pairs<format>(sums[part], words, j, in.pairs);
          }
        }
        SPECULA_UNROLL_LANES for (int s = 0; s < T; ++s) {
          Ops::Floats scale[kParts], minimum{};
          scale[0] = Ops::halves(strip(halves, s, 2));
          if constexpr (format.minimum) minimum = Ops::halves(strip(halves + 2 * kPanel, s, 2));
          if constexpr (format.in_two)
            scale[1] = Ops::times(scale[0], Ops::signed_bytes(strip(head + kPanel, s, 1)));
          if constexpr (format.in_two) scale[0] = Ops::times(scale[0], Ops::signed_bytes(strip(head, s, 1)));
          if constexpr (format.levels && !format.in_two)
            scale[0] = Ops::times(scale[0], Ops::bytes(strip(head, s, 1)));
          if constexpr (format.levels && format.minimum)
            minimum = Ops::minus_times(minimum, Ops::bytes(strip(head + kPanel, s, 1)));
          SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
            Ops::Floats sum;
            if constexpr (kMemory)
              sum = Ops::load(waiting[first + s][n]);
            else
              sum = out[s][n];
            if constexpr (format.minimum) sum = Ops::fused(minimum, Ops::same(in.total + n), sum);
            SPECULA_UNROLL_LANES for (int part = 0; part < kParts; ++part) sum = Ops::fused(
                Ops::to_floats(sums[part][s][n]), Ops::times(scale[part], Ops::same(in.step + n)), sum);
            if constexpr (kMemory)
              Ops::store(waiting[first + s][n], sum);
            else
              out[s][n] = sum;
          }
        }
      }
      in.pairs += N * kPairs, in.bytes += N * kPairs / 2, in.step += N, in.total += N, in.minus += 3 * N;
    }
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int n = 0; n < N; ++n) {
        if constexpr (kMemory)
          Ops::store(y + n * ldy + s * Ops::kLanes, Ops::load(waiting[s][n]));
        else
          Ops::store(y + n * ldy + s * Ops::kLanes, out[s][n]);
      }
    }
  }
};

#endif
