// SPDX-License-Identifier: MIT
// labels: optimised
// review(): verification inside cascades, and the distribution q_eff that it records.
#include <specula/proposal/review.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "dense_rules.hpp"
#include "proposal_records.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Error = std::invalid_argument;

/// Forces the outcome of a review, and records its requests.
enum class Outcome { accepted, replaced };
struct Forced {
  Outcome outcome;
  double asked = -1;
  int draws = 0;
  bool accept(double probability, const RandomKey&) {
    asked = probability;
    return outcome == Outcome::accepted;
  }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    ++draws;
    return PhiloxRandom(3).draw(weights, key);
  }
};

/// Remembers the masses of the tiles that it was given.
struct Masses {
  std::vector<double> of = {};
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey&) {
    of.assign(weights.tile_masses().begin(), weights.tile_masses().end());
    return 0;
  }
};

/// The distribution of a token drawn from q and reviewed by p with lenience l: the accepted mass, plus the
/// redrawn mass after a rejection.
Dense lenient_distribution(const Dense& q, const Dense& p, double l) {
  Dense out(q.size()), anew(q.size());
  for (std::size_t x = 0; x < q.size(); ++x) {
    out[x] = std::min(q[x], l * p[x]);
    anew[x] = std::max(0.0, p[x] - q[x] / l);
  }
  const double rejected = 1 - dense_sum(out), rest = dense_sum(anew);
  for (std::size_t x = 0; x < q.size(); ++x)
    if (rejected > 1e-9) out[x] += rejected * anew[x] / rest;
  return out;
}

}  // namespace

TEST_CASE(
    "a review at temperature 0: the largest logit is accepted, else it replaces the node and all after it") {
  const SamplingParams greedy{.temperature = 0};
  const std::vector<float> row = {0, 3, 1, 2};
  const Dense p = plain_distribution(row, {});
  Recorder rng;
  ProposalBuilder tree(4, 8, 0);
  const auto begin = [&](Token judged) {
    tree.reset(0, 5);
    tree.choose(0, 2, 0.5f), tree.choose(1, judged, 0.9f), tree.choose(2, 3, 0.9f), tree.choose(3, 0, 0.9f);
  };
  begin(1);
  CHECK(review(tree, 2, row, greedy, 1, rng));
  CHECK(tree.size() == 5);
  CHECK(tree.token(2) == 1);
  CHECK(tree.confidence(2) == doctest::Approx(p[1]).epsilon(1e-5));  // the reviewer's
  CHECK(tree.confidence(1) == 0.5f);
  CHECK(tree.confidence(3) == 0.9f);

  begin(3);
  CHECK(!review(tree, 2, row, greedy, 1, rng));
  REQUIRE(tree.size() == 3);
  CHECK(tree.room() == 5);
  CHECK(tree.token(2) == 1);
  CHECK(tree.confidence(2) == doctest::Approx(p[1]).epsilon(1e-5));
  CHECK(tree.draft_distribution(2) == Distribution::at(1));
  CHECK(tree.parent(2) == 1);
  CHECK(children(tree, 1) == std::vector<NodeId>{2});
  CHECK(children(tree, 2).empty());
  CHECK(tree.is_chain());
  CHECK(tree.depth(2) == 2);
  tree.choose(2, 0, 1);
  CHECK(children(tree, 2) == std::vector<NodeId>{3});
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(rng.keys.empty());  // no uniform draws

  const std::vector<float> tied = {1, 2, 2, 0};
  begin(1);
  CHECK(review(tree, 2, tied, greedy, 1, rng));
  begin(2);
  CHECK(!review(tree, 2, tied, greedy, 1, rng));  // the first of them is it
  CHECK(tree.token(2) == 1);
}

