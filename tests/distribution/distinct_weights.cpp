// SPDX-License-Identifier: MIT
// DistinctWeights: a distribution without the tokens of a node's children.
#include <specula/distribution/distinct_weights.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include <specula/proposal/proposal_builder.hpp>

#include "dense_rules.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

TEST_CASE("weights, tiles, masses and total, against dense doubles, for the children of one node alone") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    double worst = 0;
    for (int round = 0; round < 200; ++round) {
      const std::int32_t vocab = round % 4 == 0 ? 500 + random.below(1200) : 1 + random.below(9);
      const std::vector<float> logits = mixed_row(random, vocab, 3, 0, round % 3 == 0 ? 0.3 : 0);
      const SamplingParams params{.temperature = 0.8f, .top_k = round % 2 ? 5 : 0};
      ProposalBuilder tree(vocab, 12, 0);
      tree.reset(0, 5);
      const NodeId parent = tree.choose(0, random.below(vocab), 1.0f);
      for (int i = 0; i < 5; ++i) {  // children of `parent`, some with the same token, and of the root
        tree.choose(parent, random.below(vocab), 1.0f);
        tree.choose(0, random.below(vocab), 1.0f);
      }
      RowScan scan(vocab);
      const TokenWeights base = scan.weights(logits, params);
      std::vector<double> masses(base.tile_masses().size());
      const DistinctWeights rest(tree, parent, base, masses);

      std::array<float, kTile> tile;
      double total = 0;
      for (std::size_t t = 0; t < masses.size(); ++t) {
        tile.fill(-1);
        rest.fill(static_cast<std::int32_t>(t), tile.data());
        double in_tile = 0;
        for (std::size_t i = 0; i < tile.size(); ++i) {
          const auto x = static_cast<Token>(t * tile.size() + i);
          const bool taken = x < vocab && tree.has_child(parent, x);
          const double want = x < vocab && !taken ? base(x) : 0.0;
          in_tile += want;
          if (taken) CHECK(tile[i] == 0);
          if (x < vocab) worst = worse(worst, std::abs(rest(x) - want));
          worst = worse(worst, std::abs(static_cast<double>(tile[i]) - want));
        }
        worst = worse(worst, std::abs(rest.tile_masses()[t] - in_tile) / std::max(1.0, in_tile));
        total += in_tile;
      }
      worst = worse(worst, std::abs(rest.total() - total) / std::max(1.0, total));
    }
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("a node whose children are all tokens of the distribution has nothing left") {
  ProposalBuilder tree(3, 6, 0);
  tree.reset(0, 5);
  const std::vector<float> logits{1, 2, 3};
  RowScan scan(3);
  const TokenWeights base = scan.weights(logits, {.temperature = 1.0f, .top_k = 2});
  std::vector<double> masses(1);
  tree.choose(0, 2, 1.0f);
  CHECK(DistinctWeights(tree, 0, base, masses).total() == doctest::Approx(base(1)));
  tree.choose(0, 1, 1.0f);
  CHECK(DistinctWeights(tree, 0, base, masses).total() == 0);
}

TEST_CASE("distinct tokens of rows with structure are drawn until none of any weight is left") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(9);
    for (int round = 0; round < 540; ++round) {
      const RowKind kind = kRowKinds[static_cast<std::size_t>(round) % kRowKinds.size()];
      const std::int32_t vocab = round % 10 == 0 ? 600 : 2 + random.below(6);
      const std::vector<float> row = structured_row(kind, vocab, random);
      const SamplingParams params{.top_k = round % 3 == 0 ? 2 : 0};
      const std::vector<double> q = plain_distribution(row, params);
      ProposalBuilder tree(vocab, 9, 1);
      tree.reset(0, 0);
      PhiloxRandom rng(static_cast<std::uint64_t>(round));
      const Distribution distribution = tree.store(0, row, params);
      bool more = true;
      while (more && tree.room() > 0) {
        const NodeId node = tree.draw_distinct(0, distribution, rng);
        more = node != kNoParent;
        if (more) CHECK(q[static_cast<std::size_t>(tree.token(node))] > 0);
      }
      double left = 0;
      for (Token x = 0; x < vocab; ++x)
        if (!tree.has_child(0, x)) left += q[static_cast<std::size_t>(x)];
      if (!more) CHECK(left < 1e-25);  // no mass, or less than floats hold
    }
  }
}
