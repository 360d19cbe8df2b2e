// Type-erased acceptance rule, chosen at run time.
#pragma once

#include "specula/accept/exact_rules.hpp"
#include "specula/accept/gumbel_coupling.hpp"
#include "specula/accept/k_seq.hpp"
#include "specula/accept/lenient.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/accept/typical.hpp"
#include "specula/concepts.hpp"

namespace specula {

/// One type for all rules, so that a Speculator is compiled once for them. At compile time it is lossless for
/// every proposal kind: code that creates one must check is_lossless(), as make_pipeline() does. Cost: that
/// of the rule, and one switch per round.
class AnyRule {
 public:
  /// The rules, by the names of make_pipeline(): Sampling, Rejection, Block, Traversal, SampleAndMatch, KSeq,
  /// GumbelCoupling, Lenient, Typical.
  enum class Rule { sampling, token, block, traversal, match, k_seq, gumbel, lenient, typical };

  /// `lenience` is used by Rule::lenient only. Throws std::invalid_argument unless it is in [1, 1e30].
  explicit AnyRule(Rule rule, double lenience = 1) : rule_(rule), lenient_(lenience) {}

  static constexpr bool lossless_for(ProposalKind) { return true; }  ///< see is_lossless()

 private:
  template <class F>
  auto visit(F&& f) const {
    switch (rule_) {
      case Rule::sampling:
        return f(Sampling{});
      case Rule::token:
        return f(Rejection{});
      case Rule::block:
        return f(Block{});
      case Rule::traversal:
        return f(Traversal{});
      case Rule::match:
        return f(SampleAndMatch{});
      case Rule::k_seq:
        return f(KSeq{});
      case Rule::gumbel:
        return f(GumbelCoupling{});
      case Rule::lenient:
        return f(lenient_);
      case Rule::typical:
        break;
    }
    return f(Typical{});
  }

 public:
  /// Whether the chosen rule keeps the target's distribution for proposals of this kind.
  bool is_lossless(ProposalKind kind) const {
    return visit([&](const auto& rule) { return rule.lossless_for(kind); });
  }

  /// As the chosen rule; within accept_lossy() if the rule is not lossless for the proposal's kind.
  void(verify)(const TokenTree& tree, const TargetDistributions& target, PhiloxRandom& rng,
               VerifyResult& out) const {
    visit([&](const auto& rule) {
      (rule.verify)(tree, rule.lossless_for(tree.kind()) ? target : target.for_lossy(), rng, out);
    });
  }

 private:
  Rule rule_;
  Lenient lenient_;
};

static_assert(AcceptanceRule<AnyRule>);

}  // namespace specula
