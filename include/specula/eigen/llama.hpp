// A Llama-family decoder on the CPU: a specula::LanguageModel over a Hugging Face directory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/eigen/detail/isa.hpp"
#include "specula/eigen/detail/llama_pass.hpp"
#include "specula/eigen/llama_config.hpp"
#include "specula/eigen/llama_weights.hpp"
#include "specula/rows.hpp"

namespace specula::eigen {

struct LlamaOptions {
  std::int32_t capacity = 2048;      // tokens: committed and speculative together
  std::int32_t max_nodes = 64;       // speculative tokens at a time
  std::int32_t threads = 1;          // no bit of the logits depends on it; more than idle cores is slower
  std::int32_t prefill_chunk = 128;  // tokens of a pass of append()
  std::int32_t wide_from = 0;  // appends of so many tokens use Eigen's products, on one thread; 0: see Llama
  Isa isa = best_isa();
  Inputs inputs = Inputs::full;     // bf16: rounds what bf16 weights multiply; twice as fast, 3 digits
  bool measure_similarity = false;  // see similarity()
};

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
      : options_(checked(options)),
        pass_(given(std::move(weights)), options_.capacity, columns(options_), options_.max_nodes,
              options_.threads, options_.isa, options_.inputs, options_.wide_from != kNever,
              options_.measure_similarity) {
    const auto nodes = static_cast<std::size_t>(options_.max_nodes),
               chunk = static_cast<std::size_t>(options_.prefill_chunk);
    nodes_.reserve(nodes);
    wanted_.reserve(nodes);
    pending_.reserve(chunk);
    in_order_.resize(std::max(chunk, kLazy));
    columns_.reserve(static_cast<std::size_t>(columns(options_)));
    paths_.resize(nodes * (kLazy + nodes));
    stages_ = config().exits;
    if (stages_.empty()) stages_.push_back(config().layers);
    computed_.resize(stages_.size());
    needed_.resize(nodes);
    skipped_ = SkippedBlocks(config().layers);
    similarity_.resize(options_.measure_similarity ? static_cast<std::size_t>(config().layers) : 0);
    if constexpr (!std::is_same_v<Real, float>)
      rounded_.resize(nodes * static_cast<std::size_t>(vocab_size()));
  }

  const LlamaConfig& config() const { return pass_.config(); }
  const LlamaOptions& options() const { return options_; }
  std::int32_t vocab_size() const { return config().vocab_size; }
  std::int32_t layers() const { return config().layers; }
  /// Places where a node may stop: the last is the whole model.
  std::int32_t exits() const { return static_cast<std::int32_t>(stages_.size()); }
  /// Layers before an exit. 0 <= exit < exits().
  std::int32_t layers_to(std::int32_t exit) const { return stages_[static_cast<std::size_t>(exit)]; }
  std::int32_t size() const { return computed_[0] + static_cast<std::int32_t>(pending_.size()); }
  std::int32_t capacity() const { return options_.capacity; }
  std::int32_t node_count() const { return static_cast<std::int32_t>(nodes_.size()); }

