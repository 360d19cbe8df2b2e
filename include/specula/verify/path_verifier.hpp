// SPDX-License-Identifier: MIT
// PathVerifier: verifies a proposal path by path, for models without a tree mask.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "specula/base/stats.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/language_model.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/verify/tree_verifier.hpp"

namespace specula {

namespace detail {
/// Runs one path from the root to a leaf after the other.
class PathPasses {
 public:
  static constexpr const char* kName = "PathVerifier";
  static constexpr bool kMerges = false;

  void reserve(std::int32_t vocab, std::int32_t max_nodes) {
    const auto nodes = static_cast<std::size_t>(max_nodes);
    rows_.resize(nodes * static_cast<std::size_t>(vocab));
    line_.reserve(nodes), tokens_.reserve(nodes), parents_.reserve(nodes), known_.reserve(nodes);
  }

  template <class M>
  LogitsView run(M& target, const TokenTree& tree, Usage& usage, bool wants_raw) {
    const auto nodes = static_cast<std::size_t>(tree.size());
    const auto vocab = static_cast<std::size_t>(target.vocab_size());
    if (nodes * vocab > rows_.size())  // rows are copied before the rule checks them
      throw std::invalid_argument("PathVerifier: a proposal of " + std::to_string(nodes) +
                                  " nodes, a workspace for " + std::to_string(rows_.size() / vocab));
    known_.assign(nodes, false);
    raw_.resize(KeepsRawRows<M> && wants_raw ? rows_.size() : 0);
    for (NodeId node = 0; node < tree.size(); ++node)
      if (tree.first_child(node) == kNoParent) run_to(target, tree, node, usage);
    return {rows_.data(), tree.size(), target.vocab_size(), target.vocab_size()};
  }

  template <class M>
  LogitsView raw_rows(const M&, const LogitsView& rows) const {
    return raw_.empty() ? rows : LogitsView{raw_.data(), rows.rows, rows.vocab, rows.stride};
  }

  template <class M>
  void commit(M& target, const TokenTree& tree, Nodes path) {
    const bool loaded = path.size() <= line_.size() && std::equal(path.begin(), path.end(), line_.begin());
    tokens_.clear(), parents_.clear();
    for (const NodeId node : path) {
      parents_.push_back(static_cast<NodeId>(tokens_.size()));  // node numbers of the last pass
      tokens_.push_back(tree.token(node));
    }
    if (loaded) return target.commit(parents_);
    target.truncate(target.size());
    target.append(tokens_);
  }

 private:
  /// One pass over the path to `leaf`; keeps the rows of nodes that no earlier path contained.
  template <class M>
  void run_to(M& target, const TokenTree& tree, NodeId leaf, Usage& usage) {
    line_.clear(), tokens_.clear(), parents_.clear();
    for (NodeId node = leaf; node != kNoParent; node = tree.parent(node)) line_.push_back(node);
    std::reverse(line_.begin(), line_.end());
    for (const NodeId node : line_) {
      parents_.push_back(static_cast<NodeId>(tokens_.size()) - 1);
      tokens_.push_back(tree.token(node));
    }
    LogitsView rows;
    {
      const PassWatch<M> watch(target, usage);
      target.truncate(target.size());  // drops the earlier path
      rows = target.extend(tokens_, parents_);
    }
    ++usage.calls;
    usage.nodes += static_cast<std::int64_t>(line_.size());
    expect_rows("PathVerifier: the target", rows, line_.size(), target.vocab_size(), "for a path of");
    LogitsView raw = rows;
    if constexpr (KeepsRawRows<M>)
      if (const LogitsView before = target.raw_rows(); before.data) raw = before;
    for (std::size_t i = 0; i < line_.size(); ++i) {
      const auto node = static_cast<std::size_t>(line_[i]);
      if (known_[node]) continue;
      const auto keep = [&](const LogitsView& from, std::vector<float>& to) {
        const auto row = from.row(static_cast<std::int32_t>(i));
        std::copy(row.begin(), row.end(), to.begin() + static_cast<std::ptrdiff_t>(node * row.size()));
      };
      keep(rows, rows_);
      if (!raw_.empty()) keep(raw, raw_);
      known_[node] = true;
    }
  }

  std::vector<float> rows_;    // (N, V) after each node of the proposal
  std::vector<float> raw_;     // (N, V) the same before a processor, if wanted; else empty
  std::vector<NodeId> line_;   // the nodes of the last pass, root first
  std::vector<Token> tokens_;  // their tokens
  std::vector<NodeId> parents_;
  std::vector<char> known_;  // (N) whether the row is stored
};
}  // namespace detail

/// A Verifier for a LanguageModel that runs chains only: recurrent models, engines without a tree mask.
/// extend() is called with one path from the root to a leaf at a time, each parent the node before. Rows
/// are copied, and the rule decides as in a TreeVerifier: the results are the same, token for token, if the
/// model's rows are the same alone and in a batch.
///
/// Cost: one pass per leaf, over its whole path; a chain costs one pass, as in a TreeVerifier. usage()
/// counts a node once per path that contains it. The accepted path is committed if it was run last (a
/// chain's always was), else appended, which a lazy model merges into its next pass. Memory: one row per
/// node, two if log-probabilities of a KeepsRawRows model are reported. The model is referenced and must
/// outlive the verifier. For its members see detail::TargetVerifier.
template <class M, class R>
class PathVerifier : public detail::TargetVerifier<M, R, detail::PathPasses> {
 public:
  using detail::TargetVerifier<M, R, detail::PathPasses>::TargetVerifier;
};
/// PathVerifier{target, rule, params}: references the target. Throws std::invalid_argument if `params`, the
/// sampling parameters of the text, are out of range.
template <class M, class R>
PathVerifier(M&&, R, SamplingParams = {}) -> PathVerifier<std::remove_reference_t<M>, R>;

}  // namespace specula
