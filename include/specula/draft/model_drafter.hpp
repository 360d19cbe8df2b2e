// SPDX-License-Identifier: MIT
// Draft model: any LanguageModel as a drafter, with its KV cache kept in sync with the text.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/stats.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/policy/concepts.hpp"

namespace specula {

namespace detail {
/// Runs every node through all layers of the model.
struct WholeModel {
  template <class M>
  LogitsView operator()(M& model, Tokens tokens, Nodes parents, NodeId, Usage& usage) const {
    const LogitsView rows = model.extend(tokens, parents);
    usage.layers += static_cast<double>(tokens.size()) * layers_of(model);
    return rows;
  }
};
}  // namespace detail

///   specula::ModelDrafter drafter{draft};
///
/// Drafts with a smaller model of the same vocabulary. Accepted draft tokens are kept in its KV cache;
/// missing tokens are appended, and a lazy model runs them with its next extend(). The model is referenced
/// and must outlive the drafter. Nothing else may call it during a text, neither a verifier nor another
/// drafter. `Forward` runs the nodes; it receives the number of the first, counted since sync().
/// **Draws.** Nothing.
/// **Cost.** One pass of the model per extend(), and per sync() unless lazy. Allocates when constructed only.
/// **Throws.** std::invalid_argument on a shorter context, std::logic_error if other code has used the model.
/// **Source.** Leviathan et al. 2023.
template <class M, class Forward = detail::WholeModel>
class ModelDrafter {
  static_assert(
      LanguageModel<M>,
      "ModelDrafter: the draft is no LanguageModel: a member is missing or has another type; it is named "
      "below, and specula/model/language_model.hpp lists them all");

  static_assert(detail::check_model_members<M>());

  static constexpr bool kMerges = MergesPasses<M> && std::same_as<Forward, detail::WholeModel>;

 public:
  /// References `model`; tokens that it holds are the context so far.
  explicit ModelDrafter(M& model, Forward forward = {})
      : model_(&model), forward_(std::move(forward)), known_(model.size()) {
    const auto room = static_cast<std::size_t>(model.capacity());
    tail_.reserve(room);
    rest_.reserve(room);
    path_.reserve(room);
    tokens_.reserve(room);
    parents_.reserve(room);
    record_change_count();
  }
  ModelDrafter(M&&, Forward = {}) = delete;  // a temporary: the model must outlive this; name it

  std::int32_t vocab_size() const { return model_->vocab_size(); }  ///< size V of the vocabulary
  std::int32_t capacity() const { return model_->capacity(); }      ///< tokens and nodes that it can hold
  const Usage& usage() const noexcept { return usage_; }            ///< calls, nodes and seconds so far
  /// Tokens of the context that the model holds.
  std::int32_t known() const { return known_; }
  const Forward& forward() const { return forward_; }                 ///< what runs the nodes
  const void* cache_id() const { return detail::cache_of(*model_); }  ///< see NamesItsCache

  /// KV cache rollback: drops all nodes, and committed tokens from `n` on; all committed tokens if the model
  /// has changed since, or may have: if it does not count changes.
  void truncate(std::int32_t n) {
    known_ = change_count_ && is_unchanged() ? std::min(n, known_) : 0;
    drop_speculation();
  }
  /// Drops all nodes and draft tokens.
  void drop_speculation() {
    model_->truncate(known_);
    tail_.clear();
    forget_nodes();
    record_change_count();
  }

  /// Throws std::logic_error if the model's size, or its change count, shows that other code has used it
  /// since this drafter's last call. sync() calls this first.
  void expect_unchanged() const {
    if (!is_unchanged())
      throw std::logic_error("ModelDrafter::sync: the draft model holds " + std::to_string(model_->size()) +
                             " tokens, this drafter left " + std::to_string(held_tokens()) +
                             (model_->size() == held_tokens() ? ", and it was called since" : "") +
                             ": a verifier, another drafter or another pipeline works in the same model; "
                             "truncate(0) or Speculator::start() begins anew");
  }

