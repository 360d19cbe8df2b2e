// SPDX-License-Identifier: MIT
// N-gram speculation on the device: Max-Gram and prompt lookup without a host round trip.
//
// Work: one block of 512 threads per text.
// Traffic: tokens are read from memory; draft tokens are in shared memory until all are found.
// Forms: find_short() finds matches below 16 tokens by threads; find_long() finds longer ones by warps.
// Reference: draft/max_gram.hpp; tests/cuda/api/max_gram.cpp; bench/cuda/helpers.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/max_gram.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program helpers).
#pragma once

#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/max_gram.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

namespace detail {

/// Atomic maximum, for concurrent writers.
SPECULA_HD void atomic_raise(std::int32_t* to, std::int32_t value) {
#ifdef __CUDA_ARCH__
  atomicMax(to, value);
#else
  std::int32_t there = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (there < value &&
         !__atomic_compare_exchange_n(to, &there, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}
/// Relaxed load of a value that other threads may raise at the same time.
SPECULA_HD std::int32_t atomic_load(const std::int32_t* at) {
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile std::int32_t*>(at);
#else
  return __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
}

/// A text and its draft tokens so far.
struct DraftedText {
  const Token* tokens;       // (size)
  const Token* draft_token;  // (draft tokens)
  std::int32_t size, draft_tokens;

  SPECULA_HD std::int32_t length() const { return size + draft_tokens; }
  SPECULA_HD Token operator[](std::int32_t i) const { return i < size ? tokens[i] : draft_token[i - size]; }
  SPECULA_HD Token from_end(std::int32_t i) const { return (*this)[length() - 1 - i]; }
};

/// The longest suffix of a text that occurs in its committed tokens, and where its earliest occurrence ends.
struct SuffixMatch {
  std::int32_t length, end;
};

/// State of a search, shared by a block's threads.
struct SuffixSearchShared {
  std::int32_t best;               // length known to be reached
  std::int32_t earliest;           // its place, as distance from the end of the committed tokens
  unsigned long long scratch[32];  // a warp's each
};

/// Finds matches by looking at every place where one could end; all threads of a block get the same.
///
/// A thread compares at most kShort tokens by itself. For longer matches the greatest length is found first,
/// then its earliest place, each by warps that compare 128 tokens per step. Before that, a few tokens rule
/// out nearly all places: those that a longer match needs, and those at which the warp's last comparison
/// failed. Cost: O(n / threads) steps, also for texts that repeat a token, a period or a Fibonacci word, with
/// exceptions or without. The proved bound is O(n^2 / 128) steps of warps.
template <class Block>
class SuffixSearch {
 public:
  SPECULA_HD SuffixSearch(Block block, const DraftedText& text, std::int32_t max_match,
                          SuffixSearchShared* shared)
      : block_(block),
        text_(text),
        committed_(text.size - 1),
        most_(max_match > 0 ? smaller(max_match, text.length()) : text.length()),
        shared_(shared) {}

  SPECULA_HD SuffixMatch find() {
    const SuffixMatch match = find_short();
    return match.length < kShort || most_ <= kShort ? match : find_long();
  }

 private:
  static constexpr std::int32_t kShort = 16;
  static constexpr int kAtOnce = 4;  // loads of a thread that are in flight together

  /// Where a comparison failed: in the text, and counted from the end of the suffix.
  struct Failure {
    std::int32_t place, back;
  };

  /// Upper bound of the length of a match that ends at `end`.
  SPECULA_HD std::int32_t bound(std::int32_t end) const { return smaller(end + 1, most_); }

  /// Exact for matches of less than kShort tokens; a result of kShort means at least that.
  SPECULA_HD SuffixMatch find_short() {
    const std::int32_t most = smaller(most_, kShort);
    const Token last = text_.from_end(0);
    std::int32_t length = 0, place = 0;
    for (std::int32_t begin = block_.rank(); begin < committed_;) {
      Token token[kAtOnce];
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t end = begin + static_cast<std::int64_t>(i) * block_.size();
        token[i] = end < committed_ ? text_.tokens[end] : kNoToken;
      }
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t at = begin + static_cast<std::int64_t>(i) * block_.size();
        if (at >= committed_ || token[i] != last) continue;
        const auto end = static_cast<std::int32_t>(at);
        std::int32_t n = 1;
        while (n < smaller(most, end + 1) && text_.tokens[end - n] == text_.from_end(n)) ++n;
        if (n > length) length = n, place = end;  // places ascend: the earliest is kept
      }
      if (begin > committed_ - kAtOnce * block_.size()) break;  // and no sum overflows
      begin += kAtOnce * block_.size();
    }
    // Longest first, then earliest.
    unsigned long long key = static_cast<unsigned long long>(length) << 32 |
                             (0xFFFFFFFFull - static_cast<unsigned long long>(place));
    key = block_reduce(block_, key, Max{}, shared_->scratch);
    return {static_cast<std::int32_t>(key >> 32),
            static_cast<std::int32_t>(0xFFFFFFFFull - (key & 0xFFFFFFFFull))};
  }

  SPECULA_HD SuffixMatch find_long() {
    if (block_.rank() == 0) shared_->best = kShort - 1, shared_->earliest = 0;
    block_.sync();
    const auto warp = block_.warp();
    const std::int32_t first = block_.warp_rank() * warp.size();
    // Later places first: in a text that repeats itself the longest match is the nearest.
    for (std::int64_t begin = committed_ - 1 - first; begin >= 0; begin -= block_.size()) {
      const auto end = static_cast<std::int32_t>(begin) - warp.rank();
      std::int32_t best = warp.shuffle(atomic_load(&shared_->best), 0);
      std::uint32_t hopeful = warp.ballot(end >= 0 && promises(end, best + 1));
      while (hopeful != 0) {
        const int lane = first_lane(hopeful);
        hopeful &= hopeful - 1;
        const std::int32_t length = compare(static_cast<std::int32_t>(begin) - lane);
        if (length > best) {
          best = length;
          if (warp.rank() == 0) atomic_raise(&shared_->best, length);
        }
        hopeful = warp.ballot((hopeful >> warp.rank() & 1) != 0 && promises(end, best + 1));
      }
    }
    block_.sync();
    const std::int32_t length = shared_->best;
    for (std::int64_t begin = first; begin < committed_; begin += block_.size()) {
      const std::int32_t found = committed_ - warp.shuffle(atomic_load(&shared_->earliest), 0);
      if (begin >= found) break;
      const auto end = static_cast<std::int32_t>(smaller<std::int64_t>(begin + warp.rank(), found));
      std::uint32_t hopeful = warp.ballot(end < found && promises(end, length));
      while (hopeful != 0) {
        const int lane = first_lane(hopeful);
        hopeful &= hopeful - 1;
        const auto chosen = static_cast<std::int32_t>(begin) + lane;
        if (compare(chosen) >= length) {
          if (warp.rank() == 0) atomic_raise(&shared_->earliest, committed_ - chosen);
          break;
        }
        hopeful = warp.ballot((hopeful >> warp.rank() & 1) != 0 && promises(end, length));
      }
    }
    block_.sync();
    const std::int32_t end = committed_ - shared_->earliest;
    block_.sync();
    return {length, end};
  }

  /// Whether a match of `length` tokens may end at `end`, tried by three of its tokens.
  SPECULA_HD bool promises(std::int32_t end, std::int32_t length) const {
    return bound(end) >= length && text_.tokens[end - (length - 1)] == text_.from_end(length - 1) &&
           text_.tokens[end] == text_.from_end(0) && !refutes(failed_, end, length);
  }
  /// Whether the mismatch of another comparison rules such a match out: the text's token that differed from
  /// the suffix, or the suffix's token.
  SPECULA_HD bool refutes(Failure other, std::int32_t end, std::int32_t length) const {
    const std::int32_t back = end - other.place;
    return other.place >= 0 &&
           ((back >= 0 && back < length && text_.tokens[other.place] != text_.from_end(back)) ||
            (other.back < length && text_.tokens[end - other.back] != text_.from_end(other.back)));
  }

  /// Length of the match that ends at `end`, by the warp.
  SPECULA_HD std::int32_t compare(std::int32_t end) {
    const auto warp = block_.warp();
    const std::int32_t most = bound(end);
    for (std::int32_t begin = 0; begin < most; begin += kAtOnce * warp.size()) {
      bool differs[kAtOnce];
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t back = begin + i * warp.size() + warp.rank();
        differs[i] = back < most && text_.tokens[end - back] != text_.from_end(back);
      }
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::uint32_t where = warp.ballot(differs[i]);
        if (where == 0) continue;
        const std::int32_t length = begin + i * warp.size() + first_lane(where);
        failed_ = {end - length, length};
        return length;
      }
    }
    return most;
  }

  Block block_;
  DraftedText text_;
  std::int32_t committed_, most_;
  SuffixSearchShared* shared_;
  Failure failed_{-1, 0};  // of this warp's last comparison
};

