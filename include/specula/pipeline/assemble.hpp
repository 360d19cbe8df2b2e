// Assembles a Pipeline from a verifier, a drafter and a shape, and parses its acceptance rule.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/any/any_model.hpp"
#include "specula/any/any_rule.hpp"
#include "specula/any/any_shape.hpp"
#include "specula/pipeline/factory.hpp"
#include "specula/pipeline/spec.hpp"
#include "specula/run/detail/explain.hpp"
#include "specula/run/speculator.hpp"
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
  void forget() override { run_.forget(); }                   ///< see Speculator::forget()
  std::int32_t room() const override { return run_.room(); }  ///< see Speculator::room()
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

/// The rule of a text.
struct ParsedRule {
  RuleName name = RuleName::sampling;
  double lenience = 1;
  bool lossy = false;  // not lossless for the shape's proposals, which the text allows
};

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

/// Takes the options rule=, lenient= and lossy=. Throws PipelineError for a rule that is not lossless for
/// proposals of this kind, unless the text has lossy=yes.
inline ParsedRule parse_rule(PipelineSpec& spec, ProposalKind kind) {
  static constexpr std::array kRules{
      RuleName::sampling, RuleName::token,  RuleName::block,  RuleName::traversal, RuleName::match,
      RuleName::k_seq,    RuleName::gumbel, RuleName::typical};  // lenient has an option of its own
  const bool shared = kind == ProposalKind::shared;
  std::vector<std::string> names;
  for (const RuleName rule : kRules) names.emplace_back(name_of(rule));
  const std::string word = spec.choice("rule", shared ? "gumbel" : "sampling", names);
  const double lenience = spec.option("lenient", 1, 1, 1000);
  const bool may_be_lossy = spec.choice("lossy", "no", {"yes", "no"}) == "yes";
  if (lenience > 1 && shared) spec.fail("lenient is a rule of its own: it does not go with shared noise");
  if (lenience > 1 && word != "sampling")
    spec.fail("lenient is a rule of its own: it does not go with rule=" + word);
  const auto found = std::find(names.begin(), names.end(), word) - names.begin();
  const RuleName rule = lenience > 1 ? RuleName::lenient : kRules[static_cast<std::size_t>(found)];
  const bool lossy = !is_lossless(rule, kind);
  if (lossy && !may_be_lossy) {
    std::string lossless;
    for (const RuleName other : kRules)
      if (is_lossless(other, kind)) lossless.append(lossless.empty() ? "" : ", ").append(name_of(other));
    spec.fail((lenience > 1 ? "lenient" : "rule=" + word) + ": " SPECULA_NOT_LOSSLESS " Lossless are " +
              lossless + "; add lossy=yes if a text of another distribution is what you want.");
  }
  return {rule, lenience, lossy};
}

}  // namespace detail::pipelines

}  // namespace specula
