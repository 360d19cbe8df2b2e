// An acceptance rule that is chosen when the program runs.
#pragma once

#include <specula/specula.hpp>

namespace specula_examples {

/// One type for all rules, so that each shape is compiled once. In a program of your own name the rule: then
/// the compiler sees to it that it suits the shape. Here the registry does.
class Judge {
 public:
  enum class Rule { sampling, token, block, traversal, match, k_seq, noise, lenient, typical };

  explicit Judge(Rule rule, double lenience = 1) : rule_(rule), lenient_(lenience) {}

  static constexpr bool exact_for(specula::DraftLaw) { return true; }

  void verify(const specula::TokenTree& tree, const specula::TargetLaws& target,
              specula::PhiloxChance& chance, specula::Verdict& out) const;

  /// Whether that rule keeps the target's law for proposals drawn so.
  static bool exact(Rule rule, specula::DraftLaw law);

 private:
  Rule rule_;
  specula::Lenient lenient_;
};

static_assert(specula::AcceptanceRule<Judge>);

}  // namespace specula_examples
