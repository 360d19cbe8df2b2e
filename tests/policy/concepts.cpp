// SPDX-License-Identifier: MIT
// The concepts of concepts.hpp, and checks of shapes' fields and drafters' rows.
#include <specula/policy/concepts.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "conditioned_models.hpp"
#include "every_shape.hpp"
#include "exact_random.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

namespace {

// Targets that expose their state, and drafts conditioned on it.
using specula_test::SeenModel, specula_test::ToyGlide, specula_test::ToyHead, specula_test::ToyKeyValues;
struct WideViews : SeenModel {
  using SeenModel::SeenModel;
  struct View {
    std::int64_t size() const { return 0; }
    std::int32_t width() const { return 0; }
    int row(std::int32_t) const { return 0; }
  };
  View key_values() { return {}; }
  View features() { return {}; }
};
struct KeysButNoCommit : SeenModel {
  using SeenModel::SeenModel;
  void commit(Nodes) = delete;
};
struct NoRows : SeenModel {
  using SeenModel::SeenModel;
  ToyKeyValues features() { return {}; }
};
static_assert(ExposesKeyValues<SeenModel> && ExposesFeatures<SeenModel>);
static_assert(!ExposesKeyValues<ToyModel> && !ExposesFeatures<ToyModel>);
static_assert(!ExposesKeyValues<WideViews> && !ExposesFeatures<WideViews>);
static_assert(!ExposesKeyValues<KeysButNoCommit> && !ExposesFeatures<KeysButNoCommit>);
static_assert(ExposesKeyValues<NoRows> && !ExposesFeatures<NoRows>);
static_assert(!ExposesKeyValues<const SeenModel>);
// Drafts that lack one member, or have it with another type.
struct NamesNoView : ToyGlide {
  using TargetKeyValues = void;
};
struct NamesAnotherView : ToyGlide {
  using TargetKeyValues = int;
};
struct SaysNotWhatItReads : ToyHead {
  void conditioned_on() const {}
};
struct SaysNotWhetherItKeeps : ToyHead {
  int keeps_speculation() const { return 0; }
};
struct TakesNothing : ToyHead {
  void set_target_state(const FeaturesView<float>&) = delete;
};
static_assert(TargetConditioned<ToyGlide> && TargetConditioned<ToyHead> && !TargetConditioned<ToyModel>);
static_assert(!TargetConditioned<NamesNoView> && !TargetConditioned<NamesAnotherView> &&
              !TargetConditioned<SaysNotWhatItReads> && !TargetConditioned<SaysNotWhetherItKeeps> &&
              !TargetConditioned<TakesNothing>);
template <class D, class T>
concept Glides = requires(D& d, T& t) {
  Glide{d, t};
};
template <class D, class T>
concept Heads = requires(D& d, T& t) {
  FeatureHead{d, t};
};
static_assert(Glides<ToyGlide, SeenModel> && !Glides<ToyGlide, ToyModel> && !Glides<ToyHead, SeenModel> &&
              !Glides<ToyModel, SeenModel>);
static_assert(Heads<ToyHead, SeenModel> && !Heads<ToyHead, ToyModel> && !Heads<ToyGlide, SeenModel>);
struct WideHead : ToyHead {  // takes another view than the target gives
  using TargetFeatures = FeaturesView<double>;
  void set_target_state(const FeaturesView<double>&) {}
};
static_assert(TargetConditioned<WideHead> && !Heads<WideHead, SeenModel>);

// Drafters.
struct NoSync : NoDrafter {
  using NoDrafter::NoDrafter;
  void sync(Tokens, Tokens) = delete;
};
struct OtherRows : NoDrafter {
  using NoDrafter::NoDrafter;
  std::vector<Token> extend(Tokens, Nodes) { return {}; }
};
static_assert(Drafter<NoDrafter> && !LogitsDrafter<NoDrafter>);
static_assert(Drafter<ModelDrafter<ToyModel>> && LogitsDrafter<ModelDrafter<ToyModel>>);
static_assert(!Drafter<NoSync>);
static_assert(!Drafter<OtherRows>);
static_assert(!Drafter<ToyModel>);  // a model is no drafter: it has no sync

// Uniform draws.
struct AcceptsInts {
  int accept(double, const RandomKey&) { return 0; }
  template <class Weights>
  Token draw(const Weights&, const RandomKey&) {
    return 0;
  }
};
static_assert(RandomSource<PhiloxRandom> && RandomSource<specula_test::ExactRandom>);
static_assert(!RandomSource<AcceptsInts> && !RandomSource<int>);

// Shapes.
struct NoKind {
  NodeCounts nodes() const { return {1}; }
  template <class D, class C>
  void propose(D&, const ProposeContext&, ProposalBuilder&, C&) {}
};
struct WithKind : NoKind {
  static constexpr ProposalKind kind = ProposalKind::sampled_iid;
};
struct CountsNoNodes : WithKind {
  NodeCounts nodes() const = delete;
};
struct CountsOneNumber : WithKind {
  std::int32_t nodes() const { return 1; }
};
static_assert(ProposalShape<Chain<>, NoDrafter> &&
              ProposalShape<Chain<Draw::sampled>, ModelDrafter<ToyModel>>);
static_assert(!ProposalShape<NoKind, NoDrafter> && ProposalShape<WithKind, NoDrafter>);
static_assert(!ProposalShape<CountsNoNodes, NoDrafter> && !ProposalShape<CountsOneNumber, NoDrafter>);

// Stacks, and the shapes that require a given number of members.
using Pair = Stack<ModelDrafter<ToyModel>, MaxGram>;
static_assert(Drafter<MaxGram> && !LogitsDrafter<MaxGram>);
static_assert(Drafter<Pair> && LogitsDrafter<Pair> && !LogitsDrafter<Stack<MaxGram, ModelDrafter<ToyModel>>>);
static_assert(specula::detail::StackOf<Pair, 2> && !specula::detail::StackOf<Pair, 3> &&
              !specula::detail::StackOf<ModelDrafter<ToyModel>, 1>);
static_assert(ProposalShape<Cascade<2>, Pair> && ProposalShape<Horizontal<2, Draw::sampled>, Pair> &&
              ProposalShape<Vertical<2, Draw::sampled>, Pair> && ProposalShape<Chain<>, Pair> &&
              ProposalShape<Either<Cape>, Pair>);
static_assert(!ProposalShape<Either<Chain<>>, ModelDrafter<ToyModel>> && !ProposalShape<Cascade<3>, Pair> &&
              !ProposalShape<Vertical<>, ModelDrafter<ToyModel>>);

// Rules and verifiers.
struct SaysNothing {
  template <class C>
  void decide(const TokenTree&, const TargetDistributions&, C&, VerifyResult&) const {}
};
struct ForSampled : SaysNothing {
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }
};
static_assert(AcceptanceRule<Greedy> && AcceptanceRule<Rejection> && AcceptanceRule<SampleAndMatch> &&
              AcceptanceRule<Sampling>);
