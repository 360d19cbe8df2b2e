#include "judge.hpp"

namespace specula_examples {

void Judge::verify(const specula::TokenTree& tree, const specula::TargetLaws& target,
                   specula::PhiloxChance& chance, specula::Verdict& out) const {
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

bool Judge::exact(Rule rule, specula::DraftLaw law) {
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

}  // namespace specula_examples
