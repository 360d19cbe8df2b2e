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

#include "specula/eigen/detail/llama_pass.hpp"
#include "specula/eigen/detail/llama_stages.hpp"
#include "specula/eigen/llama_config.hpp"
#include "specula/eigen/llama_options.hpp"
#include "specula/eigen/llama_weights.hpp"
#include "specula/rows.hpp"

namespace specula::eigen {

/// Real is what it calculates in: float, or double as a reference.
///
/// **Bits.** The logits of a node depend on the tokens from the start of the context to it, and on nothing
/// else: not on how many nodes share a call, the order or shape of the tree, the calls it was grown in, the
/// slots its ancestors lie in, how the context came in (append or commit, in which pieces), or the threads.
/// (For one isa, inputs, Real and build.) The exception is an append of at least `wide_from` tokens, which
/// runs through Eigen's products and rounds differently. By default (0) that is never so for float with AVX2
/// or AVX-512, where the panel product is also the faster one for a long prompt, and from 16 tokens on
/// otherwise.
///
/// All memory is allocated by the constructor: append(), extend() and its kin, commit() and truncate()
/// allocate nothing (but for Eigen's own temporaries in a wide append). One model serves one sequence;
/// several models may share their weights. Not for concurrent calls.
template <class Real = float>
class Llama {
  static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);

 public:
  /// Loads a directory with config.json and model.safetensors (or shards and their index).
  /// Throws std::runtime_error for a bad file (load_llama_weights), std::invalid_argument for bad options.
  explicit Llama(const std::filesystem::path& directory, const LlamaOptions& options = {})
      : Llama(std::make_shared<const LlamaWeights<Real>>(load_llama_weights<Real>(directory)), options) {}

  /// From weights in memory. Throws std::invalid_argument for an option out of range, or no weights.
  explicit Llama(std::shared_ptr<const LlamaWeights<Real>> weights, const LlamaOptions& options = {})
      : options_(detail::checked<Real>(options)),
        pass_(given(std::move(weights)), options_.capacity, detail::pass_columns(options_),
              options_.max_nodes, options_.threads, options_.isa, options_.inputs,
              options_.wide_from != detail::kNeverWide, options_.measure_similarity,
              options_.measure_mlp_similarity),
        stages_(exits_of(config()), options_) {
    detail::require_option("vocab_size", options_.vocab_size, 0, config().vocab_size);
    if (options_.vocab_size == 0) options_.vocab_size = config().vocab_size;
    const auto nodes = static_cast<std::size_t>(options_.max_nodes);
    wanted_.reserve(nodes);
    needed_.resize(nodes);
    skipped_ = SkippedBlocks(config().layers);
    similarity_.resize(options_.measure_similarity ? static_cast<std::size_t>(config().layers) : 0);
    mlp_similarity_.resize(options_.measure_mlp_similarity ? static_cast<std::size_t>(config().layers) : 0);
    if constexpr (!std::is_same_v<Real, float>)
      rounded_.resize(nodes * static_cast<std::size_t>(vocab_size()));
  }

  const LlamaConfig& config() const { return pass_.config(); }
  const LlamaOptions& options() const { return options_; }
  /// Tokens of a row: options().vocab_size, or all that the weights have.
  std::int32_t vocab_size() const { return options_.vocab_size; }
  std::int32_t layers() const { return config().layers; }
  /// Places where a node may stop: the last is the whole model.
  std::int32_t exits() const { return stages_.count(); }
  /// Layers before an exit. 0 <= exit < exits().
  std::int32_t layers_to(std::int32_t exit) const { return stages_.layers_to(exit); }
  std::int32_t size() const { return stages_.size(); }
  std::int32_t capacity() const { return options_.capacity; }
  std::int32_t node_count() const { return stages_.node_count(); }
  /// Calls that changed this model; see CountsChanges. Views are of one generation.
  std::uint64_t generation() const { return generation_.now(); }

  /// Commits `tokens` after the context and forgets all nodes. Fewer than 16 wait for the next extend(),
  /// which then reads the weights once for both; more run at once, `prefill_chunk` at a time. Throws
  /// std::invalid_argument, and changes nothing, for a token out of range or more tokens than there is room
  /// for.
  void append(Tokens tokens) {
    check_tokens(tokens);
    check_room(size(), tokens.size(), "append");
    pass_.check_view();
    generation_.next();
    stages_.clear_nodes();
    if (tokens.size() < static_cast<std::size_t>(options_.wide_from))
      return append_chunks(tokens, detail::Product::skinny);
    flush(detail::Product::skinny);
    const std::int32_t before = size();
    try {
      append_chunks(tokens, detail::Product::wide);
    } catch (...) {  // Eigen found no memory for a temporary
      stages_.truncate(before);
      throw;
    }
  }

