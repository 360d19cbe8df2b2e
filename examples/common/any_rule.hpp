// An acceptance rule that is chosen when the program runs.
#pragma once

#include <specula/specula.hpp>

namespace specula_examples {

/// One type for all rules, so that each shape is compiled once. In a program of your own name the rule: then
/// the compiler sees to it that it suits the shape. Here the registry does.
class AnyRule {
 public:
  enum class Rule { sampling, token, block, traversal, match, k_seq, gumbel, lenient, typical };

  explicit AnyRule(Rule rule, double lenience = 1) : rule_(rule), lenient_(lenience) {}

  static constexpr bool lossless_for(specula::ProposalKind) { return true; }

  void verify(const specula::TokenTree& tree, const specula::TargetDistributions& target,
              specula::PhiloxRandom& rng, specula::VerifyResult& out) const;

  /// Whether that rule keeps the target's distribution for proposals drawn so.
  static bool exact(Rule rule, specula::ProposalKind kind);

 private:
  Rule rule_;
  specula::Lenient lenient_;
};

static_assert(specula::AcceptanceRule<AnyRule>);

}  // namespace specula_examples
