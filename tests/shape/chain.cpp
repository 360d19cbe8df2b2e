// SPDX-License-Identifier: MIT
// Chain: greedy, sampled and shared chains.
#include <specula/shape/chain.hpp>

#include <doctest/doctest.h>

#include <specula/draft/model_drafter.hpp>

#include <algorithm>

#include "plain_distribution.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// Predicts the tokens of a list, then none.
struct ListDrafter {
  std::vector<Token> list;
  std::size_t said = 0;
  Token answer = kNoToken;
  std::int32_t vocab_size() const { return 5; }
  std::int32_t capacity() const { return 100; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) { said = 0; }
  PointMasses extend(Tokens, Nodes) {
    answer = said < list.size() ? list[said++] : kNoToken;
    return {{&answer, 1}};
  }
};

const std::vector<Token> kContext = {0, 1, 2, 3};

std::vector<float> row_after(const ToyModel& model, const TokenTree& tree, NodeId node) {
  std::vector<float> row(static_cast<std::size_t>(model.vocab_size()));
  model.row(node == 0 ? kContext.back() : tree.token(node - 1), tree.token(node), row.data());
  return row;
}

template <Draw mode>
void propose(ProposalBuilder& tree, ToyModel& model, const Chain<mode>& chain, const SamplingParams& params,
             std::uint64_t seed, std::int32_t limit) {
  model.truncate(0);
  ModelDrafter drafter(model);
  tree.reset(2, 4, limit);
  PhiloxRandom rng(seed);
  chain.propose(drafter, ProposeContext{kContext, params, limit}, tree, rng).run();
}

}  // namespace

TEST_CASE("a greedy chain follows the largest logits, for any parameters") {
  ToyModel model(6, 1);
  ProposalBuilder tree(6, 5, 0);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 0}, SamplingParams{.temperature = 3, .top_k = 1}}) {
    propose(tree, model, Chain<Draw::greedy>{.length = 4}, params, 1, 5);
    REQUIRE(tree.size() == 5);
    CHECK(tree.kind() == ProposalKind::deterministic);
    for (NodeId n = 1; n < 5; ++n) {
      const std::vector<float> row = row_after(model, tree, n - 1);
      CHECK(tree.token(n) == std::max_element(row.begin(), row.end()) - row.begin());
      CHECK(tree.confidence(n) ==
            doctest::Approx(plain_distribution(row, {})[static_cast<std::size_t>(tree.token(n))])
                .epsilon(1e-5));
      CHECK(tree.parent(n) == n - 1);
    }
  }
}

TEST_CASE(
    "a sampled chain draws from the draft's rows under the target's parameters, and records that "
    "distribution") {
  ToyModel model(6, 1);
  ProposalBuilder tree(6, 5, 5);
  const SamplingParams params{.temperature = 0.7f, .top_k = 3};
  std::vector<int> counts(6);
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    propose(tree, model, Chain<Draw::sampled>{.length = 4}, params, seed, 5);
    REQUIRE(tree.size() == 5);
    CHECK(tree.kind() == ProposalKind::sampled);
    for (NodeId n = 1; n < 5; ++n) {
      const std::vector<double> q = plain_distribution(row_after(model, tree, n - 1), params);
      CHECK(tree.draft_prob(n, tree.token(n)) ==
            doctest::Approx(q[static_cast<std::size_t>(tree.token(n))]).epsilon(1e-5));
    }
    ++counts[static_cast<std::size_t>(tree.token(1))];
  }
  const std::vector<double> q = plain_distribution(row_after(model, tree, 0), params);
  for (std::size_t x = 0; x < 6; ++x)
    CHECK(std::abs(counts[x] - 500 * q[x]) <= 4.5 * std::sqrt(500 * q[x] * (1 - q[x])));  // n 500
  propose(tree, model, Chain<Draw::sampled>{.length = 4}, {.temperature = 0}, 1, 5);
  CHECK(tree.kind() == ProposalKind::deterministic);  // temperature 0 draws nothing
}

