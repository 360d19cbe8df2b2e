// Assembles a Pipeline from a verifier, a drafter and a shape, and parses its acceptance rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "specula/any/any_model.hpp"
#include "specula/any/any_rule.hpp"
#include "specula/any/any_shape.hpp"
#include "specula/pipeline/factory.hpp"
#include "specula/pipeline/spec.hpp"
#include "specula/run/detail/not_lossless.hpp"
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

  void start(Tokens prompt) override { run_.start(prompt); }          ///< see Speculator::start()
  Tokens step(PhiloxRandom& rng) override { return run_.step(rng); }  ///< see Speculator::step()
  void forget() override { run_.forget(); }
  Tokens text() const override { return run_.text(); }                    ///< see Speculator::text()
  std::int32_t room() const override { return run_.room(); }              ///< see Speculator::room()
  const Stats& stats() const override { return run_.stats(); }            ///< see Speculator::stats()
  std::string draft_error() const override { return run_.draft_error(); }  ///< see Speculator::draft_error()
  const TokenTree& proposal() const override { return run_.proposal(); }  ///< see Speculator::proposal()
  const VerifyResult& result() const override { return run_.result(); }   ///< see Speculator::result()
  std::vector<DraftUsage> drafts() const override {
    std::vector<DraftUsage> out;
    for (std::size_t i = 0; i < drafters_.size(); ++i)
      out.push_back({drafters_[i], run_.stats().drafters[i]});
    return out;
  }
  std::vector<Reviews> reviews() const override {
    if constexpr (requires { run_.shape().reviewed(); }) {
      const auto reviewed = run_.shape().reviewed();
      return {reviewed.begin(), reviewed.end()};
    }
    return {};
  }

 private:
  Speculator<V, D, S> run_;
  std::vector<std::string> drafters_;
};

namespace detail::pipelines {

/// Shapes of one kind over one type of drafter share a Speculator instantiation.
template <class D, class S>
std::unique_ptr<Pipeline> assemble(AnyModel& target, AnyRule rule, const SamplingParams& params, D drafter,
                                   S shape, std::vector<std::string> drafters) {
  using V = TreeVerifier<AnyModel, AnyRule>;
  using Shape = AnyShape<D, S::kind>;
  return std::make_unique<PipelineOf<V, D, Shape>>(V{target, rule, params}, std::move(drafter),
                                                   Shape{std::move(shape)}, std::move(drafters));
}

struct ParsedRule {
  AnyRule rule;
  bool lossy;
};

/// Takes the options rule=, lenient= and lossy=. Throws PipelineError for a rule that is not lossless for
/// proposals of this kind, unless the text has lossy=yes.
inline ParsedRule parse_rule(PipelineSpec& spec, ProposalKind kind) {
  using Rule = AnyRule::Rule;
  static const std::vector<std::pair<std::string, Rule>> kRules{
      {"sampling", Rule::sampling},   {"token", Rule::token},    {"block", Rule::block},
      {"traversal", Rule::traversal}, {"match", Rule::match},    {"k-seq", Rule::k_seq},
      {"gumbel", Rule::gumbel},       {"typical", Rule::typical}};
  const bool shared = kind == ProposalKind::shared;
  std::vector<std::string> names;
  for (const auto& [name, rule] : kRules) names.push_back(name);
  const std::string word = spec.choice("rule", shared ? "gumbel" : "sampling", names);
  const double lenience = spec.option("lenient", 1, 1, 1000);
  const bool may_be_lossy = spec.choice("lossy", "no", {"yes", "no"}) == "yes";
  if (lenience > 1 && shared) spec.fail("lenient is a rule of its own: it does not go with shared noise");
  if (lenience > 1 && word != "sampling")
    spec.fail("lenient is a rule of its own: it does not go with rule=" + word);
  const auto found =
      std::find_if(kRules.begin(), kRules.end(), [&](const auto& rule) { return rule.first == word; });
  const AnyRule rule = lenience > 1 ? AnyRule(Rule::lenient, lenience) : AnyRule(found->second);
  const bool lossy = !rule.is_lossless(kind);
  if (lossy && !may_be_lossy) {
    std::string lossless;
    for (const auto& [name, other] : kRules)
      if (AnyRule(other).is_lossless(kind)) lossless.append(lossless.empty() ? "" : ", ").append(name);
    spec.fail((lenience > 1 ? "lenient" : "rule=" + word) + ": " SPECULA_NOT_LOSSLESS " Lossless are " +
              lossless + "; add lossy=yes if a text of another distribution is what you want.");
  }
  return {rule, lossy};
}

}  // namespace detail::pipelines

}  // namespace specula
