#include <doctest/doctest.h>
#include <specula/concepts.hpp>

#include <specula/specula.hpp>

#include "exact_chance.hpp"
#include "looking_models.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

namespace {

// Models that lack one thing, or say it otherwise.
struct NoCommit : ToyModel {
  using ToyModel::ToyModel;
  void commit(Nodes) = delete;
};
struct NoTruncate : ToyModel {
  using ToyModel::ToyModel;
  void truncate(std::int32_t) = delete;
};
struct NoAppend : ToyModel {
  using ToyModel::ToyModel;
  void append(Tokens) = delete;
};
struct WideSizes : ToyModel {
  using ToyModel::ToyModel;
  std::int64_t size() const { return 0; }
};
struct OwnsRows : ToyModel {
  using ToyModel::ToyModel;
  std::vector<float> extend(Tokens, Nodes) { return {}; }
};
struct SizeNotConst : ToyModel {
  using ToyModel::ToyModel;
  std::int32_t capacity() { return 0; }
};

static_assert(LanguageModel<ToyModel>);
static_assert(!LanguageModel<NoCommit>);
static_assert(!LanguageModel<NoTruncate>);
static_assert(!LanguageModel<NoAppend>);
static_assert(!LanguageModel<WideSizes>);
static_assert(!LanguageModel<OwnsRows>);
static_assert(!LanguageModel<SizeNotConst>);
static_assert(!LanguageModel<int>);

// Targets that can be looked into, and drafts that look.
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
static_assert(LooksInto<ToyGlide, ToyKeyValues> && LooksInto<ToyHead, FeaturesView<float>>);
static_assert(!LooksInto<ToyGlide, FeaturesView<float>> && !LooksInto<ToyHead, FeaturesView<double>> &&
              !LooksInto<ToyModel, ToyKeyValues>);
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

// Drafters.
struct NoSync : NoDrafter {
  using NoDrafter::NoDrafter;
  void sync(Tokens, Tokens) = delete;
};
struct OtherRows : NoDrafter {
  using NoDrafter::NoDrafter;
  std::vector<Token> extend(Tokens, Nodes) { return {}; }
};
static_assert(Drafter<NoDrafter> && !DenseDrafter<NoDrafter>);
static_assert(Drafter<ModelDrafter<ToyModel>> && DenseDrafter<ModelDrafter<ToyModel>>);
static_assert(!Drafter<NoSync>);
static_assert(!Drafter<OtherRows>);
static_assert(!Drafter<ToyModel>);  // a model is no drafter: it has no sync

// Coins.
struct AcceptsInts {
  int accept(double, const Site&) { return 0; }
  template <class Weights>
  Token draw(const Weights&, const Site&) {
    return 0;
  }
};
static_assert(ChanceSource<PhiloxChance> && ChanceSource<specula_test::ExactChance>);
static_assert(!ChanceSource<AcceptsInts> && !ChanceSource<int>);

// Shapes.
struct NoLaw {
  std::int32_t max_nodes() const { return 1; }
  template <class D, class C>
  void propose(D&, const Round&, TokenTree&, C&) {}
};
struct WithLaw : NoLaw {
  static constexpr DraftLaw law = DraftLaw::sampled_iid;
};
struct CountsNoNodes : WithLaw {
  std::int32_t max_nodes() const = delete;
};
static_assert(ProposalShape<Chain<>, NoDrafter> &&
              ProposalShape<Chain<Draw::sampled>, ModelDrafter<ToyModel>>);
static_assert(!ProposalShape<NoLaw, NoDrafter> && ProposalShape<WithLaw, NoDrafter>);
static_assert(!ProposalShape<CountsNoNodes, NoDrafter>);

// Stacks, and the shapes that want so many members of one.
using Pair = Stack<ModelDrafter<ToyModel>, MaxGram>;
static_assert(Drafter<MaxGram> && !DenseDrafter<MaxGram>);
static_assert(Drafter<Pair> && DenseDrafter<Pair> && !DenseDrafter<Stack<MaxGram, ModelDrafter<ToyModel>>>);
static_assert(specula::detail::StackOf<Pair, 2> && !specula::detail::StackOf<Pair, 3> &&
              !specula::detail::StackOf<ModelDrafter<ToyModel>, 1>);
static_assert(ProposalShape<Cascade<2>, Pair> && ProposalShape<Horizontal<2, Draw::sampled>, Pair> &&
              ProposalShape<Vertical<2, Draw::sampled>, Pair> && ProposalShape<Chain<>, Pair>);
static_assert(!ProposalShape<Cascade<3>, Pair> && !ProposalShape<Vertical<>, ModelDrafter<ToyModel>>);

// Rules and verifiers.
struct SaysNothing {
  template <class C>
  void verify(const TokenTree&, const TargetLaws&, C&, Verdict&) const {}
};
struct ForSampled : SaysNothing {
  static constexpr bool exact_for(DraftLaw law) { return law == DraftLaw::sampled; }
};
static_assert(AcceptanceRule<Greedy> && AcceptanceRule<Rejection> && AcceptanceRule<SampleAndMatch> &&
              AcceptanceRule<Sampling>);
static_assert(AcceptanceRule<Lenient> && AcceptanceRule<AcceptLossy<Lenient>>);
static_assert(!AcceptanceRule<SaysNothing> && AcceptanceRule<ForSampled>);
static_assert(Verifier<TreeVerifier<ToyModel, Sampling>> && !Verifier<Sampling> && !Verifier<ToyModel>);

// Losslessness in the type.
template <class Rule, class Shape>
constexpr bool lossless = Lossless<TreeVerifier<ToyModel, Rule>, Shape>;
static_assert(lossless<Rejection, Chain<>> && lossless<Rejection, Chain<Draw::sampled>> &&
              lossless<Sampling, WithLaw>);
static_assert(lossless<Block, Cascade<3, Draw::sampled>> && lossless<Rejection, Vertical<>> &&
              !lossless<Lenient, Horizontal<2, Draw::sampled>>);
static_assert(!lossless<Lenient, Chain<>> && !lossless<Lenient, Chain<Draw::sampled>>);
static_assert(lossless<AcceptLossy<Lenient>, Chain<>>);
static_assert(lossless<ForSampled, Chain<Draw::sampled>> && !lossless<ForSampled, Chain<Draw::greedy>> &&
              !lossless<ForSampled, WithLaw>);

}  // namespace

TEST_CASE("the concepts say yes and no where they should") { CHECK(true); }  // by compiling
