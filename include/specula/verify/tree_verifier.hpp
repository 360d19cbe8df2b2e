// SPDX-License-Identifier: MIT
// TreeVerifier: verifies a proposal in one forward pass over its tree, with a tree mask (tree attention).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "specula/base/stats.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula {

namespace detail {

// The members of TreeVerifier and PathVerifier, so shown in the reference.
/// @endcond

/// The target, the rule and the sampling parameters. `Pass` runs the target over a proposal: it has a
/// `kName` for messages, reserve(vocab, max_nodes), run(target, tree, usage, wants_raw), which returns a row
/// per node, raw_rows(target, rows), the same before a processor (KeepsRawRows) if they were wanted, and
/// commit(target, tree, path).
template <class M, class R, class Pass>
class TargetVerifier {
  static_assert(LanguageModel<M>,
                "TreeVerifier or PathVerifier: the target is no LanguageModel: a member is missing or has "
                "another type; "
                "it is named below, and specula/model/language_model.hpp lists them all");
  static_assert(
      AcceptanceRule<R>,
      "TreeVerifier or PathVerifier: the rule is no AcceptanceRule: a member is missing or has another type; "
      "it is named below, and specula/policy/concepts.hpp lists them all");

  static_assert(check_model_members<M>());

  static constexpr bool kMerges = MergesPasses<M> && Pass::kMerges;

 public:
  /// Throws std::invalid_argument if `params` are out of range.
  TargetVerifier(M& target, R rule, SamplingParams params = {})
      : target_(&target), rule_(std::move(rule)), params_(params) {
    validate(params);
  }
  TargetVerifier(M&&, R, SamplingParams = {}) = delete;  // a temporary: the model must outlive this; name it

  static constexpr bool lossless_for(ProposalKind kind) { return R::lossless_for(kind); }  ///< the rule's
  std::int32_t vocab_size() const { return target_->vocab_size(); }  ///< size V of the vocabulary
  /// Nodes that still fit, root included.
  std::int32_t room() const { return target_->capacity() - target_->size(); }
  const void* cache_id() const { return cache_of(*target_); }  ///< the target's; see NamesItsCache
  /// Committed tokens of the target.
  std::int32_t size() const { return target_->size(); }
  /// Count of what changed the target, by any caller; empty if it does not count. See CountsChanges.
  std::optional<std::uint64_t> change_count() const {
    if constexpr (CountsChanges<M>) return target_->change_count();
    return std::nullopt;
  }
  const SamplingParams& params() const { return params_; }  ///< of the text
  /// Sets the sampling parameters of all later rounds. Throws std::invalid_argument, and changes nothing, if
  /// they are out of range.
  void set_params(const SamplingParams& params) {
    validate(params);
    params_ = params;
  }
  /// Forward passes of the target, and the nodes in them.
  const Usage& usage() const noexcept { return usage_; }

  /// Sizes the workspace for proposals of `sizes.nodes`; called by Speculator, so that run_round() need not
  /// allocate.
  void reserve(const Sizes& sizes) {
    const auto path = static_cast<std::size_t>(sizes.nodes) + 1;
    VerifyWorkspace workspace(vocab_size(), sizes.nodes);  // which checks sizes.nodes
    pass_.reserve(vocab_size(), sizes.nodes);
    result_.accepted.reserve(path);
    if (logprobs_) logprobs_->reserve(path);
    workspace_.emplace(std::move(workspace));
  }

  /// Each later run_round() records the log-probabilities of its tokens. Off by default, at no cost. Throws
  /// std::invalid_argument, and changes nothing, unless 0 <= options.top <= V. Cost: one row read per emitted
  /// token, two with likeliest tokens, and up to V * top to order those.
  void report_logprobs(const LogprobOptions& options) {
    LogprobRecorder recorder(options, vocab_size());
    recorder.reserve(result_.accepted.capacity());
    logprobs_.emplace(std::move(recorder));
  }
  void report_no_logprobs() { logprobs_.reset(); }  ///< Ends report_logprobs().
  /// Log-probabilities of the last result: of accepted[1..] and next_token. Empty if not requested, or if
  /// run_round() threw. Valid until the next call.
  Logprobs logprobs() const { return logprobs_ ? logprobs_->view() : Logprobs(); }
  void append(Tokens tokens) { target_->append(tokens); }  ///< Prefill of the target; see LanguageModel.
  /// KV cache rollback of the target; see LanguageModel.
  void truncate(std::int32_t n) { target_->truncate(n); }

  /// Runs the target, applies the rule and commits the accepted path. If anything throws, the committed
  /// context is restored. Throws std::logic_error, and changes nothing, unless the target holds the
  /// tree.origin() tokens that the proposal follows; also if the result is
  /// no path of the proposal from its root with a next token in the vocabulary. Throws std::invalid_argument
  /// for more nodes than were reserved, or if the target does not return one row per node. Cost: the target's
  /// pass, then the rule.
  template <class C>
  const VerifyResult& run_round(const TokenTree& tree, C& rng) {
    prepare(tree);
    return decide(tree, rng, [&] { return pass_.run(*target_, tree, usage_, wants_raw()); });
  }

