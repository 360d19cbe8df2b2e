// SPDX-License-Identifier: MIT
// specula_draw(): the draws of ProposalBuilder, which pass on to specula_verify().
#include <doctest/doctest.h>
#include <specula/accept/compile_c_library.hpp>

#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "c_rounds.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("draws are those of ProposalBuilder at the same keys, bit for bit") {
  Random random(2);
  int none = 0, points = 0, drawn = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::int32_t vocab = i % 50 == 0 ? 700 : 2 + random.below(8), draws = 1 + random.below(5);
    Draws of(random, random.below(3), 1 + random.below(3), draws, vocab);
    of.fields.distinct = random.below(2);
    CHECK(specula_draw(&of.fields) == 0);
    for (std::int32_t r = 0; r < of.fields.rows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      // A spine to the node, and other children of the root, so that the number of the next draw is `first`.
      const std::int32_t depth = of.position[at] - of.origin[at];
      PhiloxRandom uniform(of.seed[at], of.sequence[at]);
      ProposalBuilder tree(vocab, 40, 40);
      tree.reset(0, of.origin[at]);
      NodeId node = 0;
      const std::vector<float> row = of.row(r);
      for (std::int32_t d = 0; d < depth; ++d) node = tree.choose(node, 0, 1);
      const std::vector<float> flat(static_cast<std::size_t>(vocab));
      const Distribution any = tree.store(0, flat, {});
      for (std::int32_t n = 1; n < of.first[at]; ++n) tree.draw(0, any, uniform);
      const Distribution q = depth == 0 && of.first[at] > 1
                                 ? tree.distribution_after(node, row, {.temperature = of.temperature[at]})
                                 : tree.store(node, row, {.temperature = of.temperature[at]});
      for (std::int32_t n = 0; n < draws; ++n) {
        const std::size_t cell = at * static_cast<std::size_t>(draws) + static_cast<std::size_t>(n);
        NodeId child = kNoParent;
        if (of.fields.distinct && depth == 0 && of.first[at] > 1) continue;  // the others are its siblings
        child = of.fields.distinct ? tree.draw_distinct(node, q, uniform) : tree.draw(node, q, uniform);
        if (child == kNoParent) {
          CHECK((of.token[cell] == -1 && of.prob[cell] == 0 && of.scale[cell] == 0));
          ++none;
          continue;
        }
        CHECK(of.token[cell] == tree.token(child));
        CHECK(of.prob[cell] == static_cast<float>(q(tree.token(child))));
        CHECK(of.scale[cell] == (of.fields.distinct && !q.is_point() ? tree.draft_scale(child) : 0));
        ++(q.is_point() ? points : drawn);
      }
    }
  }
  CHECK(none > 100);
  CHECK(points > 100);
  CHECK(drawn > 3000);
}

TEST_CASE("what was drawn passes on to the verification: the results of a proposal that the library drew") {
  Random random(3);
  int accepted = 0, rounds = 0;
  for (int i = 0; i < 600; ++i) {
    const std::int32_t vocab = 3 + random.below(10), draws = 1 + random.below(3), origin = random.below(30);
    const std::uint64_t seed = random.bits();
    const bool distinct = random.bernoulli(0.5);
    const SamplingParams params{.temperature = static_cast<float>(random.between(0.4, 1.5)),
                                .top_k = random.below(4)};
    const auto row = [&] { return random.row(vocab, 2); };
    const std::vector<float> draft[] = {row(), row()};  // after the root, and after its first child
    std::vector<std::vector<float>> target;

    PhiloxRandom uniform(seed);
    ProposalBuilder tree(vocab, 1 + 2 * draws, 2);
    tree.reset(1, origin);
    for (const NodeId node : {0, 1}) {
      if (node >= tree.size()) continue;
      const Distribution q = tree.store(node, draft[node], params);
      for (std::int32_t n = 0; n < draws; ++n)
        if (distinct)
          tree.draw_distinct(node, q, uniform);
        else
          tree.draw(node, q, uniform);
    }
    VerifyWorkspace workspace(vocab, tree.size());
    std::vector<float> rows;
    for (NodeId n = 0; n < tree.size(); ++n) {
      const std::vector<float> one = row();
      rows.insert(rows.end(), one.begin(), one.end());
    }
    const TargetDistributions p(specula::detail::NodeRows(rows.data(), tree.size(), vocab, vocab, nullptr),
                                params, workspace);
    VerifyResult want;
    Traversal{}.decide(tree, p, uniform, want);

    // The same by C: as many draws as the tree has children of the node.
    std::vector<std::int32_t> token{1}, parent{-1}, draft_row{-1};
    std::vector<double> scale{0};
    std::vector<specula_stats> stats(2);
    std::vector<float> draft_rows = draft[0];
    draft_rows.insert(draft_rows.end(), draft[1].begin(), draft[1].end());
    for (std::int32_t node = 0; node < 2; ++node) {
      const std::int32_t position = origin + node, first = static_cast<std::int32_t>(token.size());
      std::vector<std::int32_t> drawn(static_cast<std::size_t>(draws));
      std::vector<double> scales(drawn.size());
      std::int32_t status = 9;
      specula_draft one{};
      one.struct_size = sizeof(one), one.rows = 1, one.draws = draws, one.vocab = vocab;
      one.logits = draft[node].data(), one.position = &position, one.origin = &origin, one.seed = &seed;
      one.temperature = &params.temperature, one.top_k = &params.top_k, one.first = &first;
      one.distinct = distinct, one.out_token = drawn.data(), one.out_scale = scales.data();
      one.out_status = &status, one.out_stats = &stats[static_cast<std::size_t>(node)];
      REQUIRE(specula_draw(&one) == 0);
      for (std::size_t n = 0; n < drawn.size(); ++n) {
        if (drawn[n] < 0) continue;
        token.push_back(drawn[n]), scale.push_back(scales[n]), draft_row.push_back(node),
            parent.push_back(node);
      }
    }
    REQUIRE(static_cast<std::int32_t>(token.size()) == tree.size());
    const std::int32_t begin[] = {0, tree.size()};
    std::vector<std::int32_t> out(3), path(3);
    std::int32_t count = 0, status = 9;
    specula_round round{};
    round.struct_size = sizeof(round), round.sequences = 1, round.nodes = tree.size(), round.vocab = vocab;
    round.width = 3, round.begin = begin, round.token = token.data(), round.position = &origin,
    round.seed = &seed;
    round.target = rows.data(), round.target_rows = tree.size(), round.parent = parent.data();
    round.rule = specula_rule("traversal"), round.temperature = &params.temperature,
    round.top_k = &params.top_k;
    round.draft_form = SPECULA_LOGITS, round.draft = draft_rows.data(), round.draft_rows = 2;
    round.draft_row = draft_row.data(), round.draft_scale = scale.data();
    round.draft_stats = random.bernoulli(0.5) ? stats.data() : nullptr;
    round.out_token = out.data(), round.out_accepted = path.data(), round.out_count = &count;
    round.out_status = &status;
    REQUIRE(specula_verify(&round) == 0);
    REQUIRE(count == static_cast<std::int32_t>(want.accepted.size()));
    CHECK(std::equal(want.accepted.begin(), want.accepted.end(), path.begin()));
    CHECK(out[static_cast<std::size_t>(count) - 1] == want.next_token);
    accepted += count - 1, ++rounds;
  }
  CHECK(accepted > rounds / 2);
}