/// Shared memory of a block.
SPECULA_HD std::size_t max_gram_shared_bytes(std::int32_t draft_tokens) {
  return array_bytes<SuffixSearchShared>(1) + array_bytes<Token>(draft_tokens);
}

/// The draft tokens after one text, by a block.
template <class Block>
SPECULA_HD void max_gram(Block block, const MaxGramBatch& batch, const MaxGramOptions& options,
                         std::int32_t vocab, std::int32_t capacity, int sequence, unsigned char* memory) {
  if (!is_live(sequence, batch.sequence_count)) return;
  auto* shared = reinterpret_cast<SuffixSearchShared*>(memory);
  auto* draft_token = behind<Token>(shared, 1);  // (k)
  end_array(draft_token, options.draft_tokens);
  const auto warp = block.warp();
  const std::int32_t size = batch.length[sequence];
  DraftedText text{batch.tokens + sequence * batch.stride, draft_token, size, 0};
  const bool usable = size >= 1 && size <= capacity;
  const auto is_token = [&](Token token) { return token >= 0 && token < vocab; };
  std::int32_t first_match = 0;
  bool more = usable;
  while (more && text.draft_tokens < options.draft_tokens) {
    const std::int32_t wanted = options.draft_tokens - text.draft_tokens;
    const SuffixMatch match = SuffixSearch<Block>(block, text, options.max_match, shared).find();
    const std::int32_t from = match.end + 1;
    // After a match, copying draft tokens repeats the tokens between the occurrence and the end.
    const std::int32_t period = text.length() - from;
    std::int32_t copies = 0;
    if (match.length >= options.min_match && (options.past_end || from < size - 1)) {
      if (text.draft_tokens == 0) first_match = match.length;
      const std::int32_t most = options.past_end ? wanted : smaller(wanted, size - 1 - from);
      while (copies < most && more) {
        const std::int32_t i = copies + warp.rank();
        const Token token = i < most ? text[from + i % period] : kNoToken;
        const std::uint32_t bad = warp.ballot(!is_token(token));
        const int good = bad ? first_lane(bad) : warp.size();
        if (block.warp_rank() == 0 && warp.rank() < good) draft_token[text.draft_tokens + i] = token;
        copies += good;
        more = good == warp.size() || copies == most;
      }
    } else {
      const Token last = text.from_end(0);
      const Token token = batch.bigram && is_token(last) ? batch.bigram[last] : kNoToken;
      more = is_token(token);
      if (more && block.rank() == 0) draft_token[text.draft_tokens] = token;
      copies = more ? 1 : 0;
    }
    block.sync();  // the draft tokens are written
    text.draft_tokens += copies;
  }
  for (std::int32_t i = block.rank(); i < options.draft_tokens; i += block.size())
    batch.draft_token[static_cast<std::int64_t>(sequence) * options.draft_tokens + i] =
        i < text.draft_tokens ? draft_token[i] : kNoToken;
  if (block.rank() == 0) {
    batch.count[sequence] = text.draft_tokens;
    batch.match[sequence] = text.draft_tokens > 0 ? first_match : 0;
  }
}

}  // namespace detail

