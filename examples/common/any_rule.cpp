#include "any_rule.hpp"

namespace specula_examples {

void AnyRule::verify(const specula::TokenTree& tree, const specula::TargetDistributions& target,
                     specula::PhiloxRandom& rng, specula::VerifyResult& out) const {
  const auto by = [&](const auto& rule) { rule.verify(tree, target, rng, out); };
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
    case Rule::gumbel:
      return by(specula::GumbelCoupling{});
    case Rule::lenient:
      return by(lenient_);
    case Rule::typical:
      return by(specula::Typical{});
  }
}

bool AnyRule::exact(Rule rule, specula::ProposalKind kind) {
  switch (rule) {
    case Rule::sampling:
      return specula::Sampling::lossless_for(kind);
    case Rule::token:
      return specula::Rejection::lossless_for(kind);
    case Rule::block:
      return specula::Block::lossless_for(kind);
    case Rule::traversal:
      return specula::Traversal::lossless_for(kind);
    case Rule::match:
      return specula::SampleAndMatch::lossless_for(kind);
    case Rule::k_seq:
      return specula::KSeq::lossless_for(kind);
    case Rule::gumbel:
      return specula::GumbelCoupling::lossless_for(kind);
    case Rule::lenient:
    case Rule::typical:
      return false;
  }
  return false;
}

}  // namespace specula_examples
