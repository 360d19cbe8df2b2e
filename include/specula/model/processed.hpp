// SPDX-License-Identifier: MIT
// A logits processor around a model: penalties, logit biases, grammar masks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"

namespace specula {

namespace detail {

/// What Processed has of a draft that is conditioned on a target. A base class, since AnyModel asks whether
/// there is a set_target_state().
template <class Self, class M>
struct ProcessedDraft {};
template <class Self, class M>
  requires TargetConditioned<M>
struct ProcessedDraft<Self, M> : KeyValuesOf<M, TakesKeyValues<M>>, FeaturesOf<M, TakesFeatures<M>> {
  template <class View>
    requires TakesView<M, View>
  void set_target_state(const View& view) { static_cast<Self*>(this)->model_->set_target_state(view); }
  Conditioning conditioned_on() const { return static_cast<const Self*>(this)->model_->conditioned_on(); }
  bool keeps_speculation() const { return static_cast<const Self*>(this)->model_->keeps_speculation(); }
};

}  // namespace detail

/// A LanguageModel whose rows are those of `M`, rewritten by `process(path, row)`:
///
///   path  Tokens            every token before the row: the context, the node's ancestors, the node itself
///   row   std::span<float>  (V) the logits after it, changed in place
///
/// A node of a tree sees its own path, so the text has the distribution of plain decoding with the same
/// processor. This requires that `process` is a pure function of its arguments: no counters, no state from
/// earlier calls. A masked token gets -infinity; at least one token must keep a finite logit. Give the
/// draft the same processor, so that its draft tokens respect the mask too.
///
/// `process` is not called for a node whose token it has given -infinity after the parent, nor for the nodes
/// below: no exact rule reaches them. Their rows are the model's own. So a grammar never sees a path that it
/// has excluded. That holds for draft tokens of another drafter, too, which a drafter hands over by append()
/// and set_context(): before a node below them is processed, `process` is called on the path before each of
/// them, with a row of zeros, up to the first that it excludes. The text itself is never asked about: a
/// prompt may be anything, and the target's own processor allows what follows it.
///
/// The model is referenced and must outlive this object; only this object may change it. Cost of extend():
/// a copy of each row, and O(context + depth) per path that `process` reads; after draft tokens of another
/// drafter also O(V) and a path for each of them, once. Memory: rows of max_nodes nodes, and one more; with
/// more nodes at a time it allocates, once. It has the optional capabilities of the model: rows of early
/// exits, of skipped blocks and of merged passes are processed too, and views are passed on. A parameter of
/// `process` may change between two texts: the prefix that start() keeps is of the model's keys and values,
/// which do not depend on it.
template <class M, class F>
class Processed : public detail::ProcessedDraft<Processed<M, F>, M> {
  static_assert(
      LanguageModel<M>,
      "Processed: the model is no LanguageModel: a member is missing or has another type; it is named "
      "below, and specula/model/language_model.hpp lists them all");
  static_assert(
      requires(F & process, Tokens path, std::span<float> row) { process(path, row); },
      "Processed: the processor must be callable as process(Tokens path, std::span<float> row)");
  static_assert(detail::check_model_members<M>());

 public:
  /// Empties the model. Throws std::invalid_argument unless max_nodes is in [1, 2^24).
  Processed(M& model, F process, std::int32_t max_nodes = 64) : model_(&model), process_(std::move(process)) {
    detail::expect_in("Processed: max_nodes", max_nodes, 1, detail::kMaxNodes);
    model.truncate(0);
    const auto room = static_cast<std::size_t>(model.capacity());
    text_.reserve(2 * room);  // the context, and a path
    nodes_.reserve(room);
    rows_.resize(static_cast<std::size_t>(max_nodes) * static_cast<std::size_t>(model.vocab_size()));
    asked_.resize(static_cast<std::size_t>(model.vocab_size()));
  }
  Processed(M&&, F, std::int32_t = 64) = delete;  // a temporary: the model must outlive this; name it

  std::int32_t vocab_size() const { return model_->vocab_size(); }    ///< size V of the vocabulary
  std::int32_t size() const { return model_->size(); }                ///< committed tokens
  std::int32_t capacity() const { return model_->capacity(); }        ///< tokens and nodes that it can hold
  const void* cache_id() const { return detail::cache_of(*model_); }  ///< the model's; see NamesItsCache
  /// Count of what changed the model; see CountsChanges.
  auto change_count() const requires CountsChanges<M> { return model_->change_count(); }
  /// See TimesItself; without the time of `process`.
  auto pass_seconds() const requires TimesItself<M> { return model_->pass_seconds(); }
  /// See SkipsLayers.
  std::int32_t layers() const requires SkipsLayers<M> { return model_->layers(); }
  /// See SkipsLayers.
  std::int32_t node_count() const requires SkipsLayers<M> { return model_->node_count(); }
  /// See SkipsLayers.
  std::span<const double> attention_similarity() requires SkipsLayers<M> {
    return model_->attention_similarity();
  }
  /// See ExitsEarly.
  std::int32_t exits() const requires ExitsEarly<M> { return model_->exits(); }
  /// See ExitsEarly.
  std::int32_t layers_to(std::int32_t exit) const requires ExitsEarly<M> { return model_->layers_to(exit); }
  /// Views for drafts that are conditioned on the target: only of committed tokens, which are the model's.
  auto key_values() requires ExposesKeyValues<M> { return model_->key_values(); }
  /// See ExposesFeatures.
  auto features() requires ExposesFeatures<M> { return model_->features(); }

