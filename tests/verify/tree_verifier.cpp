// SPDX-License-Identifier: MIT
// TreeVerifier: one forward pass over the proposal, the rule, the commit.
#include <specula/verify/tree_verifier.hpp>

#include <doctest/doctest.h>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/lossy.hpp>
#include <specula/verify/path_verifier.hpp>

#include <limits>

#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {
using List = std::vector<Token>;

/// A rule that throws after reading all rows.
struct Throws {
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree&, const TargetDistributions& target, C&, VerifyResult&) const {
    target[0];
    throw std::runtime_error("the rule failed");
  }
};

/// Accepts the first child, reading nothing.
struct Blind {
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree&, const TargetDistributions&, C&, VerifyResult& out) const {
    out.clear();
    out.accepted.push_back(1);
    out.next_token = 4;
  }
};

/// Reads the rows of all nodes, and the draft's distributions, without a check of either.
struct Trusting {
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C&, VerifyResult& out) const {
    out.clear();
    out.next_token = target.argmax(tree.size() - 1);
    if (tree.size() > 1) (void)tree.draft_distribution(1);
  }
};
/// A model that gives no row for the last node.
struct Stingy : ToyModel {
  using ToyModel::ToyModel;
  LogitsView extend(Tokens tokens, Nodes parents) {
    LogitsView rows = ToyModel::extend(tokens, parents);
    --rows.rows;
    return rows;
  }
};

/// Returns a given result.
struct Says {
  const VerifyResult* words = nullptr;
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree&, const TargetDistributions&, C&, VerifyResult& out) const {
    out = *words;
  }
};
}  // namespace

TEST_CASE("one forward pass over the tree, and the accepted path is committed") {
  ToyModel target(5, 3);
  TreeVerifier verifier{target, Greedy{}};
  verifier.append(List{1, 2});
  CHECK(verifier.room() == 62);
  CHECK(verifier.vocab_size() == 5);
  // The first largest logits after 2-3 and on, found with rows of the model itself.
  std::vector<float> row(5);
  const auto best = [&](Token a, Token b) {
    target.row(a, b, row.data());
    return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
  };
  const Token x = best(2, 3), y = best(3, x), wrong = x == 0 ? 1 : 0;
  ProposalBuilder tree(5, 8, 0);
  tree.reset(3, 2);
  tree.choose(0, wrong, 1);
  tree.choose(0, x, 1);
  tree.choose(1, 2, 1);
  tree.choose(2, y, 1);
  PhiloxRandom rng(1);
  const VerifyResult& result = verifier.run_round(tree, rng);
  CHECK(result.accepted == std::vector<NodeId>{0, 2, 4});
  CHECK(result.next_token == best(x, y));
  CHECK(target.cache() == List{1, 2, 3, x, y});
  CHECK(target.calls == 1);
  CHECK(verifier.usage().calls == 1);
  CHECK(verifier.usage().nodes == 5);
  CHECK(verifier.room() == 59);
  verifier.truncate(1);
  CHECK(target.cache() == List{1});
}

TEST_CASE("nodes that a drafter left in the target's KV cache do no harm") {
  ToyModel target(5, 3);
  TreeVerifier verifier{target, Greedy{}};
  verifier.append(List{1, 2});
  target.extend(List{4, 4}, std::vector<NodeId>{-1, 0});
  ProposalBuilder tree(5, 2, 0);
  tree.reset(3, 2);
  PhiloxRandom rng(1);
  verifier.run_round(tree, rng);
  CHECK(target.cache() == List{1, 2, 3});
}

TEST_CASE("a proposal larger than the room: an error without effect on the next one") {
  ToyModel target(5, 3, 2.0f, 8);
  TreeVerifier verifier{target, SampleAndMatch{}};
  verifier.append(List{1, 2});
  PhiloxRandom rng(1);
  ProposalBuilder tree(5, 20, 0);
  for (std::int32_t size = 7; size < 10; ++size) {
    tree.reset(3, 2);
    while (tree.size() < size) tree.choose(0, tree.size() % 5, 1);
    CHECK_THROWS_AS(verifier.run_round(tree, rng), std::invalid_argument);
    CHECK(target.cache() == List{1, 2});
    CHECK(verifier.room() == 6);
  }
  tree.reset(3, 2, verifier.room());  // as Speculator does
  CHECK(tree.room() == 5);
  while (tree.room() > 0) tree.choose(0, tree.size() % 5, 1);
  CHECK(verifier.run_round(tree, rng).accepted.size() == 2);  // all tokens are kept
  CHECK(target.size() == 4);
}

