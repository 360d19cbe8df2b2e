// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of pipelines whose draft is conditioned on the target, against the target's. How
// the text was reached changes the draft's rows, but not the distribution of the text.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "conditioned_models.hpp"
#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "one_rule.hpp"

using namespace specula;
using namespace specula_test;

namespace {

enum class Kind { glide, head };

template <class Shape>
EmittedDistribution whole(Kind kind, std::int32_t vocab, const OneRule& rule, Shape shape,
                          const SamplingParams& params, std::size_t horizon) {
  SeenModel target(vocab, 1);
  const auto distribution = [&](auto drafter) {
    Speculator run{TreeVerifier{target, rule, params}, drafter, shape};
    return whole_distribution(run, target, params, prompt_for(vocab), horizon);
  };
  if (kind == Kind::glide) {
    ToyGlide draft(vocab, 2);
    return distribution(Glide{draft, target});
  }
  ToyHead head(vocab, 2);
  return distribution(FeatureHead{head, target});
}

/// Whole pipelines with each of the two drafters; shorter texts whose tokens lie in three tiles, too.
template <class Shape>
double worst(std::int32_t vocab, const OneRule& rule, Shape shape, std::size_t horizon,
             const SamplingParams& params = {}) {
  const auto both = [&](std::size_t tokens) {
    return std::max(whole(Kind::glide, vocab, rule, shape, params, tokens).error,
                    whole(Kind::head, vocab, rule, shape, params, tokens).error);
  };
  const double narrow = both(horizon);
  const ThreeTiles wide;
  return std::max(narrow, both(2));
}

/// Drafts with the same model, but keeps accepted draft tokens in the cache, as an unconditioned draft may.
template <class Draft>
class Keeps : public ModelDrafter<Draft> {
 public:
  Keeps(Draft& draft, SeenModel& target) : ModelDrafter<Draft>(draft), draft_(&draft), target_(&target) {}
  void sync(Tokens context, Tokens draft_tokens) {
    draft_->set_target_state(target_->key_values());
    ModelDrafter<Draft>::sync(context, draft_tokens);
  }

 private:
  Draft* draft_;
  SeenModel* target_;
};

}  // namespace

TEST_CASE("every shape keeps the target's distribution over several rounds, by every lossless rule") {
  for_every_shape([](const auto& shape, const Enumerable& sizes) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>([&](const OneRule& rule) {
      for (const SamplingParams& params : {kPlain, kWarm}) {
        CAPTURE(params.temperature);
        CHECK(worst(sizes.vocab, rule, shape, sizes.horizon, params) < 1e-12);
      }
    });
  });
}

TEST_CASE("greedy decoding's text, and a vocabulary of one token") {
  CHECK(worst(3, Greedy{}, Chain<>{.length = 3}, 6, kGreedy) < 1e-12);
  CHECK(worst(3, Sampling{}, Cape{}, 6, kGreedy) < 1e-12);
  CHECK(worst(3, Sampling{}, DynamicTree{}, 6, kGreedy) < 1e-12);
  CHECK(worst(1, Rejection{}, Chain<Draw::sampled>{.length = 3}, 4) < 1e-12);
}

TEST_CASE("a cascade in which the draft reviews keeps it") {
  SeenModel target(2, 1);
  ToyGlide draft(2, 2);
  ToyModel small(2, 3);
  Speculator run{TreeVerifier{target, Rejection{}}, Stack{Glide{draft, target}, ModelDrafter{small}},
                 Cascade<2, Draw::sampled>{.limits = {{{2, 1}, {0, 1}}}, .lenience = 2}};
  CHECK(whole_distribution(run, target, kPlain, prompt_for(2), 3).error < 1e-12);
}

TEST_CASE(
    "accepted draft tokens kept in the cache change proposals, since their columns saw too little, but not "
    "the distribution") {
  SeenModel target(3, 1);
  ToyGlide draft(3, 1);
  const Chain<> chain{.length = 2};
  // The distribution, and the number of tokens that were never fed as context, because the draft
  // kept them from speculation.
  const auto run_with = [&](auto drafter) {
    Speculator run{TreeVerifier{target, Sampling{}}, drafter, chain};
    const EmittedDistribution distribution = whole_distribution(run, target, kPlain, prompt_for(3), 5);
    run.forget();
    draft.seen.clear();
    run.start(prompt_for(3));
    PhiloxRandom rng(1);
    while (run.room() > 3) run.step(rng);
    std::vector<bool> fed(static_cast<std::size_t>(run.proposal().origin()));
    for (const Observation& s : draft.seen)
      if (!s.node) fed[static_cast<std::size_t>(s.position)] = s.view_size > s.position;
    return std::pair{distribution, std::count(fed.begin(), fed.end(), false)};
  };
  const auto [fresh, none] = run_with(Glide{draft, target});
  const auto [stale, some] = run_with(Keeps<ToyGlide>{draft, target});
  CHECK(none == 0);
  CHECK(some > 10);
  CHECK(fresh.error < 1e-12);
  CHECK(stale.error < 1e-12);
  CHECK(std::abs(fresh.mat - stale.mat) > 1e-3);
}