TEST_CASE("exit_below ends the chain after a draft token of low confidence, which is kept") {
  ToyModel model(6, 1);
  ProposalBuilder tree(6, 9, 9);
  int shorter = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    propose(tree, model, Chain<Draw::sampled>{.length = 8, .exit_below = 0.2f}, {}, seed, 9);
    for (NodeId n = 1; n < tree.size(); ++n)
      CHECK((tree.confidence(n) < 0.2f) ==
            (n == tree.size() - 1 && (tree.size() < 9 || tree.confidence(n) < 0.2f)));
    shorter += tree.size() < 9;
    const std::int32_t size = tree.size();
    propose(tree, model, Chain<Draw::sampled>{.length = 8}, {}, seed, 9);  // the same draft tokens, and more
    CHECK(tree.size() == 9);
    CHECK((size == 9 || tree.confidence(size - 1) < 0.2f));
  }
  CHECK(shorter > 100);
}

TEST_CASE("chains are limited by length and room") {
  ToyModel model(6, 1);
  ProposalBuilder tree(6, 9, 9);
  for (std::int32_t limit = 1; limit <= 9; ++limit) {
    const std::int64_t before = model.calls;
    propose(tree, model, Chain<Draw::sampled>{.length = 5}, {}, 3, limit);
    CHECK(tree.size() == std::min(limit, 6));
    CHECK(model.calls - before == tree.size() - 1);  // the last draft token is not run
  }
  propose(tree, model, Chain<Draw::sampled>{.length = 0}, {}, 3, 9);
  CHECK(tree.size() == 1);
  CHECK(Chain<>{.length = 7}.nodes().most == 8);
}

TEST_CASE("point masses: their tokens in every mode, until there are none") {
  ProposalBuilder tree(5, 9, 0);
  PhiloxRandom rng(1);
  ListDrafter drafter{{3, 1, 4}};
  for (const std::int32_t length : {2, 8}) {
    tree.reset(0, 4);
    Chain<Draw::sampled>{.length = length}.propose(drafter, ProposeContext{kContext, {}, 9}, tree, rng).run();
    CHECK(tree.size() == std::min(1 + length, 4));
    CHECK(tree.token(1) == 3);
    CHECK(tree.token(2) == 1);
    CHECK(tree.kind() == ProposalKind::deterministic);
  }
  drafter.list.clear();
  tree.reset(0, 4);
  Chain<>{}.propose(drafter, ProposeContext{kContext, {}, 9}, tree, rng).run();
  CHECK(tree.size() == 1);
}

TEST_CASE("a shared chain draws by the noise of each position, from the distributions of a sampled chain") {
  static_assert(Chain<Draw::shared>::kind == ProposalKind::shared);
  ToyModel model(6, 1);
  ProposalBuilder tree(6, 5, 5);
  const SamplingParams params{.temperature = 0.7f, .top_k = 3};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    propose(tree, model, Chain<Draw::shared>{.length = 4}, params, seed, 5);
    REQUIRE(tree.size() == 5);
    CHECK(tree.kind() == ProposalKind::shared);
    PhiloxRandom rng(seed);
    detail::RowScan scan(6);
    for (NodeId n = 1; n < 5; ++n) {
      const std::vector<float> row = row_after(model, tree, n - 1);
      const Distribution q = scan.distribution(row, params);
      CHECK(tree.token(n) == rng.draw_by_noise(scan.weights(q), RandomKey{4 + n, 0, RandomStream::noise, 0}));
      CHECK(tree.draft_prob(n, tree.token(n)) == doctest::Approx(q(tree.token(n))).epsilon(1e-6));
    }
  }
  propose(tree, model, Chain<Draw::shared>{.length = 4}, {.temperature = 0}, 1, 5);
  CHECK(tree.kind() == ProposalKind::deterministic);

  ListDrafter drafter{{3, 1}};
  PhiloxRandom rng(1);
  ProposalBuilder points(5, 9, 0);
  points.reset(0, 4);
  Chain<Draw::shared>{}.propose(drafter, ProposeContext{kContext, {}, 9}, points, rng).run();
  CHECK(points.size() == 3);
  CHECK(points.kind() == ProposalKind::deterministic);
}
