// SPDX-License-Identifier: MIT
// Type-erased acceptance rule, chosen at run time.
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "specula/accept/exact_rules.hpp"
#include "specula/accept/gumbel_coupling.hpp"
#include "specula/accept/k_seq.hpp"
#include "specula/accept/lenient.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/accept/typical.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/run/detail/explain.hpp"

namespace specula {

/// The rules of AnyRule, in the order of kRules.
enum class RuleName { sampling, token, block, traversal, match, k_seq, gumbel, lenient, typical };

/// A rule by name.
struct NamedRule {
  const char* name;     ///< in make_pipeline()'s texts: rule=NAME, or lenient=L
  const char* summary;  ///< one line for help texts
};

/// All rules that texts can name.
inline constexpr std::array kRules{
    NamedRule{"sampling", "Sampling: match for what was chosen, block on a path, traversal on a tree"},
    NamedRule{"token", "Rejection: rejection sampling, token by token"},
    NamedRule{"block", "Block: block verification, of a path as a whole"},
    NamedRule{"traversal", "Traversal: block verification of trees, from the leaves to the root"},
    NamedRule{"match", "SampleAndMatch: the target's own draws, accepted as long as they are draft tokens"},
    NamedRule{"k-seq", "KSeq: of children drawn independently"},
    NamedRule{"gumbel", "GumbelCoupling: the target's draws with the noise of Draw::shared"},
    NamedRule{"lenient", "Lenient: rejection sampling that accepts up to L times as often; lossy"},
    NamedRule{"typical", "Typical: what is likely enough under the target; lossy"}};

/// The name of a rule in make_pipeline()'s texts.
constexpr const char* name_of(RuleName rule) { return kRules[static_cast<std::size_t>(rule)].name; }

namespace detail {

/// Calls f(rule) with the rule of this name.
template <class F>
auto with_rule(RuleName name, const Lenient& lenient, F&& f) {
  switch (name) {
    case RuleName::sampling:
      return f(Sampling{});
    case RuleName::token:
      return f(Rejection{});
    case RuleName::block:
      return f(Block{});
    case RuleName::traversal:
      return f(Traversal{});
    case RuleName::match:
      return f(SampleAndMatch{});
    case RuleName::k_seq:
      return f(KSeq{});
    case RuleName::gumbel:
      return f(GumbelCoupling{});
    case RuleName::lenient:
      return f(lenient);
    case RuleName::typical:
      break;
  }
  return f(Typical{});
}
/// One instantiation for all kinds of AnyRule.
inline void verify_by(RuleName name, const Lenient& lenient, const TokenTree& tree,
                      const TargetDistributions& target, PhiloxRandom& rng, VerifyResult& out) {
  with_rule(name, lenient, [&](const auto& rule) { rule.decide(tree, target, rng, out); });
}

}  // namespace detail

/// Whether the rule keeps the target's distribution for proposals of this kind.
inline bool is_lossless(RuleName rule, ProposalKind kind) {
  return detail::with_rule(rule, Lenient(1), [&](const auto& found) { return found.lossless_for(kind); });
}

/// One type for all rules, so that a Speculator is compiled once for them. The kind of the proposals is part
/// of the type, as it is of AnyShape: a rule that is not lossless for it takes accept_lossy(). Cost: that of
/// the rule, and one switch per round.
template <ProposalKind of>
class AnyRule {
 public:
  /// `lenience` is used by RuleName::lenient only. Throws std::invalid_argument unless it is in [1, 1e30],
  /// and if the rule does not keep the target's distribution for proposals of this kind.
  explicit AnyRule(RuleName rule, double lenience = 1) : rule_(rule), lenient_(lenience) {
    if (!is_lossless(rule, of))
      throw std::invalid_argument(std::string("AnyRule: ") + name_of(rule) +
                                  ": " SPECULA_NOT_LOSSLESS
                                  " Write AnyRule<kind>::accept_lossy(rule) if a text of another "
                                  "distribution is what you want.");
  }
  /// Any rule: the text need not have the target's distribution.
  static AnyRule accept_lossy(RuleName rule, double lenience = 1) {
    AnyRule any(RuleName::match, lenience);  // lossless for every kind
    any.rule_ = rule;
    return any;
  }

  /// For proposals of its own kind.
  static constexpr bool lossless_for(ProposalKind kind) { return kind == of; }

  /// As the chosen rule.
  void decide(const TokenTree& tree, const TargetDistributions& target, PhiloxRandom& rng,
              VerifyResult& out) const {
    detail::verify_by(rule_, lenient_, tree, target, rng, out);
  }

 private:
  RuleName rule_;
  Lenient lenient_;
};

static_assert(AcceptanceRule<AnyRule<ProposalKind::mixed>>);

}  // namespace specula