  /// The model's own rows of the last extend(); see KeepsRawRows.
  LogitsView raw_rows() const { return raw_; }

  /// Throws what the model throws, and as extend().
  void append(Tokens tokens) {
    expect_in_step();
    model_->append(tokens);
    nodes_.clear();
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    context_ = text_.size();
  }
  /// See TakesContext. Throws std::invalid_argument unless 0 <= n <= size().
  void set_context(std::int32_t n) {
    detail::expect_in("Processed::set_context: n", n, 0, static_cast<std::int32_t>(text_.size()));
    if constexpr (TakesContext<M>) model_->set_context(n);
    context_ = static_cast<std::size_t>(n);
    allowed_ = std::max(allowed_, std::min(context_ + 1, text_.size()));
  }

  /// Throws std::logic_error, having changed nothing, if the model's number of tokens differs from what this
  /// object recorded: the processor would read another text. (truncate() to the tokens that both hold
  /// repairs this.) Throws what the model throws; std::invalid_argument if the model does not return one
  /// row per token; std::runtime_error naming the node if the processor throws, with nodes numbered from
  /// the last append(), commit() or truncate(), or the proposal's token. In the last two cases the nodes are
  /// kept, as after a successful call.
  LogitsView extend(Tokens tokens, Nodes parents) {
    return add(tokens, parents, [&] { return model_->extend(tokens, parents); });
  }
  /// extend() in halves; see MergesPasses. Throws what the model throws, and std::logic_error as extend().
  PassRequest begin_pass(Tokens tokens, Nodes parents) requires MergesPasses<M> {
    if (tokens.empty()) return model_->begin_pass(tokens, parents);  // a question, perhaps within a pass
    expect_in_step();
    asked_tokens_ = tokens, asked_parents_ = parents;
    return model_->begin_pass(tokens, parents);
  }
  /// The second half: processes the rows. Throws as extend().
  LogitsView end_pass(const LogitsView& rows) requires MergesPasses<M> {
    return add(asked_tokens_, asked_parents_, [&] { return model_->end_pass(rows); });
  }
  /// See SkipsLayers; throws as extend().
  LogitsView extend_skipping(Tokens tokens, Nodes parents,
                             const SkippedBlocks& skipped) requires SkipsLayers<M> {
    return add(tokens, parents, [&] { return model_->extend_skipping(tokens, parents, skipped); });
  }
  /// See ExitsEarly; throws as extend().
  LogitsView extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit) requires ExitsEarly<M> {
    return add(tokens, parents, [&] { return model_->extend_to_exit(tokens, parents, exit); });
  }
  /// See ExitsEarly; throws as extend().
  LogitsView resume_to_exit(std::span<const std::int32_t> rows, std::int32_t exit) requires ExitsEarly<M> {
    expect_in_step();
    const LogitsView raw = model_->resume_to_exit(rows, exit);
    detail::expect_rows("Processed: the model", raw, nodes_.size() - static_cast<std::size_t>(first_),
                        vocab_size());
    keep_raw(raw);
    for (const std::int32_t row : rows) process(raw, row);
    return last_rows(raw);
  }

  /// Throws what the model throws, and as extend(); std::invalid_argument for a node that does not exist.
  void commit(Nodes path) {
    expect_in_step();
    for (const NodeId node : path)
      if (node < 0 || static_cast<std::size_t>(node) >= nodes_.size())
        throw std::invalid_argument("Processed::commit: node " + std::to_string(node) + " of " +
                                    std::to_string(nodes_.size()));
    model_->commit(path);
    for (const NodeId n : path) {
      const Node& node = nodes_[static_cast<std::size_t>(n)];
      if (!node.excluded && allowed_ == text_.size()) ++allowed_;
      text_.push_back(node.token);
    }
    nodes_.clear();
    context_ = text_.size();
  }
  /// KV cache rollback: keeps the first `n` committed tokens. Throws what the model throws.
  void truncate(std::int32_t n) {
    model_->truncate(n);
    nodes_.clear();
    text_.resize(std::min(text_.size(), static_cast<std::size_t>(n)));
    context_ = text_.size();
    allowed_ = std::min(allowed_, context_);
    asked_at_ = 0;
  }

 private:
  friend detail::ProcessedDraft<Processed, M>;
  struct Node {
    Token token;
    NodeId parent;
    bool excluded = false;  // by the processor, or below such a node
  };