  /// Commits `tokens` after the context and forgets all nodes. Fewer than 16 wait for the next extend(),
  /// which then reads the weights once for both; more run at once, `prefill_chunk` at a time. Throws
  /// std::invalid_argument, and changes nothing, for a token out of range or more tokens than there is room
  /// for.
  void append(Tokens tokens) {
    check_tokens(tokens);
    check_room(size(), tokens.size(), "append");
    pass_.check_view();
    generation_.next();
    nodes_.clear();
    if (tokens.size() < static_cast<std::size_t>(options_.wide_from))
      return append_chunks(tokens, detail::Product::skinny);
    flush(detail::Product::skinny);
    const std::int32_t before = size();
    try {
      append_chunks(tokens, detail::Product::wide);
    } catch (...) {  // Eigen found no memory for a temporary
      pending_.clear();
      keep(before);
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
    if (skips() && !nodes_.empty()) fail("extend: there are nodes of extend_skipping(); truncate() first");
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
      if (rows[i] < (i ? rows[i - 1] + 1 : 0) || rows[i] >= rows_ || node >= node_count() || skips())
        fail("go_on: row " + std::to_string(rows[i]) + ", must be of the last extend_to(), ascending");
      if (nodes_[static_cast<std::size_t>(node)].stages > exit)
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
    if (!nodes_.empty() && !(skips() && skipped == skipped_))
      fail("extend_skipping: there are nodes that do not skip these blocks; truncate() first");
    calculate_pending();
    pass_.check_view();
    generation_.next();
    skipped_ = skipped;
    add_nodes(tokens, parents, true);
    columns_.clear();
    for (NodeId node = first_row_; node < node_count(); ++node) push_node(node, 0);
    if (!tokens.empty())
      pass_.run(columns_, size(), size() + node_count(), 0, detail::Product::skinny, {.skipped = &skipped_});
    return rows();
  }

  /// (layers), where options().measure_similarity: the cosine between the residual stream before and after
  /// each attention block, in the mean over the context, however it came in. Empty where there is none.
  /// Calculates first what append() left waiting; O(layers * size()).
  std::span<const double> similarity() {
    calculate_pending();
    if (size() == 0) return {};
    for (std::size_t l = 0; l < similarity_.size(); ++l) {
      const Real* const cosines = pass_.cosines(static_cast<std::int32_t>(l));
      similarity_[l] = std::accumulate(cosines, cosines + size(), 0.0) / size();
    }
    return similarity_;
  }

  /// The nodes of `path`, the first below the context and each a child of the one before, join the context;
  /// all others are forgotten. Empty: all are. Moves their keys and values; calculates nothing. Throws
  /// std::invalid_argument, and changes nothing, if it is no such path.
  void commit(Nodes path) {
    if (skips() && !path.empty()) fail("commit: nodes of extend_skipping() lack what other tokens need");
    for (std::size_t i = 0; i < path.size(); ++i) {
      const NodeId node = path[i], parent = i == 0 ? kNoParent : path[i - 1];
      if (node < 0 || node >= node_count())
        fail("commit: node " + std::to_string(node) + ", must be 0 to " + std::to_string(node_count() - 1));
      if (nodes_[static_cast<std::size_t>(node)].parent != parent)
        fail("commit: node " + std::to_string(node) + " is no child of " +
             (parent == kNoParent ? "the context" : "node " + std::to_string(parent)) +
             ", must be a path from the context down");
    }
    generation_.next();
    const std::int32_t context = size();
    for (std::size_t i = 0; i < path.size(); ++i) {
      pass_.move(context + path[i], context + static_cast<std::int32_t>(i));
      // A child went no further than its parent, and nothing behind the context further than its end.
      for (std::int32_t stage = 0; stage < nodes_[static_cast<std::size_t>(path[i])].stages; ++stage)
        ++computed_[static_cast<std::size_t>(stage)];
    }
    nodes_.clear();
  }

  /// Forgets all nodes and the committed tokens from position `n` on. O(1).
  /// Throws std::invalid_argument, and changes nothing, unless 0 <= n <= size().
  void truncate(std::int32_t n) {
    if (n < 0 || n > size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " + std::to_string(size()));
    generation_.next();
    nodes_.clear();
    pending_.resize(static_cast<std::size_t>(std::max(0, n - computed_[0])));
    keep(n);
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
  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  static constexpr std::size_t kLazy =
      16;  // fewer appended tokens wait: they are nearly free in the next pass

  struct Node {
    Token token;
    NodeId parent;
    std::int32_t depth;
    std::int32_t stages;  // how many it went through
    bool skips;           // some blocks: then no stage counts
  };

  [[noreturn]] static void fail(const std::string& what) { throw std::invalid_argument("Llama::" + what); }

  static LlamaOptions checked(const LlamaOptions& options) {
    const auto require = [](const char* what, std::int32_t value, std::int32_t least, std::int32_t most) {
      if (value < least || value > most)
        throw std::invalid_argument(std::string("LlamaOptions::") + what + " is " + std::to_string(value) +
                                    ", must be " + std::to_string(least) + " to " + std::to_string(most));
    };
    require("capacity", options.capacity, 1, 1 << 24);
    require("max_nodes", options.max_nodes, 1, 1024);
    require("threads", options.threads, 1, 256);
    require("prefill_chunk", options.prefill_chunk, 1, 4096);
    require("wide_from", options.wide_from, 0, kNever);
    if (options.isa > best_isa())
      throw std::invalid_argument("LlamaOptions::isa: this machine does not have these instructions");
    if (options.inputs == Inputs::bf16 && !(std::is_same_v<Real, float> && has_bf16_products()))
      throw std::invalid_argument(
          "LlamaOptions::inputs is bf16, which takes AVX512_BF16 and a model that calculates in float");
    LlamaOptions result = options;
    if (result.wide_from == 0)
      result.wide_from = std::is_same_v<Real, float> && options.isa != Isa::portable ? kNever : 16;
    if (result.threads > 1) result.wide_from = kNever;  // Eigen may throw, and a team's members may not
    return result;
  }

  /// Of a pass: a chunk of an append, or all nodes and the tokens that waited.
  static std::int32_t columns(const LlamaOptions& options) {
    return std::max(options.prefill_chunk, options.max_nodes + static_cast<std::int32_t>(kLazy));
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

  std::int32_t computed(std::int32_t stage) const { return computed_[static_cast<std::size_t>(stage)]; }
  /// Committed tokens that have yet to go through a stage.
  std::int32_t waiting(std::int32_t stage) const { return size() - computed(stage); }
  detail::PassPart part(std::int32_t stage) const {
    return {.first_layer = stage ? stages_[static_cast<std::size_t>(stage - 1)] : 0,
            .last_layer = stages_[static_cast<std::size_t>(stage)]};
  }
  bool skips() const { return !nodes_.empty() && nodes_.back().skips; }

  void add_nodes(Tokens tokens, Nodes parents, bool skips) {
    first_row_ = node_count();
    rows_ = static_cast<std::int32_t>(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i)
      nodes_.push_back({tokens[i], parents[i],
                        parents[i] == kNoParent ? 0 : nodes_[static_cast<std::size_t>(parents[i])].depth + 1,
                        0, skips});
  }

  /// Brings the nodes in wanted_ to an exit, with their ancestors and the committed tokens that did not get
  /// there; logits of wanted_ alone.
  void deepen(std::int32_t exit, bool aside) {
    std::fill_n(needed_.begin(), node_count(), false);
    for (const NodeId node : wanted_)
      for (NodeId up = node; up != kNoParent && !needed_[static_cast<std::size_t>(up)];
           up = nodes_[static_cast<std::size_t>(up)].parent)
        needed_[static_cast<std::size_t>(up)] = true;
    for (const NodeId node : wanted_) needed_[static_cast<std::size_t>(node)] = false;
    for (std::int32_t stage = 0; stage <= exit; ++stage) {
      if (waiting(stage) > static_cast<std::int32_t>(kLazy)) catch_up(stage, detail::Product::skinny);
      columns_.clear();
      push_waiting(stage, waiting(stage));
      const auto push = [&](NodeId node) {
        if (nodes_[static_cast<std::size_t>(node)].stages != stage) return;
        push_node(node, stage);
        ++nodes_[static_cast<std::size_t>(node)].stages;
      };
      for (NodeId node = 0; node < node_count(); ++node)
        if (needed_[static_cast<std::size_t>(node)]) push(node);
      const auto first_row = static_cast<std::int32_t>(columns_.size());
      for (const NodeId node : wanted_) push(node);
      const auto all = static_cast<std::int32_t>(columns_.size());
      detail::PassPart part = this->part(stage);
      part.aside = aside;
      pass_.run(columns_, computed(stage), size() + node_count(), stage == exit ? first_row : all,
                detail::Product::skinny, part);
      settle(stage);
    }
  }

  /// Adds a column that sees `base` slots and then `path`, its own slot last.
  void push_column(Token token, std::int32_t position, std::int32_t base,
                   std::span<const std::int32_t> path) {
    std::int32_t in_order = 0;
    while (static_cast<std::size_t>(in_order) < path.size() &&
           path[static_cast<std::size_t>(in_order)] == base + in_order)
      ++in_order;
    columns_.push_back(
        {token, position, path.back(), path.data(), static_cast<std::int32_t>(path.size()), in_order});
  }

  /// The first `count` tokens that wait for a stage, in the slots behind the computed context: each path is a
  /// part of one.
  void push_waiting(std::int32_t stage, std::int32_t count) {
    const std::int32_t base = computed(stage);
    for (std::int32_t i = 0; i < count; ++i) in_order_[static_cast<std::size_t>(i)] = base + i;
    for (std::int32_t i = 0; i < count; ++i)
      push_column(stage == 0 ? pending_[static_cast<std::size_t>(i)] : kNoToken, base + i, base,
                  std::span(in_order_).first(static_cast<std::size_t>(i) + 1));
  }

  /// Behind the tokens that push_waiting() has pushed for this stage.
  void push_node(NodeId node, std::int32_t stage) {
    const std::size_t waiting = static_cast<std::size_t>(this->waiting(stage)),
                      stride = kLazy + static_cast<std::size_t>(options_.max_nodes);
    const Node& own = nodes_[static_cast<std::size_t>(node)];
    const auto path = std::span(paths_).subspan(static_cast<std::size_t>(node) * stride,
                                                waiting + static_cast<std::size_t>(own.depth) + 1);
    std::copy_n(in_order_.begin(), waiting, path.begin());
    auto at = path.size();
    for (NodeId ancestor = node; ancestor != kNoParent;
         ancestor = nodes_[static_cast<std::size_t>(ancestor)].parent)
      path[--at] = size() + ancestor;
    push_column(own.token, size() + own.depth, computed(stage), path);
  }

  void calculate_pending() {
    if (!pending_.empty()) pass_.check_view();
    flush(detail::Product::skinny);
  }

  /// Calculates all that committed tokens lack.
  void flush(detail::Product product) {
    for (std::int32_t stage = 0; stage < exits(); ++stage) catch_up(stage, product);
  }
  void catch_up(std::int32_t stage, detail::Product product) {
    while (waiting(stage) > 0) {
      const std::int32_t count = std::min(waiting(stage), options_.prefill_chunk);
      columns_.clear();
      push_waiting(stage, count);
      pass_.run(columns_, computed(stage), computed(stage) + count, count, product, part(stage));
      settle(stage, count);
    }
  }

  /// The tokens that wait for a stage, or the first of them, have gone through it.
  void settle(std::int32_t stage) { settle(stage, waiting(stage)); }
  void settle(std::int32_t stage, std::int32_t count) {
    if (stage == 0) pending_.erase(pending_.begin(), pending_.begin() + count);
    computed_[static_cast<std::size_t>(stage)] += count;
  }

  /// Committed tokens from `n` on are gone.
  void keep(std::int32_t n) {
    for (std::int32_t& tokens : computed_) tokens = std::min(tokens, n);
  }

  void append_chunks(Tokens tokens, detail::Product product) {
    for (std::size_t done = 0; done < tokens.size();) {
      const auto room = static_cast<std::size_t>(options_.prefill_chunk) - pending_.size(),
                 count = std::min(room, tokens.size() - done);
      pending_.insert(pending_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(done),
                      tokens.begin() + static_cast<std::ptrdiff_t>(done + count));
      done += count;
      const bool full = pending_.size() == static_cast<std::size_t>(options_.prefill_chunk);
      if (full || product == detail::Product::wide || pending_.size() >= kLazy) flush(product);
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
  std::vector<std::int32_t> stages_;  // the layers before each exit
  std::vector<std::int32_t>
      computed_;  // (stages), committed tokens that went through it: their keys are in the cache
  std::vector<Token> pending_;  // committed tokens behind those of the first stage
  std::vector<Node> nodes_;
  std::int32_t first_row_ = 0, rows_ = 0;  // of the last extend(): its first node, how many
  SkippedBlocks skipped_;                  // what the nodes skip, if they do
  std::vector<double> similarity_;         // (layers), what similarity() returned

  std::vector<detail::PassColumn> columns_;  // of the pass being prepared
  std::vector<NodeId> wanted_;               // of the call: nodes whose rows it asks for
  std::vector<std::uint8_t> needed_;         // (max_nodes), their ancestors
  std::vector<std::int32_t> in_order_;       // (prefill_chunk), the slots behind the computed context
  std::vector<std::int32_t>
      paths_;  // (max_nodes, 16 + max_nodes), slots of the waiting tokens, then the ancestors'
  std::vector<float> rounded_;  // (max_nodes, V), where Real is no float
};

using LlamaModel = Llama<float>;

}  // namespace specula::eigen
