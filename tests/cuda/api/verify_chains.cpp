// SPDX-License-Identifier: MIT
// labels: optimised
// Verification of chains without an array of parents, which reads several rows per pass: results must not
// depend on the plan.
#include <doctest/doctest.h>
#include <specula/cuda/detail/verify/rules.cuh>

#include <specula/accept/exact_rules.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;

namespace {

constexpr Mix kChain{.nodes = 10, .distinct = false, .wide = 0};

/// Chains of a batch with the CPU's results; drafts of any type.
template <class Element>
struct Chains {
  DeviceBatch<Element> batch;
  std::vector<DeviceResult> want;
  std::vector<std::vector<double>> log_probs;
  std::vector<double> margins;

  template <class Rule, class Dense>
  Chains(const Rule& rule, Dense dense, Random& random, int vocab, int count, Mix mix)
      : batch(vocab, vocab + random.below(9), random.below(2)) {
    const auto settings = device_settings();
    for (int i = 0; i < count; ++i) {
      const SamplingParams p = settings[static_cast<std::size_t>(random.below(7))];
      mix.nodes = 1 + random.below(12);
      mix.round = rounding(Element{});
      const Case it = random_case(random, vocab, p, mix, random.bits());
      const std::uint64_t uniforms = random.bits();
      batch.add(it, p, uniforms);
      const VerifyResult result = result_of(rule, it, p, uniforms);
      want.push_back(as_device(result, it.tree));
      log_probs.push_back(log_probs_of(it, p, result));
      DenseUniforms margin(uniforms);
      dense(it, margin);
      margins.push_back(margin.margin);
    }
  }

  /// Results with `rows` rows per pass; where they differ, a uniform draw must be on a boundary.
  template <class DeviceRule, class Draft>
  std::vector<DeviceResult> run(const Draft& draft, int rows, int blocks, int threads, std::uint64_t seed) {
    auto args = batch.args(draft);
    args.trees.parent = nullptr;
    const auto got = emulate_verify<DeviceRule>(batch, args, blocks, threads, seed, Engine::fibers, rows);
    int differ = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (got[i] == want[i]) {
        CHECK(has_log_probs<DeviceRule>(batch, i, log_probs[i]));
        continue;
      }
      ++differ;
      CHECK(margins[i] < 1e-5);
    }
    CHECK(differ <= 1);
    return got;
  }
  /// The same for any plan.
  template <class DeviceRule, class Draft>
  void check(const Draft& draft, Random& random) {
    const auto first = run<DeviceRule>(draft, 1, 1, 64, random.bits());
    for (const int rows : {3, 8})
      CHECK(run<DeviceRule>(draft, rows, 1 + random.below(4), 64 + 32 * random.below(4), random.bits()) ==
            first);
  }
};

const auto rejects = [](const Case& it, DenseUniforms& uniforms) {
  dense_rejection(it.dense, it.distributions, uniforms);
};
const auto traverses = [](const Case& it, DenseUniforms& uniforms) {
  dense_traversal(it.dense, it.distributions, uniforms);
};
const auto matches = [](const Case& it, DenseUniforms& uniforms) {
  dense_match(it.dense, it.distributions, uniforms);
};
const auto nothing = [](const Case&, DenseUniforms&) {};

}  // namespace

TEST_CASE_TEMPLATE("chains: the CPU's results, for any number of rows per pass", Element, float, device::Half,
                   device::BFloat16) {
  Random random(401);
  for (const int vocab : {3, 40, 700}) {
    const int count = vocab == 700 ? 6 : 25;
    Chains<Element> rejection(Rejection{}, rejects, random, vocab, count, kChain);
    rejection.template check<RejectionRule>(rejection.batch.logits_draft(), random);
    Chains<Element> block(Block{}, traverses, random, vocab, count, kChain);
    block.template check<TraversalRule>(block.batch.logits_draft(), random);
    Chains<Element> match(SampleAndMatch{}, matches, random, vocab, count, kChain);
    match.template check<SampleAndMatchRule>(device::ChosenDraft{}, random);
    Chains<Element> greedy(Greedy{}, nothing, random, vocab, count, kChain);
    greedy.template check<GreedyRule>(device::ChosenDraft{}, random);
  }
}

TEST_CASE("chains of chosen draft tokens, of rows of probabilities, and of lists") {
  Random random(402);
  Mix chosen = kChain;
  chosen.draws = false;
  Chains<float> points(Rejection{}, rejects, random, 30, 30, chosen);
  points.check<RejectionRule>(device::ChosenDraft{}, random);
  Chains<float> dense(Rejection{}, rejects, random, 600, 12, kChain);
  dense.check<RejectionRule>(dense.batch.probs_draft(), random);
  Chains<device::BFloat16> mixed(Block{}, traverses, random, 600, 12, kChain);  // rows of two element sizes
  mixed.check<TraversalRule>(mixed.batch.probs_draft(), random);
  Chains<float> lists(Rejection{}, rejects, random, 20, 30, kChain);
  lists.check<RejectionRule>(lists.batch.sparse_draft(20), random);
}

TEST_CASE("rows that are read ahead may be bad, if no draft token leads there") {
  // Draft token 1 is never accepted: the row after it is NaN.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  DeviceBatch<float> b(4);
  b.begin = {0, 4}, b.position = {4}, b.seed = {1}, b.params = {{}};
  b.token = {0, 1, 1, 1};
  b.max_nodes = b.width = 4;
  const std::vector<float> first{9, -90, 9, 9}, bad(4, nan);
  for (int n = 0; n < 4; ++n) b.add_row(b.target, n == 0 ? first.data() : bad.data());
  for (const int rows : {1, 4}) {
    auto args = b.args(device::ChosenDraft{});
    args.trees.parent = nullptr;
    for (const DeviceResult& v :
         {emulate_verify<RejectionRule>(b, args, 2, 64, 3, Engine::fibers, rows)[0],
          emulate_verify<SampleAndMatchRule>(b, args, 1, 96, 4, Engine::fibers, rows)[0]}) {
      CHECK(v.status == device::Status::ok);
      CHECK(v.accepted == std::vector<NodeId>{0});
    }
  }
}

