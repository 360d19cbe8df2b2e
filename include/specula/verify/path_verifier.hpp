// The target judges a proposal path by path: for models that cannot run a tree in one pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../concepts.hpp"
#include "../detail/alive.hpp"
#include "../detail/expect_rows.hpp"
#include "../stats.hpp"

namespace specula {

/// A Verifier for a LanguageModel that takes chains only: recurrent models, engines without a tree mask.
/// extend() is called with one path from the root to a leaf at a time, each parent the node before. Rows are
/// copied, and the rule decides as it does in a TreeVerifier: the same verdicts, token for token, if the
/// model's rows are the same alone and in a batch.
///
/// Cost: one pass for each leaf, over its whole path: a chain costs one pass, as in a TreeVerifier. The
/// accepted path is committed if it was run last (a chain's always was), else appended, which a lazy model
/// merges into its next pass. Memory: a row for each node. The model is referenced and must outlive the
/// verifier.
template <class M, class R>
class PathVerifier {
  static_assert(
      LanguageModel<M>,
      "PathVerifier: the target is no LanguageModel: a member is missing or has another type; it is named "
      "below, and specula/concepts.hpp lists them all");
  static_assert(
      AcceptanceRule<R>,
      "PathVerifier: the rule is no AcceptanceRule: a member is missing or has another type; it is named "
      "below, and specula/concepts.hpp lists them all");

 public:
  /// Throws std::invalid_argument if `params` are out of range.
  PathVerifier(M& target, R rule, SamplingParams params = {})
      : target_(&target), rule_(rule), params_(params) {
    validate(params);
  }
  PathVerifier(M&&, R, SamplingParams = {}) = delete;

  static constexpr bool exact_for(DraftLaw law) { return R::exact_for(law); }
  std::int32_t vocab_size() const { return target_->vocab_size(); }
  std::int32_t room() const { return target_->capacity() - target_->size(); }
  const M& target() const { return *target_; }
  /// Committed tokens of the target, and where it counts them the calls that changed it.
  std::int32_t size() const { return target_->size(); }
  std::uint64_t generation() const requires CountsChanges<M> { return target_->generation(); }
  const SamplingParams& params() const { return params_; }
  /// Passes, and the nodes in them: one that several paths share counts for each.
  const Usage& usage() const { return usage_; }

  /// Sizes the workspace for proposals of `max_nodes`, so that verify() need not allocate.
  void reserve(std::int32_t max_nodes) {
    const auto nodes = static_cast<std::size_t>(max_nodes);
    workspace_.emplace(vocab_size(), max_nodes);
    rows_.resize(nodes * static_cast<std::size_t>(vocab_size()));
    line_.reserve(nodes), tokens_.reserve(nodes), parents_.reserve(nodes), known_.reserve(nodes);
    verdict_.path.reserve(nodes + 1);
  }
  void append(Tokens tokens) { target_->append(tokens); }
  void truncate(std::int32_t n) { target_->truncate(n); }

  /// The passes, the rule's verdict, and its path committed. Throws std::logic_error if the target does not
  /// hold the proposal's context, std::invalid_argument for more nodes than were reserved, or if the target
  /// does not give a row for each. If anything throws, the committed context is what it was.
  template <class C>
  const Verdict&(verify)(const TokenTree& tree, C& chance) {
    alive_.expect("PathVerifier");
    if (!workspace_) reserve(tree.capacity());
    const auto vocab = static_cast<std::size_t>(vocab_size());
    if (static_cast<std::size_t>(tree.size()) * vocab > rows_.size())  // rows are copied before the rule looks
      throw std::invalid_argument("PathVerifier: a proposal of " + std::to_string(tree.size()) +
                                  " nodes, a workspace for " + std::to_string(rows_.size() / vocab));
    const std::int32_t before = target_->size();
    if (before != tree.origin())
      throw std::logic_error("PathVerifier: the target holds " + std::to_string(before) +
                             " tokens, the proposal's context has " + std::to_string(tree.origin()));
    try {
      known_.assign(static_cast<std::size_t>(tree.size()), false);
      for (NodeId node = 0; node < tree.size(); ++node)
        if (tree.first_child(node) == kNoParent) run_to(tree, node);
      const RowsView rows{rows_.data(), tree.size(), vocab_size(), vocab_size()};
      (rule_.verify)(tree, TargetLaws(rows, params_, *workspace_), chance, verdict_);
      timed([&] { commit(tree); });
    } catch (...) {
      target_->truncate(std::min(before, target_->size()));
      throw;
    }
    return verdict_;
  }

 private:
  /// One pass over the path to `leaf`; keeps the rows of nodes that no path before it had.
  void run_to(const TokenTree& tree, NodeId leaf) {
    line_.clear(), tokens_.clear(), parents_.clear();
    for (NodeId node = leaf; node != kNoParent; node = tree.parent(node)) line_.push_back(node);
    std::reverse(line_.begin(), line_.end());
    for (const NodeId node : line_) {
      parents_.push_back(static_cast<NodeId>(tokens_.size()) - 1);
      tokens_.push_back(tree.token(node));
    }
    const RowsView rows = timed([&] {
      target_->truncate(target_->size());  // the path before
      return target_->extend(tokens_, parents_);
    });
    ++usage_.calls;
    usage_.nodes += static_cast<std::int64_t>(line_.size());
    detail::expect_rows("PathVerifier: the target", rows, line_.size(), vocab_size(), "for a path of");
    for (std::size_t i = 0; i < line_.size(); ++i) {
      const auto node = static_cast<std::size_t>(line_[i]);
      if (known_[node]) continue;
      const auto row = rows.row(static_cast<std::int32_t>(i));
      std::copy(row.begin(), row.end(), rows_.begin() + static_cast<std::ptrdiff_t>(node * row.size()));
      known_[node] = true;
    }
  }

  void commit(const TokenTree& tree) {
    const std::vector<NodeId>& path = verdict_.path;
    const bool loaded = path.size() <= line_.size() && std::equal(path.begin(), path.end(), line_.begin());
    tokens_.clear(), parents_.clear();
    for (const NodeId node : path) {
      parents_.push_back(static_cast<NodeId>(tokens_.size()));  // numbers of the last pass
      tokens_.push_back(tree.token(node));
    }
    if (loaded) return target_->commit(parents_);
    target_->truncate(target_->size());
    target_->append(tokens_);
  }

  template <class F>
  auto timed(F f) {
    const detail::Stopwatch watch(usage_.seconds);
    return f();
  }

  M* target_;
  R rule_;
  SamplingParams params_;
  std::optional<VerifyWorkspace> workspace_;
  std::vector<float> rows_;    // (N, V) after each node of the proposal
  std::vector<NodeId> line_;   // the nodes of the last pass, root first
  std::vector<Token> tokens_;  // theirs
  std::vector<NodeId> parents_;
  std::vector<char> known_;  // (N) whether the row is there
  Verdict verdict_;
  detail::Alive alive_;
  Usage usage_;
};

}  // namespace specula