TEST_CASE("a lenient review at temperature 0 compares confidences, and has lenience 1 for copied tokens") {
  const SamplingParams greedy{.temperature = 0};
  const std::vector<float> row = {0, 3, 1, 2};
  const double p = plain_distribution(row, {})[3];
  Recorder rng;
  ProposalBuilder tree(4, 8, 0);
  const auto accepted = [&](float confidence, double lenience, bool copied) {
    tree.reset(0, 5);
    if (copied)
      tree.copy(0, 3, confidence);
    else
      tree.choose(0, 3, confidence);
    return review(tree, 1, row, greedy, lenience, rng);
  };
  for (const double l : {1.5, 3.0}) {
    CHECK(accepted(static_cast<float>(l * p * 0.99), l, false));
    CHECK(tree.token(1) == 3);
    CHECK(tree.confidence(1) == doctest::Approx(p).epsilon(1e-5));
    CHECK(!accepted(static_cast<float>(l * p * 1.01), l, false));
    CHECK(!accepted(static_cast<float>(l * p * 0.5), l, true));
    CHECK(tree.token(1) == 1);
  }
  CHECK(!accepted(0.0f, 1, false));  // without lenience only the argmax is accepted
  // A token that a reviewer accepted is no longer a copied one for the next.
  tree.reset(0, 5);
  tree.copy(0, 3, 0.01f);
  const std::vector<float> likes = {0, 0, 0, 1};
  CHECK(review(tree, 1, likes, greedy, 3, rng));
  const float confidence = tree.confidence(1);
  CHECK(review(tree, 1, row, greedy, static_cast<double>(confidence) / p * 1.01, rng));
  CHECK(tree.token(1) == 3);
}