static_assert(AcceptanceRule<Lenient> && AcceptanceRule<AcceptLossy<Lenient>>);
static_assert(!AcceptanceRule<SaysNothing> && AcceptanceRule<ForSampled>);
static_assert(Verifier<TreeVerifier<ToyModel, Sampling>> && !Verifier<Sampling> && !Verifier<ToyModel>);
using Tree = TreeVerifier<ToyModel, Sampling>;
struct ReservesNothing : Tree {
  void reserve(const Sizes&) = delete;
};
struct MayThrowUsage : Tree {
  Usage usage() const { return {}; }
};
struct NamesNoCache : Tree {
  int cache_id() const { return 0; }
};
struct HasNoLogprobs : Tree {
  void logprobs() const {}
};
static_assert(!Verifier<ReservesNothing> && !Verifier<MayThrowUsage> && !Verifier<NamesNoCache> &&
              !Verifier<HasNoLogprobs>);

// Losslessness in the type.
template <class Rule, class Shape>
constexpr bool lossless = Lossless<TreeVerifier<ToyModel, Rule>, Shape>;
static_assert(lossless<Rejection, Chain<>> && lossless<Rejection, Chain<Draw::sampled>> &&
              lossless<Sampling, WithKind>);
static_assert(lossless<Block, Cascade<3, Draw::sampled>> && lossless<Rejection, Vertical<>> &&
              !lossless<Lenient, Horizontal<2, Draw::sampled>>);
static_assert(!lossless<Lenient, Chain<>> && !lossless<Lenient, Chain<Draw::sampled>>);
static_assert(lossless<AcceptLossy<Lenient>, Chain<>>);
static_assert(lossless<ForSampled, Chain<Draw::sampled>> && !lossless<ForSampled, Chain<Draw::greedy>> &&
              !lossless<ForSampled, WithKind>);

}  // namespace

TEST_CASE("concepts accept and reject the right types") { CHECK(true); }  // static_asserts above