  /// Brings the model to `context` followed by `draft_tokens`. Requires that `context` extends the last one.
  /// Changes nothing if it throws. Cost: O(new tokens, draft tokens and nodes), and a pass unless lazy.
  void sync(Tokens context, Tokens draft_tokens) {
    if (context.size() < static_cast<std::size_t>(known_))
      throw std::invalid_argument("ModelDrafter::sync: a context of " + std::to_string(context.size()) +
                                  " tokens after one of " + std::to_string(known_) + "; truncate first");
    expect_unchanged();
    const detail::PassWatch<M> watch(*model_, usage_);
    const Tokens fresh = context.subspan(static_cast<std::size_t>(known_));
    const std::size_t total = fresh.size() + draft_tokens.size();
    const auto at = [&](std::size_t i) {
      return i < fresh.size() ? fresh[i] : draft_tokens[i - fresh.size()];
    };
    if (unfinished_) {  // the last call threw, and may have left nodes that are not in tokens_, or tokens
      model_->truncate(held_tokens());
      forget_nodes();
    }
    unfinished_ = true;
    std::size_t kept = 0;  // tokens after known_ that the model holds already
    while (kept < tail_.size() && kept < total && tail_[kept] == at(kept)) ++kept;
    if (kept < tail_.size()) {
      model_->truncate(known_ + static_cast<std::int32_t>(kept));  // drops the nodes too
    } else if (!tokens_.empty()) {
      path_.clear();
      for (NodeId from = kNoParent; kept < total; ++kept) {  // accepted draft tokens
        const NodeId hit = child(from, at(kept));
        if (hit == kNoParent) break;
        path_.push_back(from = hit);
      }
      model_->commit(path_);
    }
    rest_.clear();
    for (std::size_t i = kept; i < total; ++i) rest_.push_back(at(i));
    forget_nodes();
    known_ +=
        static_cast<std::int32_t>(std::min(kept, fresh.size()));  // if append() throws, the model holds this
    tail_.assign(draft_tokens.begin(),
                 draft_tokens.begin() + static_cast<std::ptrdiff_t>(kept - std::min(kept, fresh.size())));
    if (!rest_.empty()) model_->append(rest_);
    known_ = static_cast<std::int32_t>(context.size());
    tail_.assign(draft_tokens.begin(), draft_tokens.end());
    if constexpr (TakesContext<M>) model_->set_context(known_);
    record_change_count();
  }

  /// Rows after new nodes; see Drafter. Cost: one pass of the model.
  LogitsView extend(Tokens tokens, Nodes parents) {
    const detail::PassWatch<M> watch(*model_, usage_);
    unfinished_ = true;
    const LogitsView rows = forward_(*model_, tokens, parents, static_cast<NodeId>(tokens_.size()), usage_);
    ran(tokens, parents);
    return rows;
  }

  /// extend() in halves, if the model's has them; see MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) requires kMerges {
    const PassRequest request = model_->begin_pass(tokens, parents);
    if (!request.batch || tokens.empty()) return request;
    asked_ = request;
    unfinished_ = true;
    began_ = detail::pass_clock(*model_);
    return request;
  }
  /// The second half.
  LogitsView end_pass(const LogitsView& rows) requires kMerges {
    const detail::PassWatch<M> watch(*model_, usage_, began_);
    const LogitsView model_rows = model_->end_pass(rows);
    usage_.layers += static_cast<double>(asked_.tokens.size()) * detail::layers_of(*model_);
    ran(asked_.tokens, asked_.parents);
    return model_rows;
  }

 private:
  void ran(Tokens tokens, Nodes parents) {
    record_change_count();
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    parents_.insert(parents_.end(), parents.begin(), parents.end());
    ++usage_.calls;
    usage_.nodes += static_cast<std::int64_t>(tokens.size());
  }
  NodeId child(NodeId parent, Token token) const {
    for (std::size_t c = 0; c < tokens_.size(); ++c)
      if (parents_[c] == parent && tokens_[c] == token) return static_cast<NodeId>(c);
    return kNoParent;
  }
  void forget_nodes() {
    tokens_.clear();
    parents_.clear();
  }
  /// Committed tokens that the model holds at the end of a call, or after one that threw.
  std::int32_t held_tokens() const { return known_ + static_cast<std::int32_t>(tail_.size()); }
  void record_change_count() {
    unfinished_ = false;
    if constexpr (CountsChanges<M>) change_count_ = model_->change_count();
  }
  bool is_unchanged() const {
    if (unfinished_) return model_->size() >= held_tokens();
    if constexpr (CountsChanges<M>)
      if (model_->change_count() != change_count_) return false;
    return model_->size() == held_tokens();
  }

  M* model_;
  [[no_unique_address]] Forward forward_;
  std::int32_t known_;              // committed tokens that the model holds
  std::vector<Token> tail_, rest_;  // draft tokens committed after those; tokens still to append
  std::vector<NodeId> path_;
  std::vector<Token> tokens_;  // its nodes since the last sync
  std::vector<NodeId> parents_;
  bool unfinished_ = false;                    // the last call threw
  std::optional<std::uint64_t> change_count_;  // the model's at the end of the last call, if it counts
  Usage usage_;
  PassRequest asked_;  // of begin_pass()
  double began_ = 0;   // pass_clock() then
};

}  // namespace specula
