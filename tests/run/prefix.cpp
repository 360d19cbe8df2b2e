// SPDX-License-Identifier: MIT
// The prefix that start() keeps is known by all that enters keys and values: by the tokens, and by everything
// that changes what a model computes for them.
#include <specula/run/speculator.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <specula/any.hpp>
#include <specula/specula.hpp>

#include "able_model.hpp"
#include "conditioned_models.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 6;
using List = std::vector<Token>;
using Counting = AbleModel<true>;
using Uncounting = AbleModel<false>;

/// A prompt of 200 tokens, of which a new text could keep 128.
List prompt(int kind) {
  List tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back((kind * i * i + i) % kVocab);
  return tokens;
}

/// The text, with the counts that a wrong prefix of the draft would change.
struct Written {
  List text;
  std::int64_t rounds, proposed, draft_nodes;
  bool operator==(const Written&) const = default;
};
template <class Run>
Written write(Run& run, const List& start) {
  const Stats before = run.stats();
  PhiloxRandom rng(5);
  run.start(start);
  while (run.text().size() < start.size() + 24) run.step(rng);
  const Stats now = run.stats() - before;
  return {{run.text().begin(), run.text().end()}, now.rounds, now.proposed, now.draft.nodes};
}

}  // namespace

TEST_CASE_TEMPLATE("two users of one model, behind wrappers or not: each text is right", Model, Counting,
                   Uncounting) {
  Model alone(kVocab);
  Speculator fresh{TreeVerifier{alone, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
  const Written want = write(fresh, prompt(1));
  const auto check = [&](auto& a, auto& b, Model& model) {
    Speculator one{TreeVerifier{a, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
    Speculator two{PathVerifier{b, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
    CHECK(write(one, prompt(1)) == want);
    CHECK(write(two, prompt(2)) != want);
    CHECK(write(one, prompt(1)) == want);
    // A prefix is kept only of a model that counts, if no other Speculator has used it.
    const std::int64_t before = model.appended;
    CHECK(write(one, prompt(1)) == want);
    CHECK(model.appended - before == 199 - (CountsChanges<Model> ? 128 : 0));
  };
  Model model(kVocab);
  AnyModel any(model), same(model);
  Processed processed{model, [](Tokens, std::span<float>) {}};
  AnyModel any_processed(processed);
  Processed processed_any{any, [](Tokens, std::span<float>) {}};
  check(model, model, model);
  check(any, same, model);
  check(any, model, model);
  check(model, any, model);
  check(processed, model, model);
  check(any_processed, any, model);
  check(processed_any, same, model);
  static_assert(!std::is_move_assignable_v<AnyModel>);  // a pipeline would go on in another model's cache
}

TEST_CASE_TEMPLATE(
    "two drafters over one draft that holds no more than the prefix: a text drafts from its own", Draft,
    Counting, Uncounting) {
  // The draft holds 128 tokens of prompt(1), and then as many of prompt(2): only a count of changes tells.
  Counting target(kVocab), alone_target(kVocab);
  Draft draft(kVocab, 1, 150), alone(kVocab, 1, 150);
  const auto shorter = [](int kind) {
    List tokens = prompt(kind);
    tokens.resize(129);
    return tokens;
  };
  Speculator run{TreeVerifier{target, Greedy{}, {.temperature = 0}}, ModelDrafter{draft},
                 Chain<>{.length = 3}};
  Speculator fresh{TreeVerifier{alone_target, Greedy{}, {.temperature = 0}}, ModelDrafter{alone},
                   Chain<>{.length = 3}};
  write(run, prompt(1));
  draft.truncate(0);
  draft.append(Tokens(prompt(2)).first(128));
  CHECK(write(run, shorter(1)) == write(fresh, shorter(1)));
}

namespace {

/// How a switch of weights is made known.
enum class Told { counted, forgotten };

/// A pipeline that `run_of` makes of models: its text after a switch of the weights of one of them is that of
/// a new pipeline over models with these weights. `models_of` makes models with weights {target's, draft's}.
template <class ModelsOf, class RunOf>
void check_switch(const std::string& name, ModelsOf models_of, RunOf run_of) {
  CAPTURE(name);
  for (const bool of_target : {true, false})
    for (const Told told : {Told::counted, Told::forgotten}) {
      CAPTURE(of_target);
      CAPTURE(static_cast<int>(told));
      auto models = models_of(1, 1);
      auto run = run_of(*models);
      const Written first = write(*run, prompt(1));
      const std::uint64_t target = of_target ? 2 : 1, draft = of_target ? 1 : 2;
      auto others = models_of(target, draft);
      auto fresh = run_of(*others);
      const Written want = write(*fresh, prompt(1));
      if (models->set_weights(target, draft, told == Told::counted)) CHECK(want != first);
      if (told == Told::forgotten) run->forget();
      CHECK(write(*run, prompt(1)) == want);
      CHECK(write(*run, prompt(1)) == want);  // on the prefix that it has kept
    }
}

/// A target, a draft of the same weights (or of its own state, if it is conditioned), and another draft.
template <class Draft>
struct Models {
  Models(std::uint64_t target_weights, std::uint64_t draft_weights)
      : target(kVocab, target_weights), draft(draft_of(draft_weights)), other(kVocab, draft_weights) {}
  static Draft draft_of(std::uint64_t weights) {
    if constexpr (TargetConditioned<Draft>)
      return Draft(kVocab, 1, 1.0f, true, 512);
    else
      return Draft(kVocab, weights);
  }
  /// Returns whether one changes.
  bool set_weights(std::uint64_t of_target, std::uint64_t of_draft, bool told) {
    const bool changes = target.weights() != of_target || !TargetConditioned<Draft>;
    if (target.weights() != of_target) target.set_weights(of_target, told);
    if constexpr (!TargetConditioned<Draft>)
      if (draft.weights() != of_draft) draft.set_weights(of_draft, told);
    if (other.weights() != of_draft) other.set_weights(of_draft, told);
    return changes;
  }
  Counting target;
  Draft draft;
  Counting other;
};
template <class Draft>
auto models_of() {
  return [](std::uint64_t target, std::uint64_t draft) {
    return std::make_unique<Models<Draft>>(target, draft);
  };
}
template <class V, class D, class S>
auto made(V verifier, D drafter, S shape) {
  return std::make_unique<Speculator<V, D, S>>(std::move(verifier), std::move(drafter), std::move(shape));
}

}  // namespace

TEST_CASE("weights that are switched between two texts: the next text is that of a new pipeline") {
  const Chain<> chain{.length = 3};
  check_switch("model", models_of<Counting>(), [&](auto& m) {
    return made(TreeVerifier{m.target, Sampling{}}, ModelDrafter{m.draft}, chain);
  });
  check_switch("path by path", models_of<Counting>(), [&](auto& m) {
    return made(PathVerifier{m.target, Sampling{}}, ModelDrafter{m.draft}, Beam{.width = 2, .length = 2});
  });
  check_switch("glide", models_of<ToyGlide>(), [&](auto& m) {
    return made(TreeVerifier{m.target, Sampling{}}, Glide{m.draft, m.target}, chain);
  });
  check_switch("feature head", models_of<ToyHead>(), [&](auto& m) {
    return made(TreeVerifier{m.target, Sampling{}}, FeatureHead{m.draft, m.target}, chain);
  });
  check_switch("early exit", models_of<Counting>(), [&](auto& m) {
    return made(TreeVerifier{m.target, Sampling{}}, EarlyExitDrafter{m.draft, {0.5f}}, chain);
  });
  check_switch("stack", models_of<Counting>(), [&](auto& m) {
    return made(TreeVerifier{m.target, Sampling{}}, Stack{ModelDrafter{m.draft}, ModelDrafter{m.other}},
                Vertical<2>{.reviews = 2, .length = 2});
  });
}

TEST_CASE("the target's own layers as its draft: a switch of weights is the target's") {
  struct Self {
    Self(std::uint64_t weights, std::uint64_t) : target(kVocab, weights) {}
    bool set_weights(std::uint64_t weights, std::uint64_t, bool told) {
      if (target.weights() == weights) return false;
      target.set_weights(weights, told);
      return true;
    }
    Counting target;
  };
  check_switch(
      "layer skip", [](auto target, auto draft) { return std::make_unique<Self>(target, draft); },
      [](auto& m) {
        return made(TreeVerifier{m.target, Sampling{}}, LayerSkip{m.target}, Chain<>{.length = 3});
      });
}

TEST_CASE("behind AnyModel and AnyDrafter a switch of weights is seen as without them") {
  struct Erased : Models<Counting> {
    using Models::Models;
    AnyModel any_target{target}, any_draft{draft};
  };
  check_switch(
      "erased", [](auto target, auto draft) { return std::make_unique<Erased>(target, draft); },
      [](auto& m) {
        return made(TreeVerifier{m.any_target, AnyRule<ProposalKind::deterministic>(RuleName::sampling)},
                    m.any_draft.drafter(m.any_target),
                    AnyShape<AnyDrafter, ProposalKind::deterministic>(Chain<>{.length = 3}));
      });
  struct ErasedGlide : Models<ToyGlide> {
    using Models::Models;
    AnyModel any_target{target}, any_draft{draft};
  };
  check_switch(
      "erased glide", [](auto target, auto draft) { return std::make_unique<ErasedGlide>(target, draft); },
      [](auto& m) {
        return made(TreeVerifier{m.any_target, Sampling{}}, m.any_draft.drafter(m.any_target),
                    Chain<>{.length = 3});
      });
}

TEST_CASE("a switch that is neither counted nor told gives a wrong text: the tests above can fail") {
  Counting target(kVocab), other(kVocab, 2);
  Speculator run{TreeVerifier{target, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
  Speculator fresh{TreeVerifier{other, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
  write(run, prompt(1));
  target.set_weights(2, false);
  CHECK(write(run, prompt(1)) != write(fresh, prompt(1)));
}

TEST_CASE("a switch within a text is an error, after which the text can go on") {
  Counting target(kVocab);
  Speculator run{TreeVerifier{target, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
  PhiloxRandom rng(5);
  run.start(prompt(1));
  run.step(rng);
  target.set_weights(2);
  CHECK_THROWS_WITH_AS(run.step(rng), doctest::Contains("or its weights or settings changed"),
                       std::logic_error);
  run.start(run.text());
  CHECK(run.step(rng).size() == 1);
}

TEST_CASE("a processor is no part of keys and values: its parameters may change between two texts") {
  const auto biased = [](const float& bias) {
    return [&bias](Tokens path, std::span<float> row) { row[static_cast<std::size_t>(path.back())] += bias; };
  };
  float bias = 0, other_bias = 4;
  Counting target(kVocab), draft(kVocab), other_target(kVocab), other_draft(kVocab);
  Processed processed{target, biased(bias)}, processed_draft{draft, biased(bias)};
  Processed other{other_target, biased(other_bias)}, processed_other{other_draft, biased(other_bias)};
  const Chain<> chain{.length = 3};
  Speculator run{TreeVerifier{processed, Sampling{}}, ModelDrafter{processed_draft}, chain};
  Speculator fresh{TreeVerifier{other, Sampling{}}, ModelDrafter{processed_other}, chain};
  const Written first = write(run, prompt(1)), want = write(fresh, prompt(1));
  REQUIRE(first != want);
  bias = other_bias;
  const std::int64_t before = target.appended;
  CHECK(write(run, prompt(1)) == want);
  CHECK(target.appended - before == 199 - 128);  // the prefix was kept
}
