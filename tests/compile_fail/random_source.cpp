// SPDX-License-Identifier: MIT
// expect: error: static.assert[^!]*this is no random source: pass specula::PhiloxRandom
// expect: shared noise needs a random source with `Token draw_by_noise
#include <specula/accept/gumbel_coupling.hpp>
#include <specula/draft/no_drafter.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/verify/tree_verifier.hpp>

#include <random>

#include "toy_model.hpp"

using namespace specula;

/// A random source without noise.
struct RandomNumbers {
  bool accept(double, const RandomKey&) { return true; }
  template <class Weights>
  Token draw(const Weights&, const RandomKey&) {
    return 0;
  }
};

#ifdef SPECULA_MUST_FAIL
using Source = std::mt19937;
using Noise = RandomNumbers;
#else
using Source = PhiloxRandom;
using Noise = PhiloxRandom;
#endif

using Pipeline = Speculator<TreeVerifier<specula_test::ToyModel, GumbelCoupling>, NoDrafter, Chain<>>;
void rounds(Pipeline& run, Source& source, Noise& noise) { run.step(source), run.step(noise); }
