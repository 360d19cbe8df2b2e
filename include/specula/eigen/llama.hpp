// A Llama-family decoder on the CPU: a specula::LanguageModel over a Hugging Face directory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/eigen/detail/llama_schedule.hpp"
#include "specula/eigen/llama_config.hpp"
#include "specula/eigen/llama_options.hpp"
#include "specula/eigen/llama_weights.hpp"
#include "specula/rows.hpp"

namespace specula::eigen {

/// Llama-family decoder with a KV cache and tree attention. Real is the compute type: float, or double as a
/// reference.
///
/// **Bits.** For one isa, inputs, Real and build, the logits of a node depend only on the tokens from the
/// start of the context to it: not on how many nodes share a call, the order or shape of the tree, the calls
/// that grew it, the slots of its ancestors, how the context was built (append or commit, in which pieces),
/// or the threads. The exception is an append of at least `large_batch_from` tokens, which runs through
/// Eigen's products and rounds differently. The default (0) means never for float with AVX2 or AVX-512, where
/// the panel product is faster for long prompts too, and from 16 tokens on otherwise.
///
/// The constructor allocates all memory: append(), extend() and its variants, commit() and truncate()
/// allocate nothing (except Eigen's temporaries in a large append). One model serves one sequence; several
/// models may share their weights. Not for concurrent calls.
template <class Real = float>
class Llama {
  static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);

 public:
  /// Loads a directory with config.json and model.safetensors (or shards and their index).
  /// Throws std::runtime_error for a bad file (load_llama_weights), std::invalid_argument for bad options.
  explicit Llama(const std::filesystem::path& directory, const LlamaOptions& options = {})
      : Llama(std::make_shared<const LlamaWeights<Real>>(load_llama_weights<Real>(directory)), options) {}

  /// Uses weights in memory. Throws std::invalid_argument if an option is out of range or `weights` is null.
  explicit Llama(std::shared_ptr<const LlamaWeights<Real>> weights, const LlamaOptions& options = {})
      : options_(detail::checked<Real>(options)), schedule_(fitting(std::move(weights), options_), options_) {
    if (options_.vocab_size == 0) options_.vocab_size = config().vocab_size;
    skipped_ = SkippedBlocks(config().layers);
    const auto layers = static_cast<std::size_t>(config().layers);
    similarity_.resize(options_.measure_similarity ? layers : 0);
    mlp_similarity_.resize(options_.measure_mlp_similarity ? layers : 0);
    if constexpr (!std::is_same_v<Real, float>)
      rounded_.resize(static_cast<std::size_t>(options_.max_nodes) * static_cast<std::size_t>(vocab_size()));
  }

  const LlamaConfig& config() const { return pass().config(); }
  const LlamaOptions& options() const { return options_; }
  /// Tokens per row of logits: options().vocab_size, or the weights' whole vocabulary.
  std::int32_t vocab_size() const { return options_.vocab_size; }
  std::int32_t layers() const { return config().layers; }
  /// Number of early exits, the last of which is the whole model.
  std::int32_t exits() const { return stages().count(); }
  /// Layers before an exit. 0 <= exit < exits().
  std::int32_t layers_to(std::int32_t exit) const { return stages().layers_to(exit); }
  std::int32_t size() const { return stages().size(); }
  std::int32_t capacity() const { return options_.capacity; }
  std::int32_t node_count() const { return stages().node_count(); }
  /// Number of calls that changed this model; see CountsChanges. A view is valid for one generation.
  std::uint64_t generation() const { return generation_.now(); }

  /// Prefill: commits `tokens` after the context and drops all nodes. Fewer than 16 tokens wait for the next
  /// extend(), which then reads the weights once for both; more run at once, `prefill_chunk` per pass. Throws
  /// std::invalid_argument, and changes nothing, for a token out of range or more tokens than fit.
  void append(Tokens tokens) {
    check_tokens(tokens);
    check_room(size(), tokens.size(), "append");
    pass().require_view();
    generation_.next();
    stages().clear_nodes();
    if (tokens.size() < static_cast<std::size_t>(options_.large_batch_from))
      return schedule_.append(tokens, detail::Product::small_batch);
    schedule_.flush(detail::Product::small_batch);
    const std::int32_t before = size();
    try {
      schedule_.append(tokens, detail::Product::large_batch);
    } catch (...) {  // Eigen could not allocate a temporary
      stages().truncate(before);
      throw;
    }
  }