  /// Adds one node for each token, under `parents`: earlier nodes, also of this call, or kNoParent for the
  /// end of the context. A node sees the context, its ancestors and itself; its position is size() plus its
  /// depth. Returns the logits (n, V) of the new nodes, valid until the next call. One pass over the weights
  /// for up to 8 nodes. Throws std::invalid_argument, and changes nothing, for a bad token or parent, too
  /// many nodes, or a full context.
  RowsView extend(Tokens tokens, Nodes parents) { return extend_to(tokens, parents, exits() - 1); }

  /// The same through the layers before an exit only: rows of the model that ends there, bit for bit. What
  /// the upper layers lack, committed or not, is caught up with in the pass that first needs it (more than 16
  /// tokens in passes before it). Throws also for an exit that there is not. Cost: the layers and the head.
  RowsView extend_to(Tokens tokens, Nodes parents, std::int32_t exit) {
    check_exit(exit);
    check_nodes(tokens, parents);
    if (stages_.skips()) fail("extend: there are nodes of extend_skipping(); truncate() first");
    pass_.check_view();
    generation_.next();
    add_nodes(tokens, parents, false);
    wanted_.clear();
    for (NodeId node = first_row_; node < node_count(); ++node) wanted_.push_back(node);
    if (!tokens.empty()) deepen(exit, false);
    return rows();
  }