TEST_CASE("fields of shapes out of range: name, value and range") {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const std::string draft_tokens = ", must be in [0, 16777214]", unit = ", must be in [0, 1]",
                    lenience = ", must be in [1, 1e+30]", nodes = ", must be in [1, 16777215]";
  const auto refuses = [](const auto& shape, const std::string& message) {
    CHECK_THROWS_WITH_AS(shape.validate(), message.c_str(), std::invalid_argument);
  };
  refuses(Chain<>{.length = -3}, "Chain::length is -3" + draft_tokens);
  refuses(Chain<>{.length = most}, "Chain::length is 2147483647" + draft_tokens);
  refuses(Chain<>{.exit_below = NAN}, "Chain::exit_below is nan" + unit);
  refuses(CostAware(Chain<>{.length = -3}), "Chain::length is -3" + draft_tokens);
  refuses(AdaptiveChain<>{.end = {.longest = -1}}, "ThresholdEnd::longest is -1" + draft_tokens);
  refuses(AdaptiveChain<>{.end = {.threshold = NAN}}, "ThresholdEnd::threshold is nan" + unit);
  refuses(AdaptiveChain<>{.end = {.goal = 2}}, "ThresholdEnd::goal is 2" + unit);
  refuses(AdaptiveChain<>{.end = {.step = -1}}, "ThresholdEnd::step is -1" + unit);
  refuses(AdaptiveChain<>{.end = {.inertia = NAN}}, "ThresholdEnd::inertia is nan" + unit);
  refuses(AdaptiveChain<>{.end = {.memory = NAN}}, "ThresholdEnd::memory is nan" + unit);
  refuses(AdaptiveChain<>{.end = {.rate = NAN}}, "ThresholdEnd::rate is nan" + unit);
  refuses(AdaptiveChain<HeuristicEnd>{.end = {.longest = most}},
          "HeuristicEnd::longest is 2147483647" + draft_tokens);
  refuses(AdaptiveChain<HeuristicEnd>{.end = {.now = -5}},
          "HeuristicEnd::now is -5, must be in [1, 16777214]");
  refuses(Cape{.length = -3}, "Cape::length is -3" + draft_tokens);
  refuses(Cape{.budget = -1}, "Cape::budget is -1" + draft_tokens);
  refuses(Cape{.extras = CapeExtras::fixed(-1)}, "CapeExtras::counts[0] is -1" + draft_tokens);
  refuses(Cape{.extras = {.thresholds = {0.1f, NAN, 1}}}, "CapeExtras::thresholds[1] is nan" + unit);
  refuses(Cape{.extras = {.thresholds = {0.5f, 0.25f, 1}}},
          "CapeExtras::thresholds[1] is 0.25, below the one before it, 0.5");
  refuses(Beam{.width = -2, .length = -2}, "Beam::width is -2" + draft_tokens);
  refuses(Beam{.length = -2}, "Beam::length is -2" + draft_tokens);
  refuses(Beam{.width = 1 << 20, .length = 1 << 20}, "Beam: nodes().most is 16777216" + nodes);
  refuses(DynamicTree{.top_k = -3, .expansions = 2}, "DynamicTree::top_k is -3" + draft_tokens);
  refuses(DynamicTree{.expansions = -1}, "DynamicTree::expansions is -1" + draft_tokens);
  refuses(DynamicTree{.total = most}, "DynamicTree::total is 2147483647" + draft_tokens);
  using IidTree = SampledTree<ProposalKind::sampled_iid>;
  refuses(IidTree{.widths = {2, -1, 3}}, "SampledTree::widths[1] is -1" + draft_tokens);
  refuses(IidTree{.widths = {1 << 12, 1 << 12}}, "SampledTree: nodes().most is 16777216" + nodes);
  refuses(StaticTree<ProposalKind::sampled_distinct>{.form = {{0}, {2}}},
          "StaticTree: the 2 children of node 0 have ranks up to 2; draws have no gaps");
  refuses(Horizontal<2>{.counts = {-1, 3}}, "Horizontal::counts[0] is -1" + draft_tokens);
  refuses(Horizontal<2>{.counts = {1 << 23, 1 << 23}}, "Horizontal: nodes().most is 16777216" + nodes);
  refuses(Vertical<2>{.reviews = -2, .length = -3}, "Vertical::reviews is -2" + draft_tokens);
  refuses(Vertical<2>{.length = -3}, "Vertical::length is -3" + draft_tokens);
  refuses(Vertical<2>{.lenience = .5}, "Vertical::lenience is 0.5" + lenience);
  refuses(Vertical<2>{.lenience = NAN}, "Vertical::lenience is nan" + lenience);
  refuses(Vertical<2>{.reviews = 1 << 20, .length = 1 << 20}, "Vertical: nodes().most is 16777216" + nodes);
  refuses(Cascade<2>{.limits = {{{-1, 1}, {0, 1}}}}, "Cascade::limits[0][0] is -1" + draft_tokens);
  refuses(Cascade<2>{.limits = {{{1, 1}, {1, 1}}}},
          "Cascade::limits[1][0] is 1, must be 0: it is below the diagonal");
  refuses(Cascade<2>{.lenience = INFINITY}, "Cascade::lenience is inf" + lenience);
  refuses(Cascade<2>{.limits = {{{1 << 23, 1 << 23}, {0, 1 << 23}}}},
          "Cascade: nodes().most is 16777216" + nodes);
  specula_test::for_every_shape([](const auto& shape, specula_test::Enumerable) { shape.validate(); });
  specula_test::for_every_cascade([](const auto& shape) { shape.validate(); });

  ToyModel target(3, 1), draft(3, 2);  // the pipeline's constructor checks them first
  CHECK_THROWS_WITH_AS(
      (Speculator{TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, Chain<>{.length = -3}}),
      ("Chain::length is -3" + draft_tokens).c_str(), std::invalid_argument);
}