/// Launch configuration of a batch.
struct MaxGramPlan {
  MaxGramCapacity capacity;      ///< as given
  MaxGramOptions options;        ///< as given
  int threads = 512;             ///< per block; one block per sequence
  std::size_t shared_bytes = 0;  ///< of a block
};

namespace detail {

/// Whether `plan` was made, and the batch has its arrays.
inline bool is_max_gram(const MaxGramPlan& plan, const MaxGramBatch& batch) {
  return is_max_gram(plan.capacity, plan.options) &&
         plan.shared_bytes == max_gram_shared_bytes(plan.options.draft_tokens) &&
         is_geometry(1, plan.threads) &&
         are_apart(plan.capacity.sequences, batch.stride, plan.capacity.tokens) &&
         !any_null({batch.tokens, batch.length, batch.count, batch.match}) &&
         (batch.draft_token || plan.options.draft_tokens == 0) &&
         !any_misaligned(batch.tokens, batch.length, batch.bigram, batch.draft_token, batch.count,
                         batch.match, batch.sequence_count);
}

}  // namespace detail

#ifdef __CUDACC__

namespace detail {

struct MaxGramArgs {
  MaxGramBatch batch;
  MaxGramOptions options;
  std::int32_t vocab, capacity;
};
template <class Args>  // a template so that several translation units may have it
__global__ void __launch_bounds__(512, 1) max_gram_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  max_gram(DeviceBlock{}, args.batch, args.options, args.vocab, args.capacity, static_cast<int>(blockIdx.x),
           shared);
}

}  // namespace detail