template <class Element>
void check_bad_row(const SamplingParams& params) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> sure{0, 90, 0, 0}, bad{nan, 0, 50, 0};
  for (const int at : {1, 3}) {
    DeviceBatch<Element> b(4);
    b.begin = {0, 4}, b.position = {4}, b.seed = {1}, b.params = {params};
    b.token = {0, 1, at == 1 ? 2 : 1, 2};
    b.max_nodes = b.width = 4;
    for (int n = 0; n < 4; ++n) b.add_row(b.target, n == at ? bad.data() : sure.data());
    for (const int rows : {1, 2, 4}) {
      auto args = b.args(device::ChosenDraft{});
      args.trees.parent = nullptr;
      const auto results = [&](auto rule, int blocks, int threads) {
        return emulate_verify<decltype(rule)>(b, args, blocks, threads, 3, Engine::fibers, rows)[0];
      };
      for (const DeviceResult& v : {results(RejectionRule{}, 2, 64), results(TraversalRule{}, 1, 96),
                                    results(SampleAndMatchRule{}, 1, 96)}) {
        CAPTURE(rows);
        if (at == 1) {
          CHECK(v.status == device::Status::not_a_number);
          CHECK(v.tokens.empty());
        } else {  // below a token that is rejected
          CHECK(v.status == device::Status::ok);
          CHECK(v.tokens == std::vector<Token>{1, 1, 1});
        }
      }
    }
  }
}

TEST_CASE("a bad row on the path sets the sequence's status, however likely the draft token after it") {
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_p = 0.9f}, SamplingParams{.top_k = 2}}) {
    check_bad_row<float>(params);
    check_bad_row<device::BFloat16>(params);
  }
}

TEST_CASE("padding and nodes below it have no row in a map, and none is read ahead for them") {
  DeviceBatch<float> b(4);
  b.begin = {0, 4}, b.position = {4}, b.seed = {1}, b.params = {{}};
  b.token = {0, 0, -1, 1};  // a draft token 0 is no padding
  b.max_nodes = b.width = 4;
  const std::vector<float> certain{0, 0, 90, 0}, root{90, 0, 0, 0};
  b.add_row(b.target, certain.data());
  b.add_row(b.target, root.data());
  const std::int32_t map[] = {1, 0, 1 << 30, -(1 << 30)};
  auto args = b.args(device::ChosenDraft{});
  args.trees.parent = nullptr;
  args.target.row_of_node = map;
  for (const int rows : {1, 4})
    for (const DeviceResult& v :
         {emulate_verify<RejectionRule>(b, args, 2, 64, 3, Engine::fibers, rows)[0],
          emulate_verify<TraversalRule>(b, args, 1, 64, 5, Engine::fibers, rows)[0],
          emulate_verify<SampleAndMatchRule>(b, args, 1, 96, 4, Engine::fibers, rows)[0]}) {
      CHECK(v.status == device::Status::ok);
      CHECK(v.tokens == std::vector<Token>{0, 2});
    }
  // They have no draft row either, in trees and in chains.
  const device::RowStats distribution{std::log(std::exp(90.0) + 3) - 90,
                                      90,
                                      1,
                                      -std::numeric_limits<float>::infinity(),
                                      device::kNoToken,
                                      device::Status::ok};
  const std::int32_t draft_map[] = {-1, 0, 1 << 30, 1 << 30};
  const std::vector<NodeId> parents{-1, 0, 1, 2};
  for (const NodeId* parent : {static_cast<const NodeId*>(nullptr), parents.data()})
    for (const std::int64_t count : {0, 1}) {
      auto drawn =
          b.args(device::LogitsDraft<float>{certain.data(), 4, &distribution, draft_map, nullptr, count});
      drawn.trees.parent = parent;
      drawn.target.row_of_node = map;
      for (const DeviceResult& v :
           {emulate_verify<RejectionRule>(b, drawn, 2, 64, 3, Engine::fibers, 4)[0],
            emulate_verify<TraversalRule>(b, drawn, 1, 64, 5, Engine::fibers, 4)[0]}) {
        CHECK(v.status == device::Status::ok);
        CHECK(v.tokens == std::vector<Token>{0, 2});
      }
    }
}

TEST_CASE("a draft token whose draft row is out of range: a status for its sequence") {
  Random random(403);
  DeviceBatch<float> b(30);
  for (int i = 0; i < 3; ++i)
    b.add(random_case(random, 30, {}, {.nodes = 6, .chooses = false}, random.bits()), {}, 7);
  auto draft = b.logits_draft();
  draft.rows = static_cast<std::int64_t>(b.stats.size());
  const auto good = emulate_verify<RejectionRule>(b, b.args(draft));
  for (const DeviceResult& v : good) CHECK(v.status == device::Status::ok);
  b.draft_row[static_cast<std::size_t>(b.begin[1] + 1)] = static_cast<std::int32_t>(draft.rows);
  draft.row_of_node = b.draft_row.data();
  const auto got = emulate_verify<RejectionRule>(b, b.args(draft));
  CHECK(got[0] == good[0]);
  CHECK(got[1].status == device::Status::bad_draft_row);
  CHECK(got[1].tokens.empty());
  CHECK(got[2] == good[2]);
}
