// labels: optimised
#include <specula/accept/k_seq.hpp>

#include <doctest/doctest.h>
#include <specula/accept/rejection.hpp>

#include "exact_law.hpp"
#include "fixed_coins.hpp"
#include "tree_shapes.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using IidTriple = Bush<DraftLaw::sampled_iid, Child::drawn, Child::drawn, Child::drawn>;

/// Deterministic proposals and chains are judged as rejection would.
Verdict dense(const Case& it, DenseCoins& coins) {
  return it.tree.law() == DraftLaw::deterministic ? dense_rejection(it.dense, it.laws, coins)
                                                  : dense_k_seq(it.dense, it.laws, coins);
}

/// `count` guesses drawn from `q` under the root by one coin.
struct Guesses {
  std::vector<float> p, q;
  std::int32_t count = 2;
  TokenTree tree{static_cast<std::int32_t>(p.size()), count + 1, 1};

  template <class Chance>
  Verdict verify(Chance& chance, const SamplingParams& params = {}) {
    std::vector<float> rows;
    for (std::int32_t n = 0; n <= count; ++n) rows.insert(rows.end(), p.begin(), p.end());
    return judge(KSeq{}, tree, rows, chance, params);
  }
  Token draw(double coin) {
    FixedCoins fixed{coin};
    tree.reset(0, 3);
    const RowLaw law = tree.store(0, q, {});
    for (std::int32_t n = 0; n < count; ++n) tree.draw(0, law, fixed);
    return tree.token(1);
  }
};

/// The exact law of the text against the target's, over several models.
template <class Shape>
double worst(std::int32_t vocab, Shape shape, std::size_t horizon, std::uint64_t seeds = 3) {
  double error = 0;
  const std::vector<Token> prompt = {0, vocab - 1, 0, 1, 0};
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 0.8f, .top_k = 2}}) {
      ToyModel target(vocab, 10 * seed), draft(vocab, 10 * seed + 1);
      Speculator run{TreeVerifier{target, KSeq{}, params}, ModelDrafter{draft}, shape};
      error = std::max(error, composed_law(run, target, params, prompt, horizon).error);
    }
  return error;
}

}  // namespace

TEST_CASE("the target's law is kept: pairs and triples of independent guesses, one and two levels") {
  CHECK(worst(2, IidPair{}, 3) < 1e-12);
  CHECK(worst(3, IidPair{}, 3) < 1e-12);
  CHECK(worst(4, IidPair{}, 2) < 1e-12);
  CHECK(worst(2, IidTriple{}, 3) < 1e-12);
  CHECK(worst(3, IidTriple{}, 2) < 1e-12);
  CHECK(worst(4, IidTriple{}, 1) < 1e-12);
  CHECK(worst(2, IidPair{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(3, IidPair{.depth = 2}, 2, 1) < 1e-12);
  CHECK(worst(3, Bush<DraftLaw::sampled_iid, Child::drawn>{.depth = 3}, 3) < 1e-12);  // a chain
}

TEST_CASE("a whole pipeline over several rounds") {
  ToyModel target(2, 1), draft(2, 2);
  Speculator run{TreeVerifier{target, KSeq{}}, ModelDrafter{draft}, IidPair{.depth = 2}};
  CHECK(whole_law(run, target, {}, {0, 1, 0}, 2).error < 1e-12);
}

TEST_CASE("same coins, same verdict as the dense rule: independent siblings, chains, chosen trees") {
  compare(KSeq{}, dense, {1, 400, 2, 9, 20, 0.8}, {.distinct = false, .chooses = false, .wide = 0.6});
  compare(KSeq{}, dense, {2, 60, 500, 1600, 10, 0.8},
          {.distinct = false, .chooses = false, .wide = 0.5, .spread = 9});
  compare(KSeq{}, dense, {3, 200, 2, 9, 20}, {.draws = false, .distinct = false, .wide = 0.4});
  compare(KSeq{}, dense, {4, 200, 2, 9, 8}, {.wide = 0});
}

TEST_CASE("more than 32 siblings and more than 64 nodes") {
  const ReferenceArithmetic reference;
  Random random(6);
  int compared = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Case it = random_case(
        random, 50, {}, {.nodes = 100, .distinct = false, .chooses = false, .wide = 0.97, .spread = 1}, i);
    std::size_t siblings = 0;
    for (NodeId n = 0; n < it.tree.size(); ++n) siblings = std::max(siblings, it.dense.children(n).size());
    CHECK(it.tree.size() == 100);
    DenseCoins coins(i);
    const Verdict want = dense(it, coins), got = verdict_of(KSeq{}, it, {}, i);
    if (coins.margin < 1e-11) continue;  // with p near q and many siblings, one rho is as good as another
    CHECK(got.path == want.path);
    CHECK(got.next == want.next);
    ++compared;
  }
  CHECK(compared > 20);
  Guesses many{{-kInf, 3, 0}, {4, 0, 1}, 40};
  REQUIRE(many.draw(0.5) == 0);
  FixedCoins zero{0.0};
  CHECK(many.verify(zero).accepted() == 0);
  CHECK(zero.accepts.size() == 40);
}

TEST_CASE("siblings drawn in other ways are refused; on one path there are none") {
  const std::vector<float> row = {0, 1, 2};
  PhiloxChance chance(1);
  const auto tree_of = [&](auto grow) {
    TokenTree tree(3, 3, 1);
    tree.reset(0, 0);
    grow(tree, tree.store(0, row, {}));
    return tree;
  };
  const char* message =
      "KSeq: siblings must be drawn independently from one law, or be chosen; Rejection and Traversal take "
      "any";
  const auto distinct = tree_of([&](TokenTree& tree, const RowLaw& q) {
    tree.draw_distinct(0, q, chance), tree.draw_distinct(0, q, chance);
  });
  const auto mixed =
      tree_of([&](TokenTree& tree, const RowLaw& q) { tree.draw(0, q, chance), tree.choose(0, 1, 1); });
  const auto chain = tree_of(
      [&](TokenTree& tree, const RowLaw& q) { tree.draw_distinct(0, q, chance), tree.choose(1, 1, 1); });
  const std::vector<float> rows(9);
  CHECK_THROWS_WITH_AS(judge(KSeq{}, distinct, rows, chance), message, std::invalid_argument);
  CHECK_THROWS_WITH_AS(judge(KSeq{}, mixed, rows, chance), message, std::invalid_argument);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PhiloxChance ours(seed), theirs(seed);
    const Verdict a = judge(KSeq{}, chain, rows, ours), b = judge(Rejection{}, chain, rows, theirs);
    CHECK(a.path == b.path);
    CHECK(a.next == b.next);
  }
}

