// SPDX-License-Identifier: MIT
// A Llama-family decoder on the CPU: a specula::LanguageModel over a Hugging Face directory or a GGUF file.
// Declared here, and compiled in the one file of a program that includes compile_decoder.hpp, which the CMake
// target specula::cpu provides.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <type_traits>

#include "specula/base/rows.hpp"
#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/kv_cache.hpp"
#include "specula/cpu/thread_team.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/features.hpp"
#include "specula/model/skipped_blocks.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cpu {

/// Llama-family decoder with a KV cache and tree attention. Real is the compute type: float, or double as a
/// reference.
///
/// **Bits.** For one isa, inputs, type of cache, Real and build, the logits of a node depend only on the
/// tokens from the start of the context to it: not on how many nodes share a call, the order or shape of the
/// tree, the calls that grew it, the slots of its ancestors, how the context was built (append or commit, in
/// which pieces), or the threads.
///
/// The constructor allocates all memory: append(), extend() and its variants, commit() and truncate()
/// allocate nothing, but with several slots, of which each gets more memory when its text grows. Several
/// models may share their weights. Not for concurrent calls.
///
/// It is also a BatchedLanguageModel of options().slots texts, whose rows are those that each text has alone;
/// the members that name no slot mean slot 0. Several texts of a draft that ends early or skips blocks run
/// one after the other.
template <class Real = float>
class Decoder {
  static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);

 public:
  /// Loads a directory with config.json and model.safetensors (or shards and their index), or a GGUF file.
  /// Throws std::runtime_error for a bad file, or a draft that takes its target's embedding
  /// (load_decoder_weights), std::invalid_argument for bad options.
  explicit Decoder(const std::filesystem::path& directory, const DecoderOptions& options = {});

  /// Uses weights in memory. Throws std::invalid_argument if an option is out of range or `weights` is null.
  explicit Decoder(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& options = {});

  /// Views of a model that is moved from or assigned to are stale.
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;  ///< Views of both models are then stale.
  ~Decoder();

  const DecoderConfig& config() const;    ///< as loaded
  const DecoderOptions& options() const;  ///< as given, with the threads of `team` and the type of cache
  /// Tokens per row of logits: options().vocab_size, or the weights' whole vocabulary.
  std::int32_t vocab_size() const;
  std::int32_t layers() const;  ///< of one full pass
  /// Number of early exits, the last of which is the whole model.
  std::int32_t exits() const;
  /// Layers before an exit. 0 <= exit < exits().
  std::int32_t layers_to(std::int32_t exit) const;
  std::int32_t size() const;        ///< committed tokens
  std::int32_t capacity() const;    ///< tokens, committed and speculative together
  std::int32_t node_count() const;  ///< nodes, not committed
  /// Number of calls that changed this model; see CountsChanges. A view is valid for one count.
  std::uint64_t change_count() const;
  /// See TimesItself: processor time of the calling thread, so that other programs make no pass expensive;
  /// with more threads than one wall time.
  double pass_seconds() const;

  /// Prefill: commits `tokens` after the context and drops all nodes. Fewer than 16 tokens wait for the next
  /// extend(), which then reads the weights once for both; more run at once, `prefill_chunk` per pass. Throws
  /// std::invalid_argument, and changes nothing, for a token out of range or more tokens than fit.
  void append(Tokens tokens);

  /// Tree forward: adds one node per token, under `parents`: earlier nodes, also of this call, or kNoParent
  /// for the end of the context. A node sees the context, its ancestors and itself; its position is size()
  /// plus its depth. Returns the logits (n, V) of the new nodes, valid until the next call; those outside a
  /// draft vocabulary are minus infinity. One pass over the weights for up to 8 nodes. Throws
  /// std::invalid_argument, and changes nothing, for a bad token or parent, more nodes than max_nodes, or a
  /// full context.
  LogitsView extend(Tokens tokens, Nodes parents);

  /// Early exit: extend() through the layers before an exit only. Bit-identical to a model that ends there.
  /// The first pass that needs the upper layers computes them for tokens that skipped them, committed or not
  /// (more than 16 such tokens run in passes before it). Also throws unless 0 <= exit < exits(). Cost: those
  /// layers and the LM head.
  LogitsView extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit);

  /// Runs `rows` (ascending) of the last extend_to_exit() on to a later exit. Returns all rows of that call,
  /// with `rows` updated. Throws std::invalid_argument, and changes nothing, for a row or exit out of range,
  /// or if the row's node or one below it is already beyond the exit. Cost: the layers between, and the LM
  /// head.
  LogitsView resume_to_exit(std::span<const std::int32_t> rows, std::int32_t exit);

  /// Self-speculation by layer skipping: extend() without some blocks, on this model's KV cache. Such nodes
  /// cannot be committed, all nodes present must skip the same blocks, and the next append() or truncate()
  /// drops them; no committed slot is written. Runs tokens that append() left waiting first. Throws as
  /// extend() does. Cost: a pass without those blocks.
  LogitsView extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& skipped);

  /// (layers): the cosine between the residual stream before and after each attention block, averaged over
  /// the context. Empty without a context or options().measure_similarity. Runs tokens that append() left
  /// waiting first; O(layers * size()).
  std::span<const double> attention_similarity();
  /// The same around each MLP block; requires options().measure_mlp_similarity.
  std::span<const double> mlp_similarity();

  /// Commits the accepted path: its nodes, the first a child of the context and each a child of the one
  /// before, join the context; all other nodes are dropped. An empty path drops all. Compacts keys and values
  /// in the KV cache; computes nothing. Throws std::invalid_argument, and changes nothing, if `path` is not
  /// such a path.
  void commit(Nodes path);

  /// KV cache rollback: drops all nodes and the committed tokens from position `n` on. O(1). Throws
  /// std::invalid_argument, and changes nothing, unless 0 <= n <= size().
  void truncate(std::int32_t n);

  // ---- several texts; see BatchedLanguageModel. All throw std::invalid_argument, too, for a slot out of
  // range.

  static constexpr bool kBatchInvariant = true;         ///< see BatchedLanguageModel
  std::int32_t slots() const;                           ///< options().slots
  std::int32_t size(std::int32_t slot) const;           ///< committed tokens, queued ones included
  std::int32_t capacity(std::int32_t slot) const;       ///< of each text
  std::int32_t queued(std::int32_t slot) const;         ///< committed tokens that have yet to run
  std::int32_t chunk() const;                           ///< queued tokens that a pass takes with nodes
  std::uint64_t change_count(std::int32_t slot) const;  ///< see CountsChanges: of this text
  double pass_seconds(std::int32_t slot) const;         ///< see TimesItself: its share, by tokens and nodes
  void append(std::int32_t slot, Tokens tokens);        ///< append() that only queues
  /// One pass over the nodes of several texts, each as in extend(), with their queued tokens; of a slot named
  /// without nodes at most a chunk of prefill_chunk of those. Returns the rows of the nodes, in this order,
  /// valid until the next pass. Throws std::invalid_argument as extend() and for a slot that is named twice,
  /// and std::runtime_error, with the bytes, if there is no memory for a text; nothing has changed then.
  LogitsView extend(std::span<const SlotNodes> nodes);
  void commit(std::int32_t slot, Nodes path);        ///< see commit()
  void truncate(std::int32_t slot, std::int32_t n);  ///< see truncate()
  /// Copies what the first `n` tokens of slot `from`, which have run, gave to those of slot `to`, which were
  /// appended and are the same tokens (not checked): they need not run. Slot `to` has no nodes. O(n).
  void fork(std::int32_t from, std::int32_t to, std::int32_t n);
  KeyValuesView<Real> key_values(std::int32_t slot);                          ///< see key_values()
  FeaturesView<Real> features(std::int32_t slot);                             ///< see features()
  void set_target_state(std::int32_t slot, const KeyValuesView<Real>& view);  ///< see set_target_state()
  void set_target_state(std::int32_t slot, const FeaturesView<Real>& view);   ///< see set_target_state()

  // ----

  /// View of the keys and values for a draft that is conditioned on them (GLIDE). Runs tokens that append()
  /// left waiting first, so that the view has all size() tokens. Valid until the next call other than this
  /// and features().
  KeyValuesView<Real> key_values();
  /// View of the hidden states that enter the LM head, and of those after options().feature_layers, for a
  /// head that is conditioned on them (EAGLE, HASS); otherwise as key_values().
  FeaturesView<Real> features();

  /// Sets the target's state for later tokens; the caller sets it before every round. A token at position i
  /// attends to the target's keys and values of earlier tokens, as far as the view has them, and takes the
  /// feature of the token before it, or its parent's own prediction where the target has none yet. Throws
  /// std::invalid_argument if this model is not conditioned on such a view, is made for a target of another
  /// shape, or reads hidden states that the view lacks.
  void set_target_state(const KeyValuesView<Real>& view);
  void set_target_state(const FeaturesView<Real>& view);  ///< The same for a feature head.

  /// The view that a GLIDE draft takes.
  using TargetKeyValues = KeyValuesView<Real>;
  using TargetFeatures = FeaturesView<Real>;  ///< the view that a feature head takes
  Conditioning conditioned_on() const { return config().conditioned_on; }  ///< what it reads

  /// Whether nodes computed under one view remain valid under the next: the keys and values of a draft's only
  /// layer do not depend on its cross attention.
  bool keeps_speculation() const;

  /// Wall seconds of the matrix products alone of a pass over `nodes` nodes to an exit, which it runs on
  /// inputs of its own: what is left of a pass is what else it does. For measuring: allocates, and leaves the
  /// model as it is. Throws std::invalid_argument unless 1 <= nodes <= options().max_nodes and 0 <= exit <
  /// exits().
  double product_seconds(std::int32_t nodes, std::int32_t exit);

  /// The thread team. Models that are never called at the same time may share it: see DecoderOptions.
  const std::shared_ptr<ThreadTeam>& team() const;

  /// Read only; other models may share them.
  const std::shared_ptr<const DecoderWeights<Real>>& weights() const;

  /// The logits (V) of row `index` of the last extend(), unrounded.
  std::span<const Real> logits(std::int32_t index);

 private:
  struct Impl;
  void change(std::int32_t slot);
  specula::detail::ViewGuard guard(std::int32_t slot) const;

  specula::detail::ChangeCount change_count_;
  std::unique_ptr<Impl> impl_;
};

extern template class Decoder<float>;
extern template class Decoder<double>;

using DecoderModel = Decoder<float>;  ///< the model in float

}  // namespace specula::cpu
