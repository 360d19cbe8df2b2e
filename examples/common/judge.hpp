// An acceptance rule that is chosen when the program runs.
#pragma once

#include <string>

#include <specula/specula.hpp>

namespace specula_examples {

/// One type for all rules, so that each shape is compiled once. In a program of your own name the rule: then
/// the compiler sees to it that it suits the shape. Here the registry does.
class Judge {
 public:
  enum class Rule { sampling, token, block, traversal, match, k_seq, noise, lenient, typical };

  explicit Judge(Rule rule, double lenience = 1) : rule_(rule), lenient_(lenience) {}

  static constexpr bool exact_for(specula::DraftLaw) { return true; }

  template <class Chance>
  void verify(const specula::TokenTree& tree, const specula::TargetLaws& target, Chance& chance,
              specula::Verdict& out) const {
    const auto by = [&](const auto& rule) { rule.verify(tree, target, chance, out); };
    switch (rule_) {
      case Rule::sampling:
        return by(specula::Sampling{});
      case Rule::token:
        return by(specula::Rejection{});
      case Rule::block:
        return by(specula::Block{});
      case Rule::traversal:
        return by(specula::Traversal{});
      case Rule::match:
        return by(specula::SampleAndMatch{});
      case Rule::k_seq:
        return by(specula::KSeq{});
      case Rule::noise:
        return by(specula::SharedNoise{});
      case Rule::lenient:
        return by(lenient_);
      case Rule::typical:
        return by(specula::Typical{});
    }
  }

  /// Whether that rule keeps the target's law for proposals drawn so.
  static bool exact(Rule rule, specula::DraftLaw law) {
    switch (rule) {
      case Rule::sampling:
        return specula::Sampling::exact_for(law);
      case Rule::token:
        return specula::Rejection::exact_for(law);
      case Rule::block:
        return specula::Block::exact_for(law);
      case Rule::traversal:
        return specula::Traversal::exact_for(law);
      case Rule::match:
        return specula::SampleAndMatch::exact_for(law);
      case Rule::k_seq:
        return specula::KSeq::exact_for(law);
      case Rule::noise:
        return specula::SharedNoise::exact_for(law);
      case Rule::lenient:
      case Rule::typical:
        return false;
    }
    return false;
  }

 private:
  Rule rule_;
  specula::Lenient lenient_;
};

static_assert(specula::AcceptanceRule<Judge>);

}  // namespace specula_examples
