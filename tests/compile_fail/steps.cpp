// SPDX-License-Identifier: MIT
// expect: write `co_await ask\(\.\.\.\)` in a function that returns Steps
// expect: a function that returns Steps needs a ProposalBuilder& among its parameters
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

using Model = ModelDrafter<specula_test::ToyModel>;
using specula_test::ToyModel;

struct Waits {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  NodeCounts nodes() const { return {2}; }
  template <LogitsDrafter D, RandomSource C>
  Steps propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C&) {
    drafter.sync(round.committed, {});
    const Token root = tree.token(0);
    const NodeId none = kNoParent;
#ifdef SPECULA_MUST_FAIL
    const LogitsView rows = ask(drafter, tree, {&root, 1}, {&none, 1});
#else
    const LogitsView rows = co_await ask(drafter, tree, {&root, 1}, {&none, 1});
#endif
    tree.choose(0, tree.top(0, rows.row(0)).token, 1);
    co_return;
  }
};
struct Plain {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  NodeCounts nodes() const { return {2}; }
  template <LogitsDrafter D, RandomSource C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C&) {
    drafter.sync(round.committed, {});
    const Token root = tree.token(0);
    const NodeId none = kNoParent;
#ifdef SPECULA_MUST_FAIL
    tree.choose(0, tree.top(0, ask(drafter, tree, {&root, 1}, {&none, 1}).row(0)).token, 1);
#else
    tree.choose(0, tree.top(0, ask(drafter, tree, {&root, 1}, {&none, 1}).now().row(0)).token, 1);
#endif
  }
};

#ifdef SPECULA_MUST_FAIL
Steps no_memory(int n) {
  (void)n;
  co_return;
}
#else
Steps no_memory(int n, ProposalBuilder&) {
  (void)n;
  co_return;
}
#endif

template <class Shape>
void use(ToyModel& target, ToyModel& draft) {
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, Shape{}};
  PhiloxRandom rng{1};
  run.step(rng);
}
void both(ToyModel& target, ToyModel& draft) {
  use<Waits>(target, draft);
  use<Plain>(target, draft);
}
