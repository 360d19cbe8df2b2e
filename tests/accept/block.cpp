// labels: optimised
#include <specula/accept/block.hpp>

#include <doctest/doctest.h>
#include <specula/accept/rejection.hpp>

#include "fixed_coins.hpp"

using namespace specula;
using namespace specula_test;

namespace {

Verdict dense(const Case& it, DenseCoins& coins) { return dense_block(it.dense, it.laws, coins); }

const std::vector<float>& operator+=(std::vector<float>& a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Draws a chain from the rows of `draft`, (length, V), by one coin.
TokenTree chain(const std::vector<float>& draft, std::int32_t vocab, double coin) {
  const auto length = static_cast<std::int32_t>(draft.size()) / vocab;
  TokenTree tree(vocab, length + 1, length + 1);
  tree.reset(0, 3);
  FixedCoins coins{coin};
  for (NodeId n = 0; n < length; ++n)
    tree.draw(n, tree.store(n, RowsView{draft.data(), length, vocab, vocab}.row(n), {}), coins);
  return tree;
}

}  // namespace

TEST_CASE("same coins, same verdict as the dense rule: chains of every growth") {
  compare(Block{}, dense, {1, 400, 2, 9, 8}, {.wide = 0});
  compare(Block{}, dense, {2, 200, 3, 9, 6}, {.chooses = false, .wide = 0});
  compare(Block{}, dense, {3, 60, 500, 1600, 6}, {.wide = 0, .spread = 9});
}

TEST_CASE("more than 64 nodes") {
  const ReferenceArithmetic reference;
  Random random(4);
  std::int32_t longest = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Case it =
        random_case(random, 6, {}, {.nodes = 150, .chooses = false, .wide = 0, .spread = 0.02}, i);
    DenseCoins coins(i);
    const Verdict want = dense(it, coins), got = verdict_of(Block{}, it, {}, i);
    CHECK(it.tree.size() == 150);
    CHECK(got.path == want.path);
    CHECK(got.next == want.next);
    longest = std::max(longest, got.accepted());
  }
  CHECK(longest > 10);
}

TEST_CASE("a proposal that is no chain is refused") {
  TokenTree tree(4, 3, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  PhiloxChance chance(1);
  CHECK_THROWS_WITH_AS(judge(Block{}, tree, std::vector<float>(12), chance),
                       "Block: the proposal is no chain; Traversal takes trees", std::invalid_argument);
}

TEST_CASE("coin 0 does not accept a token that the target cannot emit, nor what follows it") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    const TokenTree tree = chain({5, 0, 0, /**/ 0, 1, 0}, 3, 0.0);
    REQUIRE(tree.token(1) == 0);
    FixedCoins zero{0.0};
    const Verdict verdict = judge(Block{}, tree, {-kInf, 1, 2, /**/ 0, 1, 0, /**/ 0, 0, 0}, zero);
    CHECK(verdict.accepted() == 0);
    CHECK(verdict.next == 1);  // the first token with mass left
  }
}

TEST_CASE("a draft that is the target is accepted at the largest coin") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    for (int i = 0; i < 200; ++i) {
      const std::int32_t vocab = 1 + random.below(1200), length = 1 + random.below(4);
      std::vector<float> rows;
      for (std::int32_t n = 0; n < length; ++n) rows += random.row(vocab, i % 2 ? 1 : 12);
      const TokenTree tree = chain(rows, vocab, random.uniform());
      rows += random.row(vocab, 1);
      FixedCoins largest{kLargestCoin};
      CHECK(judge(Block{}, tree, rows, largest).accepted() == length);
    }
  }
}

TEST_CASE("a weak beginning may be saved by what follows, unlike token by token") {
  // p / q is 1/2, then 2: the path as a whole is as likely as under the target.
  const float half = std::log(0.5f), quarter = std::log(0.25f), three = std::log(0.75f);
  const TokenTree tree = chain({half, half, /**/ half, half}, 2, 0.0);
  REQUIRE(tree.token(1) == 0);
  REQUIRE(tree.token(2) == 0);
  const std::vector<float> rows = {quarter, three, /**/ 0, -kInf, /**/ 0, 0};
  FixedCoins coins{0.7}, others{0.7};
  CHECK(judge(Block{}, tree, rows, coins).accepted() == 2);
  CHECK(judge(Rejection{}, tree, rows, others).accepted() == 0);
}

TEST_CASE("point masses against point masses") {
  TokenTree tree(4, 3, 0);
  tree.reset(0, 0);
  tree.choose(0, 2, 1);
  tree.choose(1, 3, 1);
  const std::vector<float> rows = {0, 0, 1, 0, /**/ 1, 0, 0, 0, /**/ 0, 0, 0, 1};
  for (const double coin : {0.0, 0.5, kLargestCoin}) {
    FixedCoins fixed{coin};
    const Verdict out = judge(Block{}, tree, rows, fixed, {.temperature = 0});
    CHECK(out.path == std::vector<NodeId>{0, 1});  // 2 is right for sure, 3 is wrong for sure
    CHECK(out.next == 0);
  }
}

TEST_CASE("nothing proposed, and nothing to choose from") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(5, 4, 0);
    tree.reset(2, 9);
    FixedCoins coins{0.3};
    const Verdict out = judge(Block{}, tree, {0, 1, 2, 1, 0}, coins);
    CHECK(out.path == std::vector<NodeId>{0});
    CHECK(coins.accepts.empty());
    CHECK(coins.draws == std::vector<Site>{{10, 0, Stream::sample, 0}});

    const TokenTree one = chain({7, -3}, 1, 0.5);  // a vocabulary of one token
    FixedCoins high{0.999};
    const Verdict all = judge(Block{}, one, {2, 3, 4}, high);
    CHECK(all.path == std::vector<NodeId>{0, 1, 2});
    CHECK(all.next == 0);
  }
}

TEST_CASE("rows after the end of the path that was tried are read once, those of a bad one are errors") {
  check_rows_read(Block{}, {.nodes = 8, .wide = 0}, [](const Case& it, const Verdict& verdict, NodeId n) {
    if (std::find(verdict.path.begin(), verdict.path.end(), n) != verdict.path.end()) return 1;
    return n == it.tree.size() - 1 ? 0 : 2;  // the last row is for the bonus token only
  });
}

TEST_CASE("coins: from the end to the beginning, then one for the token") {
  const TokenTree tree = chain({0, 0, 0, /**/ 0, 0, 0}, 3, 0.0);
  FixedCoins accepted{0.5};
  judge(Block{}, tree, std::vector<float>(9), accepted);
  CHECK(accepted.accepts == std::vector<Site>{{5, 3, Stream::accept, 2}});
  CHECK(accepted.draws == std::vector<Site>{{6, 0, Stream::sample, 0}});
  FixedCoins rejected{0.9};
  judge(Block{}, tree, {-1, 0, 0, /**/ -1, 0, 0, /**/ 0, 0, 0}, rejected);
  REQUIRE(rejected.accepts.size() >= 2);
  CHECK(rejected.accepts.front() == Site{5, 3, Stream::accept, 2});
  CHECK(rejected.accepts.back() == Site{4, 3, Stream::accept, 1});
  CHECK(rejected.draws == std::vector<Site>{{4, 3, Stream::residual, 0}});
}

static_assert(Block::exact_for(DraftLaw::sampled) && !Block::exact_for(DraftLaw::sampled_iid) &&
              !Block::exact_for(DraftLaw::sampled_distinct) && !Block::exact_for(DraftLaw::mixed) &&
              !Block::exact_for(DraftLaw::shared));