/// Outside of captures. Errors: cudaErrorInvalidValue where a capacity or min_match is below 1, a text has
/// more than 2^30 tokens, max_match is neither 0 nor at least min_match, or `draft_tokens` is outside 0 ..
/// 4096; else the driver's error.
inline cudaError_t make_max_gram_plan(MaxGramPlan* plan, const MaxGramCapacity& capacity,
                                      const MaxGramOptions& options) {
  if (!detail::is_max_gram(capacity, options)) return cudaErrorInvalidValue;
  plan->capacity = capacity;
  plan->options = options;
  plan->shared_bytes = detail::max_gram_shared_bytes(options.draft_tokens);
  return cudaSuccess;
}

/// For each text the draft tokens that specula::MaxGram has for a chain. Searches the committed tokens (all
/// but the root) for the longest suffix, root and draft tokens included, and copies the tokens after its
/// earliest occurrence up to the end of the committed tokens; then searches again. Without a match a bigram's
/// token is used. Exact, and independent of the batch. A token outside the vocabulary is compared as any
/// other and never drafted. One launch, one block per text; for the cost of a search see
/// detail::SuffixSearch. Errors: cudaErrorInvalidValue where an array is null (`bigram` may be) or
/// misaligned, or rows overlap; else the launch's error. Sources: Chen et al. 2024 (Cascade Speculative
/// Drafting), section 3.3; Saxena 2023 (prompt lookup decoding): max_match = 3 or so.
/// @code
/// MaxGramPlan plan;  // once
/// MaxGramOptions options;
/// options.max_match = 3;  // prompt lookup; 0, the default: Max-Gram
/// make_max_gram_plan(&plan, MaxGramCapacity{sequences, text_stride, vocab}, options);
/// max_gram(plan, MaxGramBatch{texts, text_stride, length, bigram, draft_token, count, match}, stream);
/// @endcode
inline cudaError_t max_gram(const MaxGramPlan& plan, const MaxGramBatch& batch, cudaStream_t stream) {
  if (!detail::is_max_gram(plan, batch)) return cudaErrorInvalidValue;
  const detail::MaxGramArgs args{batch, plan.options, plan.capacity.vocab, plan.capacity.tokens};
  return detail::launch(detail::max_gram_kernel<detail::MaxGramArgs>, plan.capacity.sequences, 1,
                        plan.threads, plan.shared_bytes, stream, args);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
