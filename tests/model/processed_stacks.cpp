// SPDX-License-Identifier: MIT
// labels: optimised
// Processed in stacks of several drafters: in no order of them is a processor shown a path that it has
// excluded.
#include <specula/model/processed.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <specula/runtime/any_model.hpp>

#include "able_model.hpp"
#include "exact_distribution.hpp"

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept

using namespace specula;
using namespace specula_test;

namespace {

using List = std::vector<Token>;
constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr std::int32_t kVocab = 6;

/// A grammar: neither a token itself nor the one after it may follow. As an engine's, it throws for a path
/// that it excludes, and for one that ends within the prompt, in which anything goes.
struct Grammar {
  std::size_t prompt;
  std::int64_t* calls;

  static bool excludes(Token before, Token next) { return next == before || next == (before + 1) % kVocab; }
  void operator()(Tokens path, std::span<float> row) const {
    ++*calls;
    if (path.size() < prompt) throw std::runtime_error("a part of the prompt is no path");
    for (std::size_t i = prompt; i < path.size(); ++i)
      if (excludes(path[i - 1], path[i])) throw std::runtime_error("there is no such path");
    for (std::size_t x = 0; x < row.size(); ++x)
      if (excludes(path.back(), static_cast<Token>(x))) row[x] = kMasked;
  }
};
using Masked = Processed<ToyModel, Grammar>;
struct Nothing {
  void operator()(Tokens, std::span<float>) const {}
};

/// How a draft model is wrapped.
enum class Wrap { none, masked, any, twice };

/// A draft model in its wrapper.
class Draft {
 public:
  Draft(std::uint64_t seed, Wrap wrap, Grammar grammar) : model_(kVocab, seed, 2.0f, 200) {
    if (wrap != Wrap::none) masked_.emplace(model_, grammar);
    if (wrap == Wrap::any) any_.emplace(*masked_);
    if (wrap == Wrap::twice) twice_.emplace(*masked_, Nothing{});
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  AnyDrafter drafter() {
    if (twice_) return AnyDrafter(ModelDrafter{*twice_});
    if (any_) return AnyDrafter(ModelDrafter{*any_});
    if (masked_) return AnyDrafter(ModelDrafter{*masked_});
    return AnyDrafter(ModelDrafter{model_});
  }

 private:
  ToyModel model_;
  std::optional<Masked> masked_;
  std::optional<AnyModel> any_;
  std::optional<Processed<Masked, Nothing>> twice_;
};

std::int64_t draft_calls = 0;  // of processors

/// Texts under the grammar, by `shape` over what `stack` makes of drafters of these models, are those of
/// plain decoding, and no draft fails.
template <class Shape, class MakeStack>
void check(const Shape& shape, const std::vector<Wrap>& wraps, MakeStack stack) {
  const SamplingParams params{.temperature = Shape::kind == ProposalKind::deterministic ? 0.0f : 1.0f};
  std::int64_t target_calls = 0;
  for (const List& prompt : {List{0, 2, 5}, List{1, 1, 2, 3, 3}}) {  // the second is not within the grammar
    ToyModel inner(kVocab, 1, 2.0f, 200);
    Processed target{inner, Grammar{prompt.size(), &target_calls}};
    std::vector<std::unique_ptr<Draft>> drafts;
    std::vector<AnyDrafter> drafters;
    for (const Wrap wrap : wraps) {
      drafts.push_back(
          std::make_unique<Draft>(2 + drafts.size(), wrap, Grammar{prompt.size(), &draft_calls}));
      drafters.push_back(drafts.back()->drafter());
    }
    const auto texts = [&](auto drafter, auto proposal_shape) {
      Speculator run{TreeVerifier{target, SampleAndMatch{}, params}, std::move(drafter), proposal_shape};
      List out;
      for (const std::uint64_t seed : {3u, 4u}) {
        run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom{seed},
                     [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
        CHECK(run.draft_error() == "");
      }
      return out;
    };
    const List plain = texts(NoDrafter{kVocab}, Chain<>{});
    CHECK(texts(stack(drafters), shape) == plain);
  }
}
const std::vector<Wrap> kWraps{Wrap::none, Wrap::masked, Wrap::any, Wrap::twice};

const auto kTwo = [](auto& d) { return Stack{std::move(d[0]), std::move(d[1])}; };
const auto kThree = [](auto& d) { return Stack{std::move(d[0]), std::move(d[1]), std::move(d[2])}; };

template <Draw mode>
void check_models() {
  for (const Wrap a : kWraps)
    for (const Wrap b : kWraps) {
      CAPTURE(static_cast<int>(a));
      CAPTURE(static_cast<int>(b));
      const std::vector<Wrap> two{a, b};
      check(Horizontal<2, mode>{.counts = {2, 3}}, two, kTwo);
      check(Horizontal<2, mode>{.counts = {1, 1}}, two, kTwo);
      check(Vertical<2, mode>{.reviews = 2, .length = 3, .lenience = 2}, two, kTwo);
      check(Cascade<2, mode>{.limits = {{{3, 2}, {0, 3}}}}, two, kTwo);
      for (const Wrap c : {Wrap::none, Wrap::masked}) {
        CAPTURE(static_cast<int>(c));
        const std::vector<Wrap> three{a, b, c};
        check(Horizontal<3, mode>{.counts = {1, 1, 2}}, three, kThree);
        check(Vertical<3, mode>{.reviews = 2, .length = 2}, three, kThree);
        check(Cascade<3, mode>{.limits = {{{4, 2, 3}, {0, 1, 3}, {0, 0, 3}}}}, three, kThree);
      }
    }
}
template <Draw mode>
void check_copies() {
  const MaxGram copies(kVocab, {.past_end = true});
  for (const Wrap a : kWraps) {
    CAPTURE(static_cast<int>(a));
    const auto last = [&](auto& d) { return Stack{std::move(d[0]), copies}; };
    const auto first = [&](auto& d) { return Stack{copies, std::move(d[0])}; };
    check(Horizontal<2, mode>{.counts = {2, 3}}, {a}, last);
    check(Horizontal<2, mode>{.counts = {2, 3}}, {a}, first);
    check(Vertical<2, mode>{.reviews = 2, .length = 3}, {a}, last);
    check(Cascade<2, mode>{.limits = {{{3, 2}, {0, 3}}}}, {a}, last);
    check(Either(Chain<mode>{.length = 3}, 4), {a}, last);
    check(Either(Chain<mode>{.length = 3}, 4, CostCurve({1, 1.01}), CostCurve({0.01})), {a}, last);
    for (const Wrap b : {Wrap::none, Wrap::masked}) {
      CAPTURE(static_cast<int>(b));
      const auto end = [&](auto& d) { return Stack{std::move(d[0]), std::move(d[1]), copies}; };
      const auto middle = [&](auto& d) { return Stack{std::move(d[0]), copies, std::move(d[1])}; };
      const auto begin = [&](auto& d) { return Stack{copies, std::move(d[0]), std::move(d[1])}; };
      check(Horizontal<3, mode>{.counts = {1, 1, 2}}, {a, b}, end);
      check(Horizontal<3, mode>{.counts = {1, 2, 2}}, {a, b}, middle);
      check(Horizontal<3, mode>{.counts = {2, 1, 2}}, {a, b}, begin);
      check(Vertical<3, mode>{.reviews = 2, .length = 2}, {a, b}, end);
      check(Cascade<3, mode>{.limits = {{{4, 2, 3}, {0, 1, 3}, {0, 0, 3}}}}, {a, b}, end);
    }
  }
}

}  // namespace

TEST_CASE("stacks of draft models in every order, each of them with the processor or without") {
  draft_calls = 0;
  check_models<Draw::greedy>();
  check_models<Draw::sampled>();
  CHECK(draft_calls > 100000);
}
TEST_CASE("stacks of draft models and copies in every order") {
  draft_calls = 0;
  check_copies<Draw::greedy>();
  check_copies<Draw::sampled>();
  CHECK(draft_calls > 10000);
}

namespace {

/// No token follows itself; throws for a path where one does, but in the prompt.
struct NoRepeats {
  void operator()(Tokens path, std::span<float> row) const {
    for (std::size_t i = 3; i < path.size(); ++i)
      if (path[i] == path[i - 1]) throw std::runtime_error("there is no such path");
    row[static_cast<std::size_t>(path.back())] = kMasked;
  }
};
struct Oracle {
  const ToyModel& model;
};
std::vector<double> distribution_after(const Oracle& oracle, const List& text, const SamplingParams& params) {
  std::vector<float> row(static_cast<std::size_t>(oracle.model.vocab_size()));
  oracle.model.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
  NoRepeats{}(text, row);
  return plain_distribution(row, params);
}

/// The largest error of a text's probability with the masked draft as the second member of a stack.
template <class Rule, class Shape>
double law_error(Rule rule, const Shape& shape) {
  ToyModel inner(3, 4), plain(3, 5), small(3, 6);
  Processed target{inner, NoRepeats{}}, masked{small, NoRepeats{}};
  Speculator run{TreeVerifier{target, rule}, Stack{ModelDrafter{plain}, ModelDrafter{masked}}, shape};
  return composed_distribution(run, Oracle{inner}, kPlain, List{0, 2, 1}, 2)
      .error;  // throws if a draft fails
}

}  // namespace

TEST_CASE(
    "the text's distribution where a masked draft goes on below tokens that it excludes, or reviews them") {
  CHECK(law_error(Block{}, Horizontal<2, Draw::sampled>{.counts = {1, 2}}) < 1e-12);
  CHECK(law_error(Rejection{}, Horizontal<2, Draw::sampled>{.counts = {2, 1}}) < 1e-12);
  CHECK(law_error(Rejection{}, Cascade<2, Draw::sampled>{.limits = {{{1, 1}, {0, 1}}}}) < 1e-12);
  ToyModel inner(3, 4), plain(3, 5), small(3, 6);
  Processed target{inner, NoRepeats{}}, masked{small, NoRepeats{}};
  Speculator run{TreeVerifier{target, Block{}}, Stack{ModelDrafter{masked}, ModelDrafter{plain}},
                 Vertical<2, Draw::sampled>{.reviews = 2, .length = 1, .lenience = 3}};
  CHECK(composed_distribution(run, Oracle{inner}, kPlain, List{0, 2, 1}, 2).error < 1e-12);
}

TEST_CASE("drafts within the masked target, and one that exits early, go on below a plain draft's tokens") {
  using Model = AbleModel<true, true>;
  for (const Wrap wrap : {Wrap::none, Wrap::masked}) {
    const List prompt{0, 2, 5};
    std::int64_t calls = 0;
    const Grammar grammar{prompt.size(), &calls};
    Model inner(kVocab), able(kVocab, 2);
    ToyModel small(kVocab, 3, 2.0f, 200);
    Processed target{inner, grammar};
    Draft draft(3, wrap, grammar);
    Processed exits{able, grammar};
    const auto text = [&](auto drafter, auto shape) {
      Speculator run{TreeVerifier{target, SampleAndMatch{}}, std::move(drafter), shape};
      List out;
      run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom{3},
                   [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
      CHECK(run.draft_error() == "");
      return out;
    };
    const List plain = text(NoDrafter{kVocab}, Chain<>{});
    const auto both = [&](auto make) {
      CHECK(text(Stack{draft.drafter(), make()}, Horizontal<2>{.counts = {2, 3}}) == plain);
      CHECK(text(Stack{make(), draft.drafter()}, Horizontal<2>{.counts = {2, 3}}) == plain);
      CHECK(text(Stack{make(), draft.drafter()}, Vertical<2>{.reviews = 2, .length = 3}) == plain);
    };
    both([&] { return EarlyExitDrafter{exits, {0.3f}}; });
    both([&] { return LayerSkip{target, SkipRules{.alike = 2, .every = 2, .keep_last = 0}}; });
    CHECK(calls > 100);
  }
}

TEST_CASE("a round of a stack with a masked draft allocates nothing") {
  std::int64_t calls = 0;
  const Grammar grammar{3, &calls};
  ToyModel inner(kVocab, 1, 2.0f, 400), plain(kVocab, 2, 2.0f, 400), small(kVocab, 3, 2.0f, 400);
  Processed target{inner, grammar}, masked{small, grammar};
  Speculator run{TreeVerifier{target, Sampling{}}, Stack{ModelDrafter{plain}, ModelDrafter{masked}},
                 Horizontal<2, Draw::sampled>{.counts = {2, 2}}};
  run.start(List{0, 2, 5});
  PhiloxRandom rng(1);
  const AllocationCount counted;
  for (int round = 0; round < 60; ++round) run.step(rng);
  CHECK(counted.count() == 0);
  CHECK(run.draft_error() == "");
}