TEST_CASE("coin 0 does not accept a token that the target cannot emit") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Guesses guesses{{-kInf, 1, 2}, {5, 0, 0}};
    REQUIRE(guesses.draw(0.0) == 0);
    FixedCoins zero{0.0};
    const Verdict verdict = guesses.verify(zero);
    CHECK(verdict.accepted() == 0);
    CHECK(verdict.next == 1);
  }
}

TEST_CASE("a draft that is the target is accepted at the largest coin; one that shares no token never") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> row = random.row(1 + random.below(1200), i % 2 ? 1 : 12);
      Guesses same{row, row, 2 + i % 3};
      same.draw(random.uniform());
      FixedCoins largest{kLargestCoin};
      CHECK(same.verify(largest).path == std::vector<NodeId>{0, 1});
    }
    Guesses apart{{0, 1, -kInf, -kInf}, {-kInf, -kInf, 0, 1}, 3};
    apart.draw(0.5);
    for (const double coin : {0.0, 0.999}) {
      FixedCoins fixed{coin};
      const Verdict verdict = apart.verify(fixed);
      CHECK(verdict.accepted() == 0);
      CHECK(verdict.next == (coin == 0 ? 0 : 1));
    }
  }
}

TEST_CASE("point masses: the target's, and the draft's") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Guesses drawn{{0, 3, 1}, {0, 1, 0}, 3};  // the target at temperature 0 is sure of token 1
    for (const double coin : {0.1, 0.5, 0.9}) {
      const Token token = drawn.draw(coin);
      FixedCoins zero{0.0}, largest{kLargestCoin};
      CHECK(drawn.verify(zero, {.temperature = 0}).accepted() == (token == 1));
      CHECK(drawn.verify(largest, {.temperature = 0}).next == 1);
    }
    TokenTree tree(4, 4, 0);
    tree.reset(0, 0);
    for (const Token x : {2, 2, 3}) tree.choose(0, x, 1);
    const std::vector<float> rows = {0, 0, 0, 9, /**/ 0, 0, 0, 0, /**/ 0, 0, 0, 0, /**/ 0, 1, 0, 0};
    FixedCoins fixed{0.9};
    CHECK(judge(KSeq{}, tree, rows, fixed).path == std::vector<NodeId>{0, 3});
    CHECK(judge(KSeq{}, tree, rows, fixed, {.temperature = 0}).next == 1);
  }
}

TEST_CASE("nothing proposed, and nothing to choose from") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(5, 4, 0);
    tree.reset(2, 9);
    FixedCoins coins{0.3};
    CHECK(judge(KSeq{}, tree, {0, 1, 2, 1, 0}, coins).path == std::vector<NodeId>{0});
    CHECK(coins.accepts.empty());
    CHECK(coins.draws == std::vector<Site>{{10, 0, Stream::sample, 0}});
    Guesses one{{7}, {-3}, 3};  // a vocabulary of one token
    one.draw(0.5);
    FixedCoins high{0.999};
    CHECK(one.verify(high).path == std::vector<NodeId>{0, 1});
    CHECK(one.verify(high).next == 0);
  }
}

TEST_CASE("rows off the path are never read; a bad row on it is an error that names the node") {
  check_rows_read(KSeq{}, {.nodes = 14, .distinct = false, .chooses = false, .wide = 0.5},
                  [](const Case&, const Verdict& verdict, NodeId n) {
                    return std::find(verdict.path.begin(), verdict.path.end(), n) != verdict.path.end() ? 1
                                                                                                        : 0;
                  });
}

TEST_CASE("coins: one a node tried, then one for the token") {
  Guesses guesses{{0, 0, 0}, {0, 0, 0}};
  guesses.draw(0.0);
  FixedCoins accepted{0.5};
  guesses.verify(accepted);
  CHECK(accepted.accepts == std::vector<Site>{{4, 3, Stream::accept, 1}});
  CHECK(accepted.draws == std::vector<Site>{{5, 0, Stream::sample, 0}});
  guesses.p = {-kInf, 0, 0};
  FixedCoins rejected{0.5};
  guesses.verify(rejected);
  CHECK(rejected.accepts == std::vector<Site>{{4, 3, Stream::accept, 1}, {4, 3, Stream::accept, 2}});
  CHECK(rejected.draws == std::vector<Site>{{4, 3, Stream::residual, 0}});
}

static_assert(KSeq::exact_for(DraftLaw::sampled_iid) && !KSeq::exact_for(DraftLaw::sampled) &&
              !KSeq::exact_for(DraftLaw::sampled_distinct) && !KSeq::exact_for(DraftLaw::mixed));
