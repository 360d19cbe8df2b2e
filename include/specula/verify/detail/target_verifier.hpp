// What verifiers share that hold a target and a rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "specula/base/alive.hpp"
#include "specula/concepts.hpp"
#include "specula/stats.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula::detail {

/// The target, the rule and how rows become distributions. `Pass` is how the target reads a proposal: it has
/// a `kName` for messages, reserve(vocab, max_nodes), run(target, tree, usage), which gives a row for each
/// node, and commit(target, tree, path).
template <class M, class R, class Pass>
class TargetVerifier {
 public:
  static constexpr bool lossless_for(ProposalKind kind) { return R::lossless_for(kind); }
  std::int32_t vocab_size() const { return target_->vocab_size(); }
  std::int32_t room() const { return target_->capacity() - target_->size(); }
  const M& target() const { return *target_; }
  /// Committed tokens of the target.
  std::int32_t size() const { return target_->size(); }
  /// Calls that changed the target, whoever made them.
  std::uint64_t generation() const requires CountsChanges<M> { return target_->generation(); }
  const SamplingParams& params() const { return params_; }
  /// For the rounds from now on. Throws std::invalid_argument, and changes nothing, if out of range.
  void set_params(const SamplingParams& params) {
    validate(params);
    params_ = params;
  }
  /// Passes of the target, and the nodes in them.
  const Usage& usage() const { return usage_; }

  /// Sizes the workspace for proposals of `max_nodes`; called by Speculator, so that verify() need not
  /// allocate.
  void reserve(std::int32_t max_nodes) {
    const auto path = static_cast<std::size_t>(max_nodes) + 1;
    VerifyWorkspace workspace(vocab_size(), max_nodes);  // which looks at max_nodes
    pass_.reserve(vocab_size(), max_nodes);
    result_.accepted.reserve(path);
    if (logprobs_) logprobs_->reserve(path);
    workspace_.emplace(std::move(workspace));
  }

  /// From now on each verify() leaves the log-probabilities of its tokens. Off at first, and then without
  /// cost. Throws std::invalid_argument, and changes nothing, unless 0 <= options.top <= V. Cost: one read of
  /// a row per emitted token, two with likeliest ones, and up to V * top to order those.
  void report_logprobs(const LogprobOptions& options) {
    LogprobRecorder recorder(options, vocab_size());
    recorder.reserve(result_.accepted.capacity());
    logprobs_.emplace(std::move(recorder));
  }
  void report_no_logprobs() { logprobs_.reset(); }
  /// Of the last verification result: of path[1..] and next. Empty if none were asked for, or verify() threw.
  /// Valid until the next call.
  Logprobs logprobs() const { return logprobs_ ? logprobs_->view() : Logprobs(); }
  void append(Tokens tokens) { target_->append(tokens); }
  void truncate(std::int32_t n) { target_->truncate(n); }

  /// The target's rows, the rule's verification result, and its path committed. If anything throws, the
  /// committed context is what it was. Throws std::logic_error, having changed nothing, unless the target
  /// holds the tree.origin() tokens that the proposal follows, and where this object was moved from; also if
  /// the verification result is no path of the proposal from its root, with a token of the vocabulary after
  /// it. Throws std::invalid_argument for more nodes than were reserved, or if the target does not give a row
  /// for each. Cost: what the target takes, then the rule.
  template <class C>
  const VerifyResult&(verify)(const TokenTree& tree, C& rng) {
    alive_.expect(Pass::kName);
    if (logprobs_) logprobs_->clear();
    const std::int32_t context = target_->size();
    if (context != tree.origin())
      throw std::logic_error(std::string(Pass::kName) + "::verify: the proposal follows " +
                             std::to_string(tree.origin()) + " tokens, but the target holds " +
                             std::to_string(context) +
                             ": the drafter or another pipeline works in the same model, or it was "
                             "truncated by hand");
    if (!workspace_) reserve(tree.capacity());
    try {
      const LogitsView rows = pass_.run(*target_, tree, usage_);
      const TargetDistributions distributions(rows, params_, *workspace_);
      (rule_.verify)(tree, distributions, rng, result_);
      expect_sound(tree);
      if (logprobs_) logprobs_->record(distributions, rows, tree, result_);
      const Stopwatch watch(usage_.seconds);
      pass_.commit(*target_, tree, result_.accepted);
    } catch (...) {  // a drafter may not take these nodes for its own; commit() may have done its work
      if (logprobs_) logprobs_->clear();
      target_->truncate(std::min(context, target_->size()));
      throw;
    }
    return result_;
  }

 protected:
  /// Throws std::invalid_argument if `params` are out of range.
  TargetVerifier(M& target, const R& rule, const SamplingParams& params)
      : target_(&target), rule_(rule), params_(params) {
    validate(params);
  }

 private:
  /// A rule may be anybody's: what it says is looked at before the target and the text follow it.
  void expect_sound(const TokenTree& tree) const {
    NodeId parent = kNoParent;
    for (const NodeId node : result_.accepted) {
      if (node <= parent || node >= tree.size() || tree.parent(node) != parent)
        throw std::logic_error(
            std::string(Pass::kName) + "::verify: the rule's path has node " + std::to_string(node) +
            (parent == kNoParent ? ", must begin with the root, node 0"
                                 : " after node " + std::to_string(parent) + ", which has no such child"));
      parent = node;
    }
    if (parent == kNoParent)
      throw std::logic_error(std::string(Pass::kName) +
                             "::verify: the rule's path is empty, must begin with the root, node 0");
    if (result_.next_token < 0 || result_.next_token >= tree.vocab())
      throw std::logic_error(std::string(Pass::kName) + "::verify: the rule's next token is " +
                             std::to_string(result_.next_token) + ", the vocabulary has " +
                             std::to_string(tree.vocab()) + " tokens");
  }

  M* target_;
  R rule_;
  SamplingParams params_;
  Pass pass_;
  std::optional<VerifyWorkspace> workspace_;
  VerifyResult result_;
  std::optional<LogprobRecorder> logprobs_;  // if asked for
  Alive alive_;
  Usage usage_;
};

}  // namespace specula::detail