TEST_CASE("after any exception the committed context is unchanged") {
  ToyModel target(5, 3);
  ProposalBuilder tree(5, 2, 0);
  tree.reset(3, 2);
  tree.choose(0, 1, 1);
  PhiloxRandom rng(1);
  TreeVerifier failing{target, Throws{}};
  failing.append(List{1, 2});
  CHECK_THROWS_WITH(failing.run_round(tree, rng), "the rule failed");
  CHECK(target.cache() == List{1, 2});
  TreeVerifier verifier{target, Rejection{}};
  target.throw_call = target.calls + 1;
  CHECK_THROWS_WITH(verifier.run_round(tree, rng), "extend failed");
  CHECK(target.cache() == List{1, 2});
  target.poison_call = target.calls + 1;
  tree.reset(3, 2);  // one row, whose last logit is NaN
  CHECK_THROWS_WITH_AS(verifier.run_round(tree, rng),
                       "the target's row after node 0: a row of logits holds NaN or +infinity at token 4",
                       std::runtime_error);
  CHECK(target.cache() == List{1, 2});
  verifier.run_round(tree, rng);
  CHECK(target.cache() == List{1, 2, 3});
}

TEST_CASE("a rule of the caller's own is not called for rows or a proposal that it must not read") {
  PhiloxRandom rng(1);
  ProposalBuilder tree(5, 2, 2);
  const auto drawn = [&](bool with_shared_noise) -> const TokenTree& {
    tree.reset(3, 2);
    const Distribution from = tree.store(0, std::vector<float>(5), {});
    if (with_shared_noise)
      tree.draw_shared(0, from, rng);
    else
      tree.draw(0, from, rng);
    return tree;
  };
  const auto round = [&](auto model, auto rule, bool with_shared_noise) {
    TreeVerifier verifier{model, rule};
    verifier.append(List{1, 2});
    verifier.run_round(drawn(with_shared_noise), rng);
  };
  round(ToyModel(5, 3), Trusting{}, false);
  CHECK_THROWS_WITH_AS(round(Stingy(5, 3), Trusting{}, false),
                       "the target gave 1 rows of 5 logits for a proposal of 2 nodes over 5 tokens",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      round(ToyModel(5, 3), Trusting{}, true),
      "the proposal was drawn with the target's own noise; only rules that do not look at the "
      "draft's distributions may judge it, as GumbelCoupling",
      std::invalid_argument);
  round(ToyModel(5, 3), accept_lossy(Trusting{}), true);
}

TEST_CASE("a proposal that does not match the target's size is refused, and nothing changes") {
  ToyModel target(5, 3);
  TreeVerifier verifier{target, Greedy{}};
  verifier.append(List{1, 2});
  ProposalBuilder tree(5, 2, 0);
  tree.reset(3, 3);
  PhiloxRandom rng(1);
  CHECK_THROWS_WITH_AS(
      verifier.run_round(tree, rng),
      "TreeVerifier::run_round: the proposal follows 3 tokens, but the target holds 2: the drafter "
      "or another pipeline works in the same model, or it was truncated by hand",
      std::logic_error);
  CHECK(target.cache() == List{1, 2});
  CHECK(target.calls == 0);
  CHECK(verifier.size() == 2);
  CHECK(verifier.change_count() == target.change_count());
}

TEST_CASE("a rule's result that is not a path with a token after it: an error, and nothing is committed") {
  ToyModel target(5, 3);
  ProposalBuilder tree(5, 4, 0);
  PhiloxRandom rng(1);
  VerifyResult words;
  const auto check = [&](auto verifier, const std::string& name) {
    verifier.report_logprobs({.top = 1});
    const auto refuses = [&](std::vector<NodeId> path, Token next, const std::string& what) {
      words.accepted = std::move(path), words.next_token = next;
      tree.reset(3, 0);
      tree.choose(0, 1, 1), tree.choose(0, 2, 1), tree.choose(1, 2, 1);
      CHECK_THROWS_WITH_AS(verifier.run_round(tree, rng), (name + "::run_round: the rule's " + what).c_str(),
                           std::logic_error);
      CHECK(target.cache().empty());
      CHECK(verifier.logprobs().size() == 0);
    };
    refuses({}, 1, "path is empty, must begin with the root, node 0");
    refuses({1}, 1, "path has node 1, must begin with the root, node 0");
    refuses({-1}, 1, "path has node -1, must begin with the root, node 0");
    refuses({0, 0}, 1, "path has node 0 after node 0, which has no such child");
    refuses({0, 3}, 1, "path has node 3 after node 0, which has no such child");
    refuses({0, 4}, 1, "path has node 4 after node 0, which has no such child");
    refuses({0, -1}, 1, "path has node -1 after node 0, which has no such child");
    refuses({0, 1}, 5, "next token is 5, the vocabulary has 5 tokens");
    refuses({0, 1}, kNoToken, "next token is -1, the vocabulary has 5 tokens");
    words.accepted = {0, 1, 3}, words.next_token = 4;
    verifier.run_round(tree, rng);
    CHECK(target.cache() == List{3, 1, 2});
    CHECK(verifier.logprobs().size() == 3);
    target.truncate(0);
  };
  check(TreeVerifier{target, Says{&words}}, "TreeVerifier");
  check(PathVerifier{target, Says{&words}}, "PathVerifier");
}

