// The target judges a proposal in one masked forward over its tree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "../concepts.hpp"
#include "../stats.hpp"
#include "logprobs.hpp"

namespace specula {

/// The target, the rule and how rows become laws. The model is referenced and must outlive the verifier.
template <LanguageModel M, AcceptanceRule R>
class TreeVerifier {
 public:
  /// Throws std::invalid_argument if `params` are out of range.
  TreeVerifier(M& target, R rule, SamplingParams params = {})
      : target_(&target), rule_(rule), params_(params) {
    validate(params);
  }
  TreeVerifier(M&&, R, SamplingParams = {}) = delete;

  static constexpr bool exact_for(DraftLaw law) { return R::exact_for(law); }
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
  const Usage& usage() const { return usage_; }

  /// Sizes the workspace for proposals of `max_nodes`; called by Speculator, so that verify() need not
  /// allocate.
  void reserve(std::int32_t max_nodes) {
    workspace_.emplace(vocab_size(), max_nodes);
    verdict_.path.reserve(static_cast<std::size_t>(max_nodes) + 1);
    if (logprobs_) logprobs_->reserve(verdict_.path.capacity());
  }

  /// From now on each verify() leaves the log-probabilities of its tokens. Off at first, and then without
  /// cost. Throws std::invalid_argument unless 0 <= options.top <= V. Cost: one read of a row per emitted
  /// token, two with likeliest ones.
  void report_logprobs(const LogprobOptions& options) {
    logprobs_.emplace(options, vocab_size());
    logprobs_->reserve(verdict_.path.capacity());
  }
  void report_no_logprobs() { logprobs_.reset(); }
  /// Of the last verdict: of path[1..] and next. Empty if none were asked for, or verify() threw. Valid until
  /// the next call.
  Logprobs logprobs() const { return logprobs_ ? logprobs_->view() : Logprobs(); }
  void append(Tokens tokens) { target_->append(tokens); }
  void truncate(std::int32_t n) { target_->truncate(n); }

  /// One forward over the tree, the rule's verdict, and its path committed. If anything throws, the committed
  /// context is what it was. Throws std::logic_error, having changed nothing, unless the target holds the
  /// tree.origin() tokens that the proposal follows. Cost: one pass of the target, then the rule's.
  template <ChanceSource C>
  const Verdict& verify(const TokenTree& tree, C& chance) {
    const std::int32_t context = target_->size();
    if (context != tree.origin())
      throw std::logic_error("TreeVerifier::verify: the proposal follows " + std::to_string(tree.origin()) +
                             " tokens, but the target holds " + std::to_string(context) +
                             ": the drafter or another pipeline works in the same model, or it was "
                             "truncated by hand");
    if (!workspace_) reserve(tree.capacity());
    if (logprobs_) logprobs_->clear();
    try {
      const RowsView rows = timed([&] {
        target_->truncate(target_->size());  // a drafter that shares the cache may have left nodes behind
        return target_->extend(tree.tokens(), tree.parents());
      });
      ++usage_.calls;
      usage_.nodes += tree.size();
      const TargetLaws laws(rows, params_, *workspace_);
      rule_.verify(tree, laws, chance, verdict_);
      if (logprobs_) logprobs_->record(laws, rows, tree, verdict_);
      timed([&] { target_->commit(verdict_.path); });
    } catch (...) {  // nor may that drafter take these nodes for its own; commit() may have done its work
      if (logprobs_) logprobs_->clear();
      target_->truncate(std::min(context, target_->size()));
      throw;
    }
    return verdict_;
  }

 private:
  template <class F>
  auto timed(F f) {
    const detail::Stopwatch watch(usage_.seconds);
    return f();
  }

  M* target_;
  R rule_;
  SamplingParams params_;
  std::optional<VerifyWorkspace> workspace_;
  Verdict verdict_;
  std::optional<detail::LogprobRecorder> logprobs_;  // if asked for
  Usage usage_;
};

}  // namespace specula