  /// Some rows of the last extend_to() go on to a later exit; `rows`, ascending, says which. Returns all of
  /// its rows, those changed. Throws std::invalid_argument, and changes nothing, for a row or an exit that
  /// there is not, or that was passed, by a node below the row too. Cost: the layers between, and the head.
  RowsView go_on(std::span<const std::int32_t> rows, std::int32_t exit) {
    check_exit(exit);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const NodeId node = first_row_ + rows[i];
      if (rows[i] < (i ? rows[i - 1] + 1 : 0) || rows[i] >= rows_ || node >= node_count() || stages_.skips())
        fail("go_on: row " + std::to_string(rows[i]) + ", must be of the last extend_to(), ascending");
      if (stages_.node(node).stages > exit)
        fail("go_on: row " + std::to_string(rows[i]) + " is beyond exit " + std::to_string(exit));
    }
    generation_.next();
    wanted_.clear();
    for (const std::int32_t row : rows) wanted_.push_back(first_row_ + row);
    if (!rows.empty()) deepen(exit, true);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(pass_.aside().at(static_cast<std::ptrdiff_t>(i)), pass_.logits().stride,
                  pass_.logits().at(rows[i]));
    return this->rows();
  }

  /// extend() without some blocks: a draft of the model by itself, in its own cache. Such nodes cannot be
  /// committed, all live ones must leave out the same, and the next append() or truncate() forgets them; no
  /// committed slot is written. What append() left waiting is calculated first. Throws as extend() does.
  /// Cost: a pass without those blocks.
  RowsView extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& skipped) {
    if (skipped.layers() != layers() || skipped.mlp.size() != skipped.attention.size())
      fail("extend_skipping: blocks of " + std::to_string(skipped.layers()) + " layers, the model has " +
           std::to_string(layers()));
    check_nodes(tokens, parents);
    if (node_count() > 0 && !(stages_.skips() && skipped == skipped_))
      fail("extend_skipping: there are nodes that do not skip these blocks; truncate() first");
    calculate_pending();
    pass_.check_view();
    generation_.next();
    skipped_ = skipped;
    add_nodes(tokens, parents, true);
    stages_.start_columns(0, 0);
    for (NodeId node = first_row_; node < node_count(); ++node) stages_.push_node(node, 0);
    if (!tokens.empty())
      pass_.run(stages_.columns(), size(), size() + node_count(), 0, detail::Product::skinny,
                {.skipped = &skipped_});
    return rows();
  }

  /// (layers), where options().measure_similarity: the cosine between the residual stream before and after
  /// each attention block, in the mean over the context, however it came in. Empty where there is none.
  /// Calculates first what append() left waiting; O(layers * size()).
  std::span<const double> similarity() {
    return mean_cosines(similarity_, [&](std::int32_t l) { return pass_.cosines(l); });
  }
  /// The same around each MLP block, where options().measure_mlp_similarity.
  std::span<const double> mlp_similarity() {
    return mean_cosines(mlp_similarity_, [&](std::int32_t l) { return pass_.mlp_cosines(l); });
  }

  /// The nodes of `path`, the first below the context and each a child of the one before, join the context;
  /// all others are forgotten. Empty: all are. Moves their keys and values; calculates nothing. Throws
  /// std::invalid_argument, and changes nothing, if it is no such path.
  void commit(Nodes path) {
    if (stages_.skips() && !path.empty())
      fail("commit: nodes of extend_skipping() lack what other tokens need");
    for (std::size_t i = 0; i < path.size(); ++i) {
      const NodeId node = path[i], parent = i == 0 ? kNoParent : path[i - 1];
      if (node < 0 || node >= node_count())
        fail("commit: node " + std::to_string(node) + ", must be 0 to " + std::to_string(node_count() - 1));
      if (stages_.node(node).parent != parent)
        fail("commit: node " + std::to_string(node) + " is no child of " +
             (parent == kNoParent ? "the context" : "node " + std::to_string(parent)) +
             ", must be a path from the context down");
    }
    generation_.next();
    const std::int32_t context = size();
    for (std::size_t i = 0; i < path.size(); ++i)
      pass_.move(context + path[i], context + static_cast<std::int32_t>(i));
    stages_.commit(path);
  }

  /// Forgets all nodes and the committed tokens from position `n` on. O(1).
  /// Throws std::invalid_argument, and changes nothing, unless 0 <= n <= size().
  void truncate(std::int32_t n) {
    if (n < 0 || n > size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " + std::to_string(size()));
    generation_.next();
    stages_.truncate(n);
  }

  /// What a draft that looks at keys and values is given. Calculates first what append() left waiting, so
  /// that the view has all size() tokens. It is valid until the next call but this and features().
  KeyValuesView<Real> key_values() {
    calculate_pending();
    return {pass_.cache, size(), specula::detail::ViewGuard(generation_)};
  }
  /// The hidden states that enter the LM head, for a head that looks at them; otherwise as key_values().
  FeaturesView<Real> features() {
    calculate_pending();
    return {pass_.features().at(0), size(), config().hidden_size, pass_.features().stride,
            specula::detail::ViewGuard(generation_)};
  }

  /// What the tokens from now on see of the target: a model that looks into one is given its view before
  /// every round. A token at position i sees keys and values of the tokens before it, as far as there are
  /// any, and takes the feature of the token before it, or its parent's own where the target has none yet.
  /// Throws std::invalid_argument if this model does not look at that or is made for a target of another
  /// shape.
  void look_into(const KeyValuesView<Real>& view) {
    const TargetShape& own = config().target;
    if (config().looks_at != LooksAt::key_values)
      fail("look_into: this model does not look at keys and values");
    const auto same = [&](const char* what, std::int32_t made_for, std::int32_t given) {
      if (made_for != given)
        fail("look_into: made for a target with " + std::string(what) + " " + std::to_string(made_for) +
             ", given one with " + std::to_string(given));
    };
    same("num_hidden_layers", own.layers, view.cache().layers());
    same("num_key_value_heads", own.kv_heads, view.cache().heads());
    same("head_dim", own.head_dim, view.cache().head_dim());
    pass_.look_into(view);
  }
  void look_into(const FeaturesView<Real>& view) {
    if (config().looks_at != LooksAt::features) fail("look_into: this model does not look at features");
    if (view.width() != config().hidden_size)
      fail("look_into: features of width " + std::to_string(view.width()) + ", the model's hidden size is " +
           std::to_string(config().hidden_size));
    pass_.look_into(view);
  }

  /// Whether what was calculated under one view is right under the next: the keys and values of a draft's
  /// only layer do not depend on what its cross attention sees.
  bool keeps_speculation() const { return config().looks_at == LooksAt::key_values && config().layers == 1; }

  /// Read only, to be shared with other models.
  const std::shared_ptr<const LlamaWeights<Real>>& weights() const { return pass_.weights(); }

  /// The logits (V) of row `index` of the last extend(), unrounded.
  std::span<const Real> logits(std::int32_t index) {
    if (index < 0 || index >= rows_)
      fail("logits: row " + std::to_string(index) + ", must be 0 to " + std::to_string(rows_ - 1));
    return {pass_.logits().at(index), static_cast<std::size_t>(vocab_size())};
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw std::invalid_argument("Llama::" + what); }

  /// `cosines(layer)` are by slot; their means go to `means` (layers), if it has room.
  template <class Cosines>
  std::span<const double> mean_cosines(std::vector<double>& means, Cosines cosines) {
    calculate_pending();
    if (size() == 0) return {};
    for (std::size_t l = 0; l < means.size(); ++l) {
      const Real* const of_layer = cosines(static_cast<std::int32_t>(l));
      means[l] = std::accumulate(of_layer, of_layer + size(), 0.0) / size();
    }
    return means;
  }

  static std::vector<std::int32_t> exits_of(const LlamaConfig& config) {
    return config.exits.empty() ? std::vector{config.layers} : config.exits;
  }

  static std::shared_ptr<const LlamaWeights<Real>> given(std::shared_ptr<const LlamaWeights<Real>> weights) {
    if (!weights) throw std::invalid_argument("Llama: no weights");
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
    stages_.add_nodes(tokens, parents, skips);
  }

  /// Brings the nodes in wanted_ to an exit, with their ancestors and the committed tokens that did not get
  /// there; logits of wanted_ alone.
  void deepen(std::int32_t exit, bool aside) {
    std::fill_n(needed_.begin(), node_count(), false);
    for (const NodeId node : wanted_)
      for (NodeId up = node; up != kNoParent && !needed_[static_cast<std::size_t>(up)];
           up = stages_.node(up).parent)
        needed_[static_cast<std::size_t>(up)] = true;
    for (const NodeId node : wanted_) needed_[static_cast<std::size_t>(node)] = false;
    for (std::int32_t stage = 0; stage <= exit; ++stage) {
      if (stages_.waiting(stage) > detail::kLazyTokens) catch_up(stage, detail::Product::skinny);
      const std::int32_t waiting = stages_.waiting(stage);
      stages_.start_columns(stage, waiting);
      const auto push = [&](NodeId node) {
        if (stages_.node(node).stages != stage) return;
        stages_.push_node(node, stage);
        stages_.pass_stage(node);
      };
      for (NodeId node = 0; node < node_count(); ++node)
        if (needed_[static_cast<std::size_t>(node)]) push(node);
      const auto first_row = static_cast<std::int32_t>(stages_.columns().size());
      for (const NodeId node : wanted_) push(node);
      const auto all = static_cast<std::int32_t>(stages_.columns().size());
      detail::PassPart part = stages_.part(stage);
      part.aside = aside;
      pass_.run(stages_.columns(), stages_.computed(stage), size() + node_count(),
                stage == exit ? first_row : all, detail::Product::skinny, part);
      stages_.settle(stage, waiting);
    }
  }

  void calculate_pending() {
    if (stages_.pending() > 0) pass_.check_view();
    flush(detail::Product::skinny);
  }

  /// Calculates all that committed tokens lack.
  void flush(detail::Product product) {
    for (std::int32_t stage = 0; stage < exits(); ++stage) catch_up(stage, product);
  }
  void catch_up(std::int32_t stage, detail::Product product) {
    while (stages_.waiting(stage) > 0) {
      const std::int32_t count = std::min(stages_.waiting(stage), options_.prefill_chunk),
                         base = stages_.computed(stage);
      stages_.start_columns(stage, count);
      pass_.run(stages_.columns(), base, base + count, count, product, stages_.part(stage));
      stages_.settle(stage, count);
    }
  }

  void append_chunks(Tokens tokens, detail::Product product) {
    while (!tokens.empty()) {
      const auto count =
          std::min(static_cast<std::size_t>(options_.prefill_chunk - stages_.pending()), tokens.size());
      stages_.append(tokens.first(count));
      tokens = tokens.subspan(count);
      const bool full = stages_.pending() == options_.prefill_chunk;
      if (full || product == detail::Product::wide || stages_.pending() >= detail::kLazyTokens)
        flush(product);
    }
  }

  RowsView rows() {
    if constexpr (std::is_same_v<Real, float>) {
      return {pass_.logits().at(0), rows_, vocab_size(), pass_.logits().stride};
    } else {
      for (std::int32_t r = 0; r < rows_; ++r)
        std::transform(logits(r).begin(), logits(r).end(),
                       rounded_.begin() + static_cast<std::ptrdiff_t>(r) * vocab_size(),
                       [](Real value) { return static_cast<float>(value); });
      return {rounded_.data(), rows_, vocab_size(), vocab_size()};
    }
  }

  LlamaOptions options_;
  detail::LlamaPass<Real> pass_;
  specula::detail::Generation generation_;
  detail::LlamaStages stages_;
  std::int32_t first_row_ = 0, rows_ = 0;            // of the last extend(): its first node, how many
  SkippedBlocks skipped_;                            // what the nodes skip, if they do
  std::vector<double> similarity_, mlp_similarity_;  // (layers), what was returned

  std::vector<NodeId> wanted_;        // of the call: nodes whose rows it asks for
  std::vector<std::uint8_t> needed_;  // (max_nodes), their ancestors
  std::vector<float> rounded_;        // (max_nodes, V), where Real is no float
};

using LlamaModel = Llama<float>;

}  // namespace specula::eigen