TEST_CASE("log-probabilities are empty after run_round() threw; an invalid request keeps the last one") {
  ToyModel target(5, 3);
  TreeVerifier verifier{target, Greedy{}};
  verifier.report_logprobs({.top = 2});
  ProposalBuilder tree(5, 2, 0);
  PhiloxRandom rng(1);
  tree.reset(3, 0);
  verifier.run_round(tree, rng);
  CHECK_THROWS_AS(verifier.report_logprobs({.top = -1}), std::invalid_argument);
  REQUIRE(verifier.logprobs().size() == 1);
  CHECK(verifier.logprobs().top(0).size() == 2);
  CHECK_THROWS_AS(verifier.run_round(tree, rng), std::logic_error);  // which does not follow the context
  CHECK(verifier.logprobs().size() == 0);
}

TEST_CASE("PathVerifier, too, has set_params() and log-probabilities") {
  ToyModel target(5, 3), twin(5, 3);
  TreeVerifier tree_verifier{target, Greedy{}};
  PathVerifier path_verifier{twin, Greedy{}};
  ProposalBuilder tree(5, 3, 0);
  PhiloxRandom rng(1);
  const auto logprobs = [&](auto& verifier) {
    CHECK_THROWS_AS(verifier.set_params({.top_p = 0}), std::invalid_argument);
    CHECK(verifier.params().top_p == 1);
    verifier.set_params({.temperature = 0.5f});
    verifier.report_logprobs({.top = 2, .processed = true});
    tree.reset(3, 0);
    tree.choose(0, 1, 1), tree.choose(0, 2, 1);
    verifier.run_round(tree, rng);
    std::vector<double> all;
    for (std::size_t i = 0; i < verifier.logprobs().size(); ++i) {
      all.push_back(verifier.logprobs()[i].logprob);
      for (const TokenLogprob& likely : verifier.logprobs().top(i)) all.push_back(likely.logprob);
    }
    return all;
  };
  const auto all = logprobs(tree_verifier);
  CHECK(all.size() >= 3);
  CHECK(logprobs(path_verifier) == all);
}

TEST_CASE("log-probabilities read rows only if requested, and errors name the node of a bad one") {
  ToyModel target(5, 3);
  TreeVerifier verifier{target, Blind{}};
  ProposalBuilder tree(5, 2, 0);
  const auto verify = [&](bool poisoned) {
    verifier.truncate(0);
    if (poisoned) target.poison_call = target.calls + 1;
    tree.reset(3, 0);
    tree.choose(0, 1, 1);
    PhiloxRandom rng(1);
    verifier.run_round(tree, rng);
  };
  verify(true);  // the last row holds NaN
  CHECK(verifier.logprobs().size() == 0);
  verifier.report_logprobs({.top = 5});
  CHECK_THROWS_WITH_AS(verify(true),
                       "the target's row after node 1: a row of logits holds NaN or +infinity at token 4",
                       std::runtime_error);
  CHECK(verifier.logprobs().size() == 0);
  CHECK(target.cache().empty());
  verify(false);
  REQUIRE(verifier.logprobs().size() == 2);
  CHECK(verifier.logprobs()[0].token == 1);
  CHECK(verifier.logprobs()[1].token == 4);
  CHECK(verifier.logprobs().top(1).size() == 5);
  CHECK(verifier.logprobs().first(1).size() == 1);
  verifier.report_no_logprobs();
  verify(true);
  CHECK(verifier.logprobs().size() == 0);
  CHECK_THROWS_WITH_AS(verifier.report_logprobs({.top = -1}), "LogprobOptions::top is -1, must be in [0, 5]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(verifier.report_logprobs({.top = 6}), "LogprobOptions::top is 6, must be in [0, 5]",
                       std::invalid_argument);
}

TEST_CASE("log-probabilities of a masked row: fewer likeliest tokens, and unlikely ones do not underflow") {
  struct Masked : ToyModel {
    using ToyModel::ToyModel;
    std::vector<float> masked;
    LogitsView extend(Tokens tokens, Nodes parents) {
      const LogitsView rows = ToyModel::extend(tokens, parents);
      masked = {0, -2000, -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
      return {masked.data(), rows.rows, 4, 4};
    }
  };
  Masked target(4, 1);
  TreeVerifier verifier{target, Greedy{}};
  verifier.report_logprobs({.top = 3});
  ProposalBuilder tree(4, 1, 0);
  tree.reset(3, 0);
  PhiloxRandom rng(1);
  verifier.run_round(tree, rng);
  REQUIRE(verifier.logprobs().top(0).size() == 2);
  CHECK(verifier.logprobs()[0].logprob == doctest::Approx(0));
  CHECK(verifier.logprobs().top(0)[1].token == 1);
  CHECK(verifier.logprobs().top(0)[1].logprob == doctest::Approx(-2000));
}

TEST_CASE("parameters out of range are refused") {
  ToyModel target(5, 3);
  CHECK_THROWS_AS((TreeVerifier{target, Greedy{}, SamplingParams{.top_p = 0}}), std::invalid_argument);
  const TreeVerifier verifier{target, Greedy{}, SamplingParams{.temperature = 0.5f}};
  CHECK(verifier.params().temperature == 0.5f);
}