  void expect_in_step() const {
    if (static_cast<std::size_t>(model_->size()) != text_.size())
      throw std::logic_error("Processed: the model holds " + std::to_string(model_->size()) +
                             " tokens, this wrapper knows " + std::to_string(text_.size()) +
                             ": something else used the model, the wrapper was copied or moved from, or a "
                             "call of the model threw midway; truncate(0) begins anew");
  }
  template <class Pass>
  LogitsView add(Tokens tokens, Nodes parents, Pass pass) {
    expect_in_step();
    const LogitsView raw = pass();
    first_ = static_cast<NodeId>(nodes_.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) nodes_.push_back({tokens[i], parents[i]});
    detail::expect_rows("Processed: the model", raw, tokens.size(), vocab_size());
    keep_raw(raw);
    rows_.resize(std::max(rows_.size(), nodes_.size() * static_cast<std::size_t>(raw.vocab)));
    for (std::int32_t i = 0; i < raw.rows; ++i) {
      Node& node = nodes_[static_cast<std::size_t>(first_ + i)];
      node.excluded = excludes(node.parent, node.token);
      process(raw, i);
    }
    return last_rows(raw);
  }
  void keep_raw(const LogitsView& raw) {
    raw_ = raw;
    if constexpr (KeepsRawRows<M>)
      if (const LogitsView before = model_->raw_rows(); before.data) raw_ = before;
  }
  float* row_of(NodeId node) {
    return rows_.data() + static_cast<std::size_t>(node) * static_cast<std::size_t>(raw_.vocab);
  }
  LogitsView last_rows(const LogitsView& raw) { return {row_of(first_), raw.rows, raw.vocab, raw.vocab}; }
  bool excludes(NodeId parent, Token token) {
    if (parent == kNoParent) return text_excludes(token);
    return nodes_[static_cast<std::size_t>(parent)].excluded || is_masked(row_of(parent)[token]);
  }
  /// Whether `token` or a draft token before it is excluded. The round's root and the text are not.
  bool text_excludes(Token token) {
    if (context_ >= text_.size()) return false;
    for (; allowed_ < text_.size(); ++allowed_) {
      ask(allowed_);
      if (is_masked(asked_[static_cast<std::size_t>(text_[allowed_])])) return true;
    }
    ask(allowed_);
    return is_masked(asked_[static_cast<std::size_t>(token)]);
  }
  /// Sets asked_ to what the processor makes of zeros after the first `n` tokens.
  void ask(std::size_t n) {
    if (asked_at_ == n) return;
    asked_at_ = 0;
    std::fill(asked_.begin(), asked_.end(), 0.0f);
    try {
      process_(Tokens(text_).first(n), asked_);
    } catch (const std::exception& e) {
      throw std::runtime_error("Processed: the processor threw after token " +
                               std::to_string(n - context_ - 1) + " of the proposal: " + e.what());
    }
    asked_at_ = n;
  }
  static bool is_masked(float logit) { return logit == -std::numeric_limits<float>::infinity(); }
  /// Row `i` of the last pass.
  void process(const LogitsView& raw, std::int32_t i) {
    const NodeId node = first_ + i;
    const std::span<float> row(row_of(node), static_cast<std::size_t>(raw.vocab));
    const std::span<const float> from = raw.row(i);
    std::copy(from.begin(), from.end(), row.begin());
    if (!nodes_[static_cast<std::size_t>(node)].excluded) process(node, row);
  }
  /// Appends the node's path to the context, the node's own token last, and removes it again.
  void process(NodeId node, std::span<float> row) {
    const std::size_t context = text_.size();
    for (NodeId n = node; n != kNoParent; n = nodes_[static_cast<std::size_t>(n)].parent)
      text_.push_back(nodes_[static_cast<std::size_t>(n)].token);
    std::reverse(text_.begin() + static_cast<std::ptrdiff_t>(context), text_.end());
    try {
      process_(Tokens(text_), row);
    } catch (const std::exception& e) {
      text_.resize(context);
      throw std::runtime_error("Processed: the processor threw at node " + std::to_string(node) + ": " +
                               e.what());
    } catch (...) {
      text_.resize(context);
      throw;
    }
    text_.resize(context);
  }

  M* model_;
  F process_;
  std::vector<Token> text_;   // the committed tokens
  std::size_t context_ = 0;   // of these are the text; the next is the round's root, then come draft tokens
  std::size_t allowed_ = 0;   // tokens before the first draft token that is excluded, or not asked about yet
  std::size_t asked_at_ = 0;  // tokens before asked_; 0: none
  std::vector<float> asked_;  // (V) the processor's answer
  std::vector<Node> nodes_;
  NodeId first_ = 0;         // the node of the last pass's first row
  std::vector<float> rows_;  // (nodes, V)
  LogitsView raw_;           // of the last pass
  Tokens asked_tokens_;      // of begin_pass()
  Nodes asked_parents_;      // likewise
};

}  // namespace specula