TEST_CASE("a review records the token's new distribution, whether it was accepted or replaced") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 4}, {.temperature = 1.4f, .top_p = 0.8f}};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(6);
    double worst = 0;
    int replaced = 0, nothing = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      const std::int32_t vocab = i % 10 == 0 ? 1100 : 2 + random.below(8);
      const SamplingParams& params = settings[i % 3];
      const double l = i % 4 == 0 ? 1 : random.between(1, 6);
      const bool copied = i % 5 == 0;
      const std::vector<float> a = mixed_row(random, vocab, 2), b = mixed_row(random, vocab, 2),
                               c = mixed_row(random, vocab, 2);
      const Dense p = plain_distribution(b, params);
      ProposalBuilder tree(vocab, 5, 5);
      tree.reset(0, 9);
      PhiloxRandom uniforms(i);
      tree.draw(0, tree.store(0, a, params), uniforms);
      const Token fixed = static_cast<Token>(i) % vocab;
      if (copied)  // a point mass, chosen or copied: no lenience
        i % 2 ? tree.copy(1, fixed, 0.5f) : tree.choose(1, fixed, 0.5f);
      else
        tree.draw(1, tree.store(1, a, params), uniforms);
      tree.draw(2, tree.store(2, c, params), uniforms);
      Dense q = plain_distribution(a, params);
      const Token draft_token = tree.token(2);
      if (copied) std::fill(q.begin(), q.end(), 0.0), q[static_cast<std::size_t>(draft_token)] = 1;
      const double lenience = copied ? 1 : l;
      const Dense want = lenient_distribution(q, p, lenience);
      Forced rng{i % 2 ? Outcome::accepted : Outcome::replaced};
      std::vector<float> shown = b;
      const bool accepted = review(tree, 2, shown, params, l, rng);
      std::fill(shown.begin(), shown.end(), 0.0f);                     // the drafter's next call
      if (i % 2 && accepted) review(tree, 3, a, params, l, uniforms);  // and the next review
      worst = worse(worst, largest_difference(tree, 2, want));
      if (rng.asked >= 0)  // a uniform draw was made
        worst = worse(worst, 0.1 * std::abs(rng.asked - want[static_cast<std::size_t>(draft_token)] /
                                                            q[static_cast<std::size_t>(draft_token)]));
      const Token now = tree.token(2);
      CHECK(tree.confidence(2) == doctest::Approx(tree.draft_prob(2, now)).epsilon(1e-5));
      CHECK(tree.size() == (accepted ? 4 : 3));
      CHECK(rng.draws == (accepted ? 0 : 1));
      if (accepted) CHECK(now == draft_token);
      if (!accepted) CHECK(want[static_cast<std::size_t>(now)] > q[static_cast<std::size_t>(now)]);
      if (rng.outcome == Outcome::accepted) CHECK(accepted);
      replaced += !accepted, nothing += rng.asked < 0;
      worst = worse(worst, largest_difference(
                               tree, 1, plain_distribution(a, params)));  // the other nodes are unchanged
      if (accepted && i % 2 == 0)
        worst = worse(worst, largest_difference(tree, 3, plain_distribution(c, params)));
      CHECK(tree.kind() == ProposalKind::sampled);
    }
    CHECK(replaced > 80);
    CHECK(nothing > 5);
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("consecutive reviews: each verifies against the distribution that the one before recorded") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(7);
    double worst = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::int32_t vocab = i % 10 == 0 ? 700 : 3 + random.below(6);
      const std::vector<float> a = mixed_row(random, vocab, 2), b = mixed_row(random, vocab, 2),
                               c = mixed_row(random, vocab, 2);
      ProposalBuilder tree(vocab, 3, 3);
      tree.reset(0, 9);
      PhiloxRandom rng(i);
      tree.draw(0, tree.store(0, a, {}), rng);
      review(tree, 1, b, {}, 2, rng);
      review(tree, 1, c, {}, 3, rng);
      const Dense once = lenient_distribution(plain_distribution(a, {}), plain_distribution(b, {}), 2);
      worst =
          worse(worst, largest_difference(tree, 1, lenient_distribution(once, plain_distribution(c, {}), 3)));
    }
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("a review and a draw give the counts of q_eff: n 20,000") {
  const std::vector<float> a = {0, 1, 2, -1, 0.5f}, b = {1.5f, 1, -1, 0, 0};
  for (const double lenience : {1.0, 2.0}) {
    const Dense want = lenient_distribution(plain_distribution(a, {}), plain_distribution(b, {}), lenience);
    std::vector<int> counts(5);
    ProposalBuilder tree(5, 2, 2);
    for (std::int32_t i = 0; i < 20000; ++i) {
      tree.reset(0, i);
      PhiloxRandom rng(8);
      tree.draw(0, tree.store(0, a, {}), rng);
      review(tree, 1, b, {}, lenience, rng);
      ++counts[static_cast<std::size_t>(tree.token(1))];
    }
    for (std::size_t x = 0; x < 5; ++x)
      CHECK(std::abs(counts[x] - 20000 * want[x]) < 4.5 * std::sqrt(20000 * want[x] * (1 - want[x])));
  }
}

TEST_CASE("the kind of a proposal after reviews") {
  const std::vector<float> row = {0, 5, 0, 0}, other = {5, 0, 0, 0};
  ProposalBuilder tree(4, 8, 8);
  Forced keep{Outcome::accepted}, change{Outcome::replaced};
  tree.reset(0, 0);
  tree.copy(0, 2, 1), tree.copy(1, 2, 1), tree.choose(2, 2, 1);
  CHECK(tree.kind() == ProposalKind::deterministic);
  review(tree, 1, row, {}, 1, keep);
  CHECK(tree.kind() == ProposalKind::sampled);
  review(tree, 2, row, {}, 1, change);
  CHECK(tree.size() == 3);
  CHECK(tree.kind() == ProposalKind::sampled);

  tree.reset(0, 0);
  PhiloxRandom rng(1);
  tree.choose(0, 2, 1);
  tree.draw(1, tree.store(1, row, {}), rng), tree.draw(2, tree.store(2, row, {}), rng);
  CHECK(tree.kind() == ProposalKind::sampled);
  review(tree, 1, other, {.temperature = 0}, 1, rng);  // removes both draws
  CHECK(tree.size() == 2);
  CHECK(tree.kind() == ProposalKind::deterministic);

  tree.reset(0, 0);
  tree.draw(0, tree.store(0, row, {}), rng);
  review(tree, 1, other, {}, 1, change);  // a removed node is not a sibling of later ones
  tree.draw(0, tree.draft_distribution(1), rng);
  CHECK(tree.kind() == ProposalKind::sampled_iid);

  tree.reset(0, 0);  // counts restart
  tree.choose(0, 1, 1), tree.choose(0, 2, 1);
  CHECK(tree.kind() == ProposalKind::deterministic);
  tree.draw(1, tree.store(1, row, {}), rng);
  CHECK(tree.kind() == ProposalKind::mixed);
}

