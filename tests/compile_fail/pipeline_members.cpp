// SPDX-License-Identifier: MIT
// expect: error: static.assert[^!]*TreeVerifier or PathVerifier: the rule is no AcceptanceRule
// expect: Speculator: its second part is no Drafter
// expect: this is no ProposalShape for this drafter
// expect: Stack: one of its members is no Drafter
// expect: Speculator: its first part is no Verifier
// expect: lossless_for\([^;]*\)[^a-z;]* (is|would be) invalid
// expect: decide[^a-z]*\(tree, target, rng, out\)[^a-z]* (is|would be) invalid
// expect: d\.sync\(context, draft_tokens\)[^a-z]* (is|would be) invalid
// expect: d\.truncate\(n\)[^a-z]* (is|would be) invalid
// expect: S::kind[^a-z]* (is|would be) invalid
// expect: c\.nodes\(\)[^a-z]* (is|would be) invalid
// expect: c\.room\(\)[^a-z]* (is|would be) invalid
#include <specula/accept/exact_rules.hpp>
#include <specula/draft/no_drafter.hpp>
#include <specula/draft/stack.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using Model = specula_test::ToyModel;

// Each type lacks one member.
struct SaysForWhat : Greedy {
#ifdef SPECULA_MUST_FAIL
  static constexpr bool lossless_for() { return true; }
#endif
};
struct Decides : Greedy {
#ifdef SPECULA_MUST_FAIL
  void decide(const TokenTree&) const {}
#endif
};
struct Syncs : NoDrafter {
#ifdef SPECULA_MUST_FAIL
  void sync(Tokens) {}
#endif
};
struct Truncates : NoDrafter {
#ifdef SPECULA_MUST_FAIL
  void truncate() {}
#endif
};
struct HasAKind {
#ifndef SPECULA_MUST_FAIL
  static constexpr ProposalKind kind = ProposalKind::deterministic;
#endif
  NodeCounts nodes() const { return {1}; }
  template <class D, class C>
  void propose(D&, const ProposeContext&, ProposalBuilder&, C&) {}
};
struct KnowsItsSize : Chain<> {
#ifdef SPECULA_MUST_FAIL
  void nodes(int) const {}
#endif
};
struct HasRoom : TreeVerifier<Model, Greedy> {
#ifdef SPECULA_MUST_FAIL
  std::int32_t room(int) const;
#endif
};

void rules(Model& m) { TreeVerifier{m, SaysForWhat{}}, TreeVerifier{m, Decides{}}; }
void pipelines(TreeVerifier<Model, Greedy> v, Syncs syncs, Truncates truncates, HasRoom has_room,
               NoDrafter d) {
  Speculator{v, syncs, Chain<>{}};
  Stack{d, truncates};
  Speculator{v, d, HasAKind{}};
  Speculator{v, d, KnowsItsSize{}};
  Speculator{has_room, d, Chain<>{}};
}