  /// Tree forward: adds one node per token, under `parents`: earlier nodes, also of this call, or kNoParent
  /// for the end of the context. A node sees the context, its ancestors and itself; its position is size()
  /// plus its depth. Returns the logits (n, V) of the new nodes, valid until the next call. One pass over the
  /// weights for up to 8 nodes. Throws std::invalid_argument, and changes nothing, for a bad token or parent,
  /// more nodes than max_nodes, or a full context.
  LogitsView extend(Tokens tokens, Nodes parents) { return extend_to_exit(tokens, parents, exits() - 1); }

  /// Early exit: extend() through the layers before an exit only. Bit-identical to a model that ends there.
  /// The first pass that needs the upper layers computes them for tokens that skipped them, committed or not
  /// (more than 16 such tokens run in passes before it). Also throws unless 0 <= exit < exits(). Cost: those
  /// layers and the LM head.
  LogitsView extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit) {
    check_exit(exit);
    check_nodes(tokens, parents);
    if (stages().skips()) fail("extend: there are nodes of extend_skipping(); truncate() first");
    pass().require_view();
    generation_.next();
    add_nodes(tokens, parents, false);
    schedule_.run_from(first_row_, exit);
    return rows();
  }

  /// Runs `rows` (ascending) of the last extend_to_exit() on to a later exit. Returns all rows of that call,
  /// with `rows` updated. Throws std::invalid_argument, and changes nothing, for a row or exit out of range,
  /// or if the row's node or one below it is already beyond the exit. Cost: the layers between, and the LM
  /// head.
  LogitsView resume_to_exit(std::span<const std::int32_t> rows, std::int32_t exit) {
    check_exit(exit);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const NodeId node = first_row_ + rows[i];
      if (rows[i] < (i ? rows[i - 1] + 1 : 0) || rows[i] >= rows_ || node >= node_count() || stages().skips())
        fail("resume_to_exit: row " + std::to_string(rows[i]) +
             ", must be of the last extend_to_exit(), ascending");
      if (stages().node(node).stages > exit)
        fail("resume_to_exit: row " + std::to_string(rows[i]) + " is beyond exit " + std::to_string(exit));
    }
    generation_.next();
    schedule_.run_to_exit(first_row_, rows, exit, /*aside=*/true);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(pass().exit_logits().at(static_cast<std::ptrdiff_t>(i)), pass().logits().stride,
                  pass().logits().at(rows[i]));
    return this->rows();
  }

  /// Self-speculation by layer skipping: extend() without some blocks, on this model's KV cache. Such nodes
  /// cannot be committed, all nodes present must skip the same blocks, and the next append() or truncate()
  /// drops them; no committed slot is written. Runs tokens that append() left waiting first. Throws as
  /// extend() does. Cost: a pass without those blocks.
  LogitsView extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& skipped) {
    if (skipped.layers() != layers() || skipped.mlp.size() != skipped.attention.size())
      fail("extend_skipping: blocks of " + std::to_string(skipped.layers()) + " layers, the model has " +
           std::to_string(layers()));
    check_nodes(tokens, parents);
    if (node_count() > 0 && !(stages().skips() && skipped == skipped_))
      fail("extend_skipping: there are nodes that do not skip these blocks; truncate() first");
    schedule_.calculate_pending();
    pass().require_view();
    generation_.next();
    skipped_ = skipped;
    add_nodes(tokens, parents, true);
    schedule_.skip(first_row_, skipped_);
    return rows();
  }

  /// (layers): the cosine between the residual stream before and after each attention block, averaged over
  /// the context. Empty without a context or options().measure_similarity. Runs tokens that append() left
  /// waiting first; O(layers * size()).
  std::span<const double> similarity() { return mean_cosines(detail::Block::attention, similarity_); }
  /// The same around each MLP block; requires options().measure_mlp_similarity.
  std::span<const double> mlp_similarity() { return mean_cosines(detail::Block::mlp, mlp_similarity_); }

  /// Commits the accepted path: its nodes, the first a child of the context and each a child of the one
  /// before, join the context; all other nodes are dropped. An empty path drops all. Compacts keys and values
  /// in the KV cache; computes nothing. Throws std::invalid_argument, and changes nothing, if `path` is not
  /// such a path.
  void commit(Nodes path) {
    if (stages().skips() && !path.empty()) fail("commit: nodes of extend_skipping() cannot be committed");
    for (std::size_t i = 0; i < path.size(); ++i) {
      const NodeId node = path[i], parent = i == 0 ? kNoParent : path[i - 1];
      if (node < 0 || node >= node_count())
        fail("commit: node " + std::to_string(node) + ", must be 0 to " + std::to_string(node_count() - 1));
      if (stages().node(node).parent != parent)
        fail("commit: node " + std::to_string(node) + " is no child of " +
             (parent == kNoParent ? "the context" : "node " + std::to_string(parent)) +
             ", must be a path from the context down");
    }
    generation_.next();
    const std::int32_t context = size();
    for (std::size_t i = 0; i < path.size(); ++i)
      pass().move(context + path[i], context + static_cast<std::int32_t>(i));
    stages().commit(path);
  }

  /// KV cache rollback: drops all nodes and the committed tokens from position `n` on. O(1). Throws
  /// std::invalid_argument, and changes nothing, unless 0 <= n <= size().
  void truncate(std::int32_t n) {
    if (n < 0 || n > size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " + std::to_string(size()));
    generation_.next();
    stages().truncate(n);
  }

  /// View of the keys and values for a draft that is conditioned on them (GLIDE). Runs tokens that append()
  /// left waiting first, so that the view has all size() tokens. Valid until the next call other than this
  /// and features().
  KeyValuesView<Real> key_values() {
    schedule_.calculate_pending();
    return {pass().cache(), size(), specula::detail::ViewGuard(generation_)};
  }
  /// View of the hidden states that enter the LM head, and of those after options().feature_layers, for a
  /// head that is conditioned on them (EAGLE, HASS); otherwise as key_values().
  FeaturesView<Real> features() {
    schedule_.calculate_pending();
    return {pass().features().at(0),
            size(),
            config().hidden_size,
            pass().features().stride,
            specula::detail::ViewGuard(generation_),
            pass().hidden_states()};
  }

  /// Sets the target's state for later tokens; the caller sets it before every round. A token at position i
  /// attends to the target's keys and values of earlier tokens, as far as the view has them, and takes the
  /// feature of the token before it, or its parent's own prediction where the target has none yet. Throws
  /// std::invalid_argument if this model is not conditioned on such a view, is made for a target of another
  /// shape, or reads hidden states that the view lacks.
  void set_target_state(const KeyValuesView<Real>& view) {
    const TargetShape& own = config().target;
    if (config().conditioned_on != Conditioning::key_values)
      fail("set_target_state: this model does not look at keys and values");
    const auto same = [&](const char* what, std::int32_t made_for, std::int32_t given) {
      if (made_for != given)
        fail("set_target_state: made for a target with " + std::string(what) + " " +
             std::to_string(made_for) + ", given one with " + std::to_string(given));
    };
    same("num_hidden_layers", own.layers, view.cache().layers());
    same("num_key_value_heads", own.kv_heads, view.cache().heads());
    same("head_dim", own.head_dim, view.cache().head_dim());
    pass().set_target_state(view);
  }
  void set_target_state(const FeaturesView<Real>& view) {
    if (config().conditioned_on != Conditioning::features)
      fail("set_target_state: this model does not look at features");
    if (view.width() != config().hidden_size)
      fail("set_target_state: features of width " + std::to_string(view.width()) +
           ", the model's hidden size is " + std::to_string(config().hidden_size));
    pass().set_target_state(view);
  }

  /// What set_target_state() takes, and which of them this model reads.
  using TargetKeyValues = KeyValuesView<Real>;
  using TargetFeatures = FeaturesView<Real>;
  Conditioning conditioned_on() const { return config().conditioned_on; }

  /// Whether nodes computed under one view remain valid under the next: the keys and values of a draft's only
  /// layer do not depend on its cross attention.
  bool keeps_speculation() const {
    return config().conditioned_on == Conditioning::key_values && config().layers == 1;
  }

  /// The threads. Models that are never called at the same time may share them: see LlamaOptions.
  const std::shared_ptr<ThreadTeam>& team() const { return pass().team(); }

  /// Read only; other models may share them.
  const std::shared_ptr<const LlamaWeights<Real>>& weights() const { return pass().weights(); }

  /// The logits (V) of row `index` of the last extend(), unrounded.
  std::span<const Real> logits(std::int32_t index) {
    if (index < 0 || index >= rows_)
      fail("logits: row " + std::to_string(index) + ", must be 0 to " + std::to_string(rows_ - 1));
    return {pass().logits().at(index), static_cast<std::size_t>(vocab_size())};
  }

 private:
  detail::LlamaPass<Real>& pass() { return schedule_.pass; }
  const detail::LlamaPass<Real>& pass() const { return schedule_.pass; }
  detail::LlamaStages& stages() { return schedule_.stages; }
  const detail::LlamaStages& stages() const { return schedule_.stages; }

  [[noreturn]] static void fail(const std::string& what) { throw std::invalid_argument("Llama::" + what); }

  /// Writes to `means`, which has `layers` entries, or 0 if not measured.
  std::span<const double> mean_cosines(detail::Block block, std::vector<double>& means) {
    schedule_.calculate_pending();
    if (size() == 0) return {};
    for (std::size_t l = 0; l < means.size(); ++l) {
      const Real* const of_layer = pass().cosines(block).at(static_cast<std::ptrdiff_t>(l));
      means[l] = std::accumulate(of_layer, of_layer + size(), 0.0) / size();
    }
    return means;
  }

  /// Returns `weights` after checking the options against them.
  static std::shared_ptr<const LlamaWeights<Real>> fitting(std::shared_ptr<const LlamaWeights<Real>> weights,
                                                           const LlamaOptions& options) {
    if (!weights) throw std::invalid_argument("Llama: no weights");
    const LlamaConfig& config = weights->config;
    detail::require_option("vocab_size", options.vocab_size, 0, config.vocab_size);
    for (std::size_t k = 0; k < options.feature_layers.size(); ++k)
      detail::require_option("feature_layers", options.feature_layers[k],
                             k ? options.feature_layers[k - 1] + 1 : 1, config.layers - 1);
    return weights;
  }

  void check_tokens(Tokens tokens) const {
    for (const Token token : tokens)
      if (token < 0 || token >= vocab_size())
        fail("extend or append: token " + std::to_string(token) + ", must be 0 to " +
             std::to_string(vocab_size() - 1));
  }

  void check_room(std::int32_t used, std::size_t wanted, const char* call) const {
    if (wanted > static_cast<std::size_t>(capacity() - used))
      fail(std::string(call) + ": the context is full: " + std::to_string(used) + " of capacity " +
           std::to_string(capacity()) + " tokens in use, " + std::to_string(wanted) + " more asked for");
  }

  void check_exit(std::int32_t exit) const {
    if (exit < 0 || exit >= exits())
      fail("exit " + std::to_string(exit) + ", must be 0 to " + std::to_string(exits() - 1));
  }

  void check_nodes(Tokens tokens, Nodes parents) const {
    check_tokens(tokens);
    check_parents(tokens.size(), parents);
    check_room(size() + node_count(), tokens.size(), "extend");
  }

  void check_parents(std::size_t count, Nodes parents) const {
    if (parents.size() != count)
      fail("extend: " + std::to_string(count) + " tokens and " + std::to_string(parents.size()) + " parents");
    if (count > static_cast<std::size_t>(options_.max_nodes - node_count()))
      fail("extend: " + std::to_string(node_count()) + " nodes and " + std::to_string(count) +
           " more, but max_nodes is " + std::to_string(options_.max_nodes));
    for (std::size_t i = 0; i < count; ++i)
      if (parents[i] != kNoParent && (parents[i] < 0 || parents[i] >= node_count() + static_cast<NodeId>(i)))
        fail("extend: parent " + std::to_string(parents[i]) + " of node " +
             std::to_string(node_count() + static_cast<NodeId>(i)) +
             ", must be an earlier node or kNoParent");
  }

  void add_nodes(Tokens tokens, Nodes parents, bool skips) {
    first_row_ = node_count();
    rows_ = static_cast<std::int32_t>(tokens.size());
    stages().add_nodes(tokens, parents, skips);
  }

  LogitsView rows() {
    if constexpr (std::is_same_v<Real, float>) {
      return {pass().logits().at(0), rows_, vocab_size(), pass().logits().stride};
    } else {
      for (std::int32_t r = 0; r < rows_; ++r)
        std::transform(logits(r).begin(), logits(r).end(),
                       rounded_.begin() + static_cast<std::ptrdiff_t>(r) * vocab_size(),
                       [](Real value) { return static_cast<float>(value); });
      return {rounded_.data(), rows_, vocab_size(), vocab_size()};
    }
  }

  LlamaOptions options_;
  specula::detail::Generation generation_;
  detail::LlamaSchedule<Real> schedule_;
  std::int32_t first_row_ = 0, rows_ = 0;            // of the last extend(): first node, number of rows
  SkippedBlocks skipped_;                            // blocks that the nodes skip, if any
  std::vector<double> similarity_, mlp_similarity_;  // (layers), as returned
  std::vector<float> rounded_;                       // (max_nodes, V), unless Real is float
};

using LlamaModel = Llama<float>;

}  // namespace specula::eigen