  /// The model of many texts whose passes are the target's, null if it has passes of its own; see
  /// MergesRounds.
  const void* batch() const requires kMerges { return target_->begin_pass({}, {}).batch; }
  /// run_round() in halves, if the target's extend() has them (MergesPasses) and the proposal is one pass;
  /// see MergesRounds. Throws as run_round().
  PassRequest begin_round(const TokenTree& tree) requires kMerges {
    prepare(tree);
    target_->truncate(target_->size());  // a drafter that shares the KV cache may have left nodes in it
    began_ = pass_clock(*target_);
    return target_->begin_pass(tree.tokens(), tree.parents());
  }
  /// The second half, given the rows. Throws as run_round().
  template <class C>
  const VerifyResult& end_round(const TokenTree& tree, const LogitsView& rows, C& rng) requires kMerges {
    return decide(tree, rng, [&] {
      const PassWatch<M> watch(*target_, usage_, began_);
      const LogitsView model_rows = target_->end_pass(rows);
      ++usage_.calls;
      usage_.nodes += tree.size();
      return model_rows;
    });
  }

 private:
  bool wants_raw() const { return logprobs_ && !logprobs_->options().processed; }
  void prepare(const TokenTree& tree) {
    if (logprobs_) logprobs_->clear();
    if (target_->size() != tree.origin())
      throw std::logic_error(std::string(Pass::kName) + "::run_round: the proposal follows " +
                             std::to_string(tree.origin()) + " tokens, but the target holds " +
                             std::to_string(target_->size()) +
                             ": the drafter or another pipeline works in the same model, or it was "
                             "truncated by hand");
    if (!workspace_) reserve({.nodes = tree.capacity()});
  }
  template <class C, class Rows>
  const VerifyResult& decide(const TokenTree& tree, C& rng, Rows run) {
    const std::int32_t context = tree.origin();
    try {
      const LogitsView rows = run();
      const TargetDistributions distributions(rows, params_, *workspace_);
      decide_checked(rule_, tree, distributions, rng, result_);
      expect_sound(tree);
      if (logprobs_) {
        const LogitsView read = wants_raw() ? pass_.raw_rows(*target_, rows) : rows;
        logprobs_->record(TargetDistributions(read, params_, *workspace_), read, tree, result_);
      }
      const PassWatch<M> watch(*target_, usage_);
      pass_.commit(*target_, tree, result_.accepted);
    } catch (...) {  // a drafter on the same model must not find these nodes; commit() may have succeeded
      if (logprobs_) logprobs_->clear();
      target_->truncate(std::min(context, target_->size()));
      throw;
    }
    return result_;
  }

  /// Checks the result before the target and the text use it, since the rule may be the caller's own.
  void expect_sound(const TokenTree& tree) const {
    NodeId parent = kNoParent;
    for (const NodeId node : result_.accepted) {
      if (node <= parent || node >= tree.size() || tree.parent(node) != parent)
        throw std::logic_error(
            std::string(Pass::kName) + "::run_round: the rule's path has node " + std::to_string(node) +
            (parent == kNoParent ? ", must begin with the root, node 0"
                                 : " after node " + std::to_string(parent) + ", which has no such child"));
      parent = node;
    }
    if (parent == kNoParent)
      throw std::logic_error(std::string(Pass::kName) +
                             "::run_round: the rule's path is empty, must begin with the root, node 0");
    if (result_.next_token < 0 || result_.next_token >= tree.vocab())
      throw std::logic_error(std::string(Pass::kName) + "::run_round: the rule's next token is " +
                             std::to_string(result_.next_token) + ", the vocabulary has " +
                             std::to_string(tree.vocab()) + " tokens");
  }

  M* target_;
  R rule_;
  SamplingParams params_;
  Pass pass_;
  std::optional<VerifyWorkspace> workspace_;
  VerifyResult result_;
  std::optional<LogprobRecorder> logprobs_;  // if requested
  Usage usage_;
  double began_ = 0;  // pass_clock() at begin_round()
};

/// @cond

/// Runs the whole tree at once.
struct OnePass {
  static constexpr const char* kName = "TreeVerifier";
  static constexpr bool kMerges = true;  // the caller may run the pass
  void reserve(std::int32_t, std::int32_t) {}
  template <class M>
  LogitsView run(M& target, const TokenTree& tree, Usage& usage, bool) {
    const PassWatch<M> watch(target, usage);
    target.truncate(target.size());  // a drafter that shares the KV cache may have left nodes in it
    const LogitsView rows = target.extend(tree.tokens(), tree.parents());
    ++usage.calls;
    usage.nodes += tree.size();
    return rows;
  }
  template <class M>
  LogitsView raw_rows([[maybe_unused]] const M& target, const LogitsView& rows) const {
    if constexpr (KeepsRawRows<M>)
      if (const LogitsView raw = target.raw_rows(); raw.data) return raw;
    return rows;
  }
  template <class M>
  void commit(M& target, const TokenTree&, Nodes path) {
    target.commit(path);
  }
};

}  // namespace detail

/// A Verifier that runs a proposal in one forward pass over its tree, with a tree mask. The model is
/// referenced and must outlive the verifier. For its members see detail::TargetVerifier.
template <class M, class R>
class TreeVerifier : public detail::TargetVerifier<M, R, detail::OnePass> {
 public:
  using detail::TargetVerifier<M, R, detail::OnePass>::TargetVerifier;
};
/// TreeVerifier{target, rule, params}: references the target. Throws std::invalid_argument if `params`, the
/// sampling parameters of the text, are out of range.
template <class M, class R>
TreeVerifier(M&&, R, SamplingParams = {}) -> TreeVerifier<std::remove_reference_t<M>, R>;

}  // namespace specula