TEST_CASE("a slot that a review overwrote: draws from its new distribution have the right masses") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    constexpr std::int32_t kWide = 1100;
    Random random(9);
    const std::vector<float> a = random.row(kWide, 2), b = random.row(kWide, 2);
    for (const double lenience : {1.0, 2.0}) {
      const Dense want = lenient_distribution(plain_distribution(a, {}), plain_distribution(b, {}), lenience);
      ProposalBuilder tree(kWide, 4, 4);
      tree.reset(0, 9);
      PhiloxRandom rng(1);
      tree.draw(0, tree.store(0, a, {}), rng);  // the scan remembers slot 0
      Forced keep{Outcome::accepted};
      review(tree, 1, b, {}, lenience, keep);
      Masses masses;
      tree.draw(0, tree.draft_distribution(1), masses);
      REQUIRE(masses.of.size() == 3);
      for (std::size_t t = 0; t < 3; ++t) {
        double mass = 0;
        for (std::size_t x = t * 512; x < std::min<std::size_t>(want.size(), (t + 1) * 512); ++x)
          mass += want[x];
        CHECK(masses.of[t] == doctest::Approx(mass).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("uniform draws of reviews are never used twice in a round") {
  Random random(10);
  Recorder rng;
  int accepts = 0, residuals = 0;
  for (std::int32_t round = 0; round < 30; ++round) {
    const std::size_t from = rng.keys.size();
    ProposalBuilder tree(5, 12, 12);
    tree.reset(0, 100 + round);
    for (int turn = 0; turn < 4; ++turn) {
      const NodeId base = tree.size() - 1;
      for (int i = 0; i < 3 && tree.room() > 0; ++i) {
        const NodeId at = tree.size() - 1;
        tree.draw(at, tree.store(at, random.row(5, 2), {}), rng);
      }
      for (NodeId n = base + 1; n < tree.size(); ++n)
        if (!review(tree, n, random.row(5, 2), {}, 1 + turn % 2, rng)) break;
      for (NodeId n = 1; n < tree.size(); ++n)  // and by the reviewer above
        if (turn == 2 && !review(tree, n, random.row(5, 2), {}, 1, rng)) break;
    }
    for (std::size_t i = from; i < rng.keys.size(); ++i) {
      const RandomKey& key = rng.keys[i];
      CHECK(key.origin == 100 + round);
      accepts += key.stream == RandomStream::review_accept;
      residuals += key.stream == RandomStream::review_residual;
      for (std::size_t j = from; j < i; ++j) REQUIRE(key.index != rng.keys[j].index);
    }
  }
  CHECK(accepts > 100);
  CHECK(residuals > 50);

  ProposalBuilder tree(5, 3, 3);
  Recorder one;
  tree.reset(0, 50);
  tree.copy(0, 1, 1);
  tree.copy(1, 1, 1);
  review(tree, 2, std::vector<float>{9, 0, 0, 0, 0}, {}, 1, one);
  REQUIRE(one.keys.size() == 2);
  CHECK(one.keys[0] == RandomKey{52, 50, RandomStream::review_accept, 0});
  CHECK(one.keys[1] == RandomKey{52, 50, RandomStream::review_residual, 1});
}

TEST_CASE("errors of a review change nothing") {
  ProposalBuilder tree(4, 8, 2);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3}, wide(5), bad = {0, NAN, 0, 0};
  const auto begin = [&] {
    tree.reset(0, 0);
    tree.draw(0, tree.store(0, row, {}), rng), tree.choose(1, 1, 1), tree.choose(2, 1, 1);
  };
  begin();
  CHECK_THROWS_WITH_AS(review(tree, 0, row, {}, 1, rng),
                       "review: node 0 is the root, or the tree is no chain", Error);
  CHECK_THROWS_AS(review(tree, 4, row, {}, 1, rng), Error);
  CHECK_THROWS_AS(review(tree, -1, row, {}, 1, rng), Error);
  CHECK_THROWS_WITH_AS(review(tree, 1, row, {}, 0.5, rng), "review: lenience is 0.5, must be in [1, 1e+30]",
                       Error);
  CHECK_THROWS_AS(review(tree, 1, row, {}, std::numeric_limits<double>::infinity(), rng), Error);
  CHECK_THROWS_WITH_AS(review(tree, 1, row, {.min_p = 2}, 1, rng),
                       "SamplingParams::min_p is 2, must be in [0, 1]", Error);
  CHECK_THROWS_AS(review(tree, 1, row, {}, std::nan(""), rng), Error);
  CHECK_THROWS_AS(review(tree, 1, wide, {}, 1, rng), Error);
  CHECK_THROWS_AS(review(tree, 1, wide, {.temperature = 0}, 1, rng), Error);
  CHECK_THROWS_WITH_AS(review(tree, 3, row, {}, 1, rng), "ProposalBuilder: node 2 has no row, 2 are kept",
                       Error);
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 0}})
    for (const double lenience : {1.0, 2.0})
      CHECK_THROWS_WITH_AS(review(tree, 2, bad, params, lenience, rng),
                           "the draft's row after node 1: a row of logits holds NaN or +infinity at token 1",
                           std::runtime_error);
  CHECK(tree.size() == 4);
  CHECK(tree.kind() == ProposalKind::sampled);
  CHECK(largest_difference(tree, 1, plain_distribution(row, {})) < 1e-5);
  CHECK(tree.token(2) == 1);
  CHECK(tree.draft_distribution(2) == Distribution::at(1));
  CHECK(review(tree, 3, {row}, {.temperature = 0}, 1, rng) == false);  // needs no slot

  tree.reset(0, 0);
  tree.choose(0, 1, 1), tree.choose(0, 2, 1);
  CHECK_THROWS_AS(review(tree, 2, row, {.temperature = 0}, 1, rng), Error);
  CHECK_THROWS_AS(review(tree, 1, row, {.temperature = 0}, 1, rng), Error);
  tree.reset(0, 0);
  tree.draw_shared(0, tree.store(0, row, {}), rng);
  CHECK_THROWS_WITH_AS(review(tree, 1, row, {}, 1, rng),
                       "review: the proposal was drawn with the target's own noise", Error);
  tree.reset(0, 0);
  tree.draw(0, tree.store(0, row, {}), rng);
  CHECK_THROWS_WITH_AS(review(tree, 1, row, {.temperature = 0}, 1, rng),
                       "review: node 1 was drawn; a review at temperature 0 requires a chosen node", Error);
}

TEST_CASE("a full tree can be reviewed") {
  ProposalBuilder tree(4, 8, 8);
  const std::vector<float> row = {0, 1, 2, 3};
  Forced change{Outcome::replaced};
  tree.reset(0, 0, 3);
  tree.copy(0, 0, 1), tree.copy(1, 0, 1);
  CHECK(tree.room() == 0);
  CHECK(!review(tree, 2, row, {}, 1, change));
  CHECK(tree.size() == 3);
  CHECK(!review(tree, 1, row, {.temperature = 0}, 1, change));
  CHECK(tree.size() == 2);
  CHECK(tree.room() == 1);
}
