// SPDX-License-Identifier: MIT
// Assembles a Pipeline from a verifier, a drafter and a shape.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/run/speculator.hpp"
#include "specula/runtime/any_model.hpp"
#include "specula/runtime/any_rule.hpp"
#include "specula/runtime/any_shape.hpp"
#include "specula/runtime/factory.hpp"
#include "specula/runtime/parse_parts.hpp"
#include "specula/runtime/spec.hpp"
#include "specula/verify/tree_verifier.hpp"

namespace specula {

/// A Speculator as a Pipeline. `drafters` names the drafter, or the members of its stack; empty for plain
/// decoding.
template <class V, class D, class S>
class PipelineOf final : public Pipeline {
 public:
  /// Throws what the Speculator's constructor throws.
  PipelineOf(V verifier, D drafter, S shape, std::vector<std::string> drafters)
      : run_(std::move(verifier), std::move(drafter), std::move(shape)), drafters_(std::move(drafters)) {}

  void start(Tokens prompt) override { run_.start(prompt); }  ///< see Speculator::start()
  /// See Speculator::step().
  Tokens step(PhiloxRandom& rng, Tokens stop = {}) override { return run_.step(rng, stop); }
  void forget() override { run_.forget(); }                    ///< see Speculator::forget()
  std::int32_t room() const override { return run_.room(); }   ///< see Speculator::room()
  NodeCounts nodes() const override { return run_.nodes(); }   ///< see Speculator::nodes()
  ProposalKind kind() const override { return S::kind; }       ///< see Speculator::kind()
  const void* batch() const override { return run_.batch(); }  ///< see Speculator::batch()
  /// See Speculator::begin().
  void begin(PhiloxRandom& rng, Tokens stop, CostModel* cost_model, std::int32_t max_nodes) override {
    run_.begin(rng, stop, cost_model, max_nodes);
  }
  /// See Speculator::keep().
  void keep([[maybe_unused]] std::span<const std::uint8_t> kept) override {
    if constexpr (S::kind == ProposalKind::deterministic && MergesRounds<V>)
      run_.keep(kept);
    else
      throw std::logic_error(
          "Pipeline::keep: its draft tokens are drawn, or its target is no text of a batch");
  }
  Tokens end() override { return run_.end(); }  ///< see Speculator::end()
  void abandon() override { run_.abandon(); }   ///< see Speculator::abandon()
  /// See TreeVerifier::params().
  const SamplingParams& params() const override { return run_.verifier().params(); }
  /// See TreeVerifier::set_params().
  void set_params(const SamplingParams& params) override { run_.verifier().set_params(params); }
  /// See TreeVerifier::report_logprobs().
  void report_logprobs(const LogprobOptions& options) override { run_.verifier().report_logprobs(options); }
  void report_no_logprobs() override { run_.verifier().report_no_logprobs(); }  ///< see TreeVerifier
  Logprobs logprobs() const override { return run_.logprobs(); }  ///< see Speculator::logprobs()
  std::vector<DraftUsage> drafts() const override {
    std::vector<DraftUsage> out;
    for (std::size_t i = 0; i < drafters_.size(); ++i)
      out.push_back({drafters_[i], run_.stats().drafters[i]});
    return out;
  }
  std::vector<Reviews> reviews() const override {
    if constexpr (CountsReviews<S>) {
      const auto reviewed = run_.shape().reviewed();
      return {reviewed.begin(), reviewed.end()};
    }
    return {};
  }

 protected:
  RunRecord& record() override { return run_; }              ///< the Speculator's
  const RunRecord& record() const override { return run_; }  ///< the same

 private:
  Speculator<V, D, S> run_;
  std::vector<std::string> drafters_;
};

namespace detail::pipelines {

/// make(), where what is wrong lies in the pipeline's parts and not in the program's models or parameters:
/// throws PipelineError for std::invalid_argument.
template <class Make>
auto of_pipeline(Make make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {
    throw PipelineError(error.what());
  }
}

/// Shapes of one kind over one type of drafter share a Speculator instantiation. Throws PipelineError if they
/// and the target do not go together.
template <class D, class S>
std::unique_ptr<Pipeline> assemble(AnyModel& target, const ParsedRule& parsed, const SamplingParams& params,
                                   D drafter, S shape, std::vector<std::string> drafters) {
  using Rule = AnyRule<S::kind>;
  using V = TreeVerifier<AnyModel, Rule>;
  using Shape = AnyShape<D, S::kind>;
  const Rule rule =
      parsed.lossy ? Rule::accept_lossy(parsed.name, parsed.lenience) : Rule(parsed.name, parsed.lenience);
  V verifier{target, rule, params};
  return of_pipeline([&] {
    return std::make_unique<PipelineOf<V, D, Shape>>(std::move(verifier), std::move(drafter),
                                                     Shape{std::move(shape)}, std::move(drafters));
  });
}

/// `shape` over the drafter or stack that `make` returns, under the text's rule.
template <class S, class Make>
PipelineFactory factory_for(PipelineSpec& spec, S shape, Make make) {
  const ParsedRule rule = parse_rule(spec, S::kind);
  PipelineFactory factory;
  factory.drafters = spec.drafters();
  factory.max_nodes = shape.nodes().most;
  factory.draft_nodes = shape.nodes().held();
  if (factory.max_nodes > 1025) spec.fail("a proposal of more than 1024 draft tokens");
  factory.lossy = rule.lossy;
  factory.build = [=, drafters = spec.drafters()](PipelineModels& models, const SamplingParams& params) {
    return assemble(models.target(), rule, params, make(models), shape, drafters);
  };
  return factory;
}

}  // namespace detail::pipelines

}  // namespace specula
