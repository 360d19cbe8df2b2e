// SPDX-License-Identifier: MIT
// Options of a decoder: KV cache capacity, threads, prefill, instruction set, measurements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "specula/cpu/inputs.hpp"
#include "specula/cpu/panel_matrix.hpp"
#include "specula/cpu/thread_team.hpp"

namespace specula::cpu {

/// Sizes and numerics of a decoder, fixed when it is constructed.
struct DecoderOptions {
  std::int32_t capacity = 2048;  ///< tokens: committed and speculative together
  std::int32_t max_nodes = 64;   ///< speculative tokens at a time
  /// Texts at once, each with `capacity` and `max_nodes` of its own; the memory of each grows by need if
  /// there are several.
  std::int32_t slots = 1;
  std::int32_t threads = 1;  ///< the logits do not depend on it; slower beyond the number of idle cores
  /// Replaces `threads` by the team of another model, Decoder::team(), for models that are called in turn.
  /// Avoids waking a second team at every call.
  std::shared_ptr<ThreadTeam> team = {};
  std::int32_t prefill_chunk = 128;  ///< tokens per pass of append()
  std::int32_t vocab_size = 0;       ///< rows have the first n tokens; 0: all. For a padded vocabulary
  Isa isa = best_isa();              ///< instruction set of the products
  Inputs inputs = Inputs::full;      ///< of the products
  /// false: no dot products of VNNI, and no AMX, where weights are in blocks. For measuring: the bits are the
  /// same.
  bool vnni = true;
  /// Data type of keys and values; empty: as cache_type() has it for the weights. half is for float only.
  std::optional<CacheType> cache = {};
  bool measure_similarity = false;      ///< see Decoder::attention_similarity()
  bool measure_mlp_similarity = false;  ///< see Decoder::mlp_similarity(); the library's rules do not use it
  /// Numbers of layers, ascending, after which features() also has the hidden states, from 0, the embedding,
  /// to the last, before the final norm: `feature_layers` in the config of the head that will read them.
  std::vector<std::int32_t> feature_layers = {};
};

namespace detail {

/// Fewer appended tokens than this wait for the next pass, which runs them at almost no extra cost.
constexpr std::int32_t kLazyTokens = 16;

/// Throws std::invalid_argument, naming the option, unless least <= value <= most.
inline void require_option(const char* what, std::int32_t value, std::int32_t least, std::int32_t most) {
  if (value < least || value > most)
    throw std::invalid_argument(std::string("DecoderOptions::") + what + " is " + std::to_string(value) +
                                ", must be " + std::to_string(least) + " to " + std::to_string(most));
}

/// The options of a Decoder<Real>, with the threads of the team. Throws std::invalid_argument if an option is
/// out of range.
template <class Real>
DecoderOptions checked(DecoderOptions options) {
  if (options.team) options.threads = options.team->size();
  require_option("capacity", options.capacity, 1, 1 << 24);
  require_option("max_nodes", options.max_nodes, 1, 1024);
  require_option("slots", options.slots, 1, 4096);
  require_option("threads", options.threads, 1, 256);
  require_option("prefill_chunk", options.prefill_chunk, 1, 4096);
  if (options.isa == Isa::reference)
    throw std::invalid_argument(
        "DecoderOptions::isa is reference, which only rows have; use a Decoder<double>");
  if (!supported(options.isa))
    throw std::invalid_argument("DecoderOptions::isa: this machine does not have these instructions");
  if (options.inputs == Inputs::bf16 && !(std::is_same_v<Real, float> && has_bf16_products()))
    throw std::invalid_argument(
        "DecoderOptions::inputs is bf16, which takes AVX512_BF16 and a model that calculates in float");
  if (!std::is_same_v<Real, float> && (options.inputs == Inputs::int16 || options.inputs == Inputs::int8))
    throw std::invalid_argument(
        "DecoderOptions::inputs are integers, which take a model that calculates in float");
  if (options.cache == CacheType::half && !std::is_same_v<Real, float>)
    throw std::invalid_argument(
        "DecoderOptions::cache is half, which takes a model that calculates in float");
  return options;
}

/// Maximum columns of a pass: a chunk of an append, or all nodes and the waiting tokens; and of several
/// texts.
inline std::int32_t pass_columns(const DecoderOptions& options) {
  constexpr std::int32_t kMerged = 256;
  const std::int32_t of_one = std::max(options.prefill_chunk, options.max_nodes + kLazyTokens);
  return options.slots > 1 ? std::max(of_one, kMerged) : of_one;
}

}  // namespace detail
}  // namespace specula::cpu