namespace {
/// A drafter that returns `missing` rows too few, or rows `wider` than its vocabulary.
struct Liar {
  std::int32_t missing = 1, wider = 0;
  std::vector<float> logits = std::vector<float>(64);
  std::int32_t vocab_size() const { return 3; }
  std::int32_t capacity() const { return 100; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) {}
  LogitsView extend(Tokens tokens, Nodes) {
    return {logits.data(), static_cast<std::int32_t>(tokens.size()) - missing, 3 + wider, 3 + wider};
  }
};
/// The same without rows.
struct PointLiar : Liar {
  std::vector<Token> said = {1, 1};
  std::vector<float> sure = {1, 1};
  std::size_t tokens = 0, confidences = 0;
  PointMasses extend(Tokens, Nodes) {
    return {Tokens(said).first(tokens), std::span<const float>(sure).first(confidences)};
  }
};
}  // namespace

TEST_CASE(
    "under every shape, a wrong number or width of a drafter's rows is an error that names the numbers") {
  ProposalBuilder tree(3, 40, 40);
  const std::vector<Token> context = {0};
  const ProposeContext round{context, {}, 40};
  PhiloxRandom rng(1);
  const auto propose = [&](auto shape, auto drafter) {
    if constexpr (Reserves<std::remove_cvref_t<decltype(shape)>>) shape.reserve({});
    tree.reset(0, 1);
    shape.propose(drafter, round, tree, rng).run();
  };
  const auto refuses = [&](auto shape, auto make) {
    const auto message = [](std::int32_t rows, std::int32_t vocab) {
      return "the draft gave " + std::to_string(rows) + " rows of " + std::to_string(vocab) +
             " logits for 1 nodes over 3 tokens";
    };
    CHECK_THROWS_WITH_AS(propose(shape, make(Liar{})), message(0, 3).c_str(), std::invalid_argument);
    CHECK_THROWS_WITH_AS(propose(shape, make(Liar{.missing = -1})), message(2, 3).c_str(),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(propose(shape, make(Liar{.missing = 0, .wider = 1})), message(1, 4).c_str(),
                         std::invalid_argument);
  };
  const auto alone = [](Liar liar) { return liar; };
  const auto stack = [](Liar liar) { return Stack{liar, NoDrafter{3}}; };
  specula_test::for_every_shape([&](const auto& shape, specula_test::Enumerable) { refuses(shape, alone); });
  specula_test::for_every_cascade([&](const auto& shape) { refuses(shape, stack); });

  const auto points = [&](std::size_t tokens, std::size_t confidences) {
    PointLiar liar;
    liar.tokens = tokens, liar.confidences = confidences;
    propose(Chain<>{.length = 1}, liar);
  };
  points(1, 0), points(1, 1);
  CHECK_THROWS_WITH_AS(points(0, 0), "the draft gave 0 tokens and 0 confidences for 1 nodes",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(points(1, 2), "the draft gave 1 tokens and 2 confidences for 1 nodes",
                       std::invalid_argument);
  PointLiar liar;
  CHECK_THROWS_WITH_AS(ask(liar, tree, context, {}).now(), "ask: 0 parents for 1 tokens",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(expect_rows(LogitsView{.rows = 2, .vocab = 3}, 2, tree),
                       "the draft's rows of 3 logits are 0 floats apart: they overlap",
                       std::invalid_argument);
}
