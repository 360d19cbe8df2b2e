// SPDX-License-Identifier: MIT
// expect: accept_lossy\(rule\)
// expect: AnyDrafter: a Stack would lose its members
// expect: Stack: one of its members is a Stack
#include <specula/any.hpp>
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;
using Model = specula_test::ToyModel;

// A rule for proposals of another kind, and drafters of several drafters behind a wrapper for one.
#ifdef SPECULA_MUST_FAIL
constexpr ProposalKind kKind = ProposalKind::deterministic;
using Wrapped = Stack<ModelDrafter<Model>>;
#else
constexpr ProposalKind kKind = ProposalKind::sampled;
using Wrapped = ModelDrafter<Model>;
#endif

using Pipeline = Speculator<TreeVerifier<AnyModel, AnyRule<kKind>>, AnyDrafter, Chain<Draw::sampled>>;

void pipeline(Pipeline& run) { run.forget(); }
AnyDrafter erased(Wrapped drafter) { return AnyDrafter(std::move(drafter)); }
void stacked(Wrapped drafter, NoDrafter other) { Stack<Wrapped, NoDrafter>(std::move(drafter), other); }
