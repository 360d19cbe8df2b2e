// What a Llama is made with, besides its weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "specula/eigen/detail/isa.hpp"
#include "specula/eigen/panel_matrix.hpp"
#include "specula/eigen/thread_team.hpp"

namespace specula::eigen {

struct LlamaOptions {
  std::int32_t capacity = 2048;  // tokens: committed and speculative together
  std::int32_t max_nodes = 64;   // speculative tokens at a time
  std::int32_t threads = 1;      // no bit of the logits depends on it; more than idle cores is slower
  /// Instead: the threads of another model, Llama::team(), for models that are called in turns. Then no
  /// second team has to be woken each time.
  std::shared_ptr<ThreadTeam> team = {};
  std::int32_t prefill_chunk = 128;  // tokens of a pass of append()
  std::int32_t large_batch_from =
      0;                        // appends of so many tokens use Eigen's products, on one thread; 0: see Llama
  std::int32_t vocab_size = 0;  // tokens that rows show, the first ones; 0: all. For a padded vocabulary
  Isa isa = best_isa();
  Inputs inputs = Inputs::full;         // bf16: rounds what bf16 weights multiply; twice as fast, 3 digits
  bool measure_similarity = false;      // see Llama::similarity()
  bool measure_mlp_similarity = false;  // see Llama::mlp_similarity(); no rule of this library asks for it
  /// Numbers of layers, ascending, behind which features() has the hidden states too: the `feature_layers` of
  /// the config of a head that is to read them.
  std::vector<std::int32_t> feature_layers = {};
};

namespace detail {

constexpr std::int32_t kNoLargeBatch = std::numeric_limits<std::int32_t>::max();
/// Fewer appended tokens wait: they are nearly free in the next pass.
constexpr std::int32_t kLazyTokens = 16;

/// Throws std::invalid_argument, naming the option, unless least <= value <= most.
inline void require_option(const char* what, std::int32_t value, std::int32_t least, std::int32_t most) {
  if (value < least || value > most)
    throw std::invalid_argument(std::string("LlamaOptions::") + what + " is " + std::to_string(value) +
                                ", must be " + std::to_string(least) + " to " + std::to_string(most));
}

/// The options of a Llama<Real> with `large_batch_from` decided. Throws std::invalid_argument for one out of
/// range.
template <class Real>
LlamaOptions checked(LlamaOptions options) {
  if (options.team) options.threads = options.team->size();
  require_option("capacity", options.capacity, 1, 1 << 24);
  require_option("max_nodes", options.max_nodes, 1, 1024);
  require_option("threads", options.threads, 1, 256);
  require_option("prefill_chunk", options.prefill_chunk, 1, 4096);
  require_option("large_batch_from", options.large_batch_from, 0, kNoLargeBatch);
  if (options.isa > best_isa())
    throw std::invalid_argument("LlamaOptions::isa: this machine does not have these instructions");
  if (options.inputs == Inputs::bf16 && !(std::is_same_v<Real, float> && has_bf16_products()))
    throw std::invalid_argument(
        "LlamaOptions::inputs is bf16, which takes AVX512_BF16 and a model that calculates in float");
  if (options.large_batch_from == 0)
    options.large_batch_from =
        std::is_same_v<Real, float> && options.isa != Isa::portable ? kNoLargeBatch : 16;
  // Eigen may throw, and a team's members may not
  if (options.threads > 1) options.large_batch_from = kNoLargeBatch;
  return options;
}

/// Columns of a pass: a chunk of an append, or all nodes and the tokens that waited.
inline std::int32_t pass_columns(const LlamaOptions& options) {
  return std::max(options.prefill_chunk, options.max_nodes + kLazyTokens);
}

}  // namespace detail
}  // namespace specula::eigen
