// SPDX-License-Identifier: MIT
// Rules as one type: with a type each, every test of all shapes would be compiled once for each rule.
#pragma once

#include <variant>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/k_seq.hpp>
#include <specula/accept/lenient.hpp>
#include <specula/specula.hpp>

namespace specula_test {

/// Any of these; for what kind of proposals it keeps the distribution is the caller's business.
class OneRule {
 public:
  template <class R>
  OneRule(R rule) : rule_(rule) {}
  static constexpr bool lossless_for(specula::ProposalKind) { return true; }
  template <class C>
  void decide(const specula::TokenTree& tree, const specula::TargetDistributions& target, C& rng,
              specula::VerifyResult& out) const {
    std::visit([&](const auto& rule) { rule.decide(tree, target, rng, out); }, rule_);
  }

 private:
  std::variant<specula::Rejection, specula::Traversal, specula::Sampling, specula::SampleAndMatch,
               specula::Block, specula::KSeq, specula::Greedy, specula::AcceptLossy<specula::Lenient>>
      rule_;
};

}  // namespace specula_test
