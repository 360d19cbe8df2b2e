// SPDX-License-Identifier: MIT
// labels: optimised
// What an engine asks of a batch: empty slots, a number of sequences that changes, parameters in separate
// arrays, plans without truncation.
#include <doctest/doctest.h>
#include <specula/accept/exact_rules.hpp>
#include <specula/cuda/detail/verify/rules.cuh>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;
using device::Status;

namespace {

/// Random sequences under these parameters, by turns, with what the CPU makes of them.
struct Batch {
  DeviceBatch<float> device{700};
  std::vector<DeviceResult> want;

  explicit Batch(const std::vector<SamplingParams>& settings, int sequences, std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < sequences; ++i) {
      const SamplingParams& p = settings[static_cast<std::size_t>(i) % settings.size()];
      const Case it =
          random_case(random, device.vocab, p, {.nodes = 6, .chooses = false, .wide = 0.5}, random.bits());
      device.add(it, p, 77);
      want.push_back(as_device(result_of(Rejection{}, it, p, 77), it.tree));
    }
  }
  auto args() { return device.args(device.logits_draft()); }
};

}  // namespace

TEST_CASE("empty slots anywhere: no error, nothing emitted, and the others' results") {
  const Batch all({{}, {.temperature = 0.7f, .top_k = 9}}, 6, 1);
  for (int empty = 0; empty <= 6; ++empty)
    for (const bool maps : {true, false}) {
      Random random(1);
      DeviceBatch<float> batch(700);
      std::vector<DeviceResult> want;
      std::vector<std::int32_t> rows;
      for (int i = 0; i <= 6; ++i) {
        if (i == empty) {
          for (int n = 0; n < 2; ++n) batch.add_empty(), want.push_back({});
        }
        if (i == 6) break;
        // chains whose every draft token was drawn from a row of its own: their rows are those of the batch
        const Case it =
            random_case(random, 700, {}, {.nodes = 5, .chooses = false, .wide = 0}, random.bits());
        batch.add(it, {}, 77);
        want.push_back(as_device(result_of(Rejection{}, it, {}, 77), it.tree));
      }
      auto draft = batch.logits_draft();
      if (!maps) {
        const auto drawn =
            std::count_if(batch.draft_row.begin(), batch.draft_row.end(), [](int r) { return r >= 0; });
        REQUIRE(static_cast<std::size_t>(drawn) == batch.stats.size());
        draft.row_of_node = nullptr;
      }
      CHECK(emulate_verify<RejectionRule>(batch, batch.args(draft), 2) == want);
    }
}

TEST_CASE("a live count of sequences: what belongs to others is not touched") {
  Batch all({{}, {.temperature = 0.6f, .top_p = 0.9f}}, 7, 2);
  for (std::int32_t count = 0; count <= 7; ++count) {
    auto args = all.args();
    args.trees.sequence_count = &count;
    // begins of other sequences are anything
    std::vector<std::int32_t> begin = all.device.begin;
    for (std::size_t b = static_cast<std::size_t>(count) + 1; b < begin.size(); ++b) begin[b] = -1000000;
    args.trees.begin = begin.data();
    using Verifier = SequenceVerifier<RejectionRule, EmulatedCluster, float, device::LogitsDraft<float>>;
    emulate({.clusters = 7,
             .blocks = 2,
             .threads = 64,
             .shared_bytes = Verifier::shared_bytes(args.scan, args.max_nodes, 2)},
            [&](EmulatedCluster cluster, int sequence, unsigned char* shared) {
              Verifier::verify_sequence(cluster, args, sequence, shared);
            });
    for (std::size_t b = 0; b < 7; ++b) {
      if (b >= static_cast<std::size_t>(count)) {
        CHECK(all.device.out_count[b] == -77);
        CHECK(all.device.out_token[b * static_cast<std::size_t>(all.device.width)] == -77);
        CHECK(all.device.out_log_prob[b * static_cast<std::size_t>(all.device.width)] == 77);
        all.device.out_count[b] = 0;
        std::fill_n(all.device.out_token.begin() + static_cast<std::ptrdiff_t>(b) * all.device.width,
                    all.device.width, -1);
        std::fill_n(all.device.out_path.begin() + static_cast<std::ptrdiff_t>(b) * all.device.width,
                    all.device.width, -1);
        std::fill_n(all.device.out_log_prob.begin() + static_cast<std::ptrdiff_t>(b) * all.device.width,
                    all.device.width, 0.0f);
      } else {
        CHECK(all.device.out_status[b] == Status::ok);
      }
    }
    const auto got = all.device.results();
    for (std::size_t b = 0; b < static_cast<std::size_t>(count); ++b) CHECK(got[b] == all.want[b]);
  }
}

TEST_CASE("parameters in separate arrays, of which any may be missing") {
  const std::vector<SamplingParams> settings = device_settings();
  for (int given = 0; given < 16; ++given) {
    std::vector<SamplingParams> some = settings;
    for (SamplingParams& p : some)
      p = {given & 1 ? p.temperature : 1.0f, given & 2 ? p.top_k : 0, given & 4 ? p.top_p : 1.0f,
           given & 8 ? p.min_p : 0.0f};
    Batch all(some, 7, 3);
    std::vector<float> temperature, top_p, min_p;
    std::vector<std::int32_t> top_k;
    for (const auto& p : all.device.params)
      temperature.push_back(p.temperature), top_k.push_back(p.top_k), top_p.push_back(p.top_p),
          min_p.push_back(p.min_p);
    auto args = all.args();
    args.target.params = nullptr;
    if (given & 1) args.target.params.temperature = temperature.data();
    if (given & 2) args.target.params.top_k = top_k.data();
    if (given & 4) args.target.params.top_p = top_p.data();
    if (given & 8) args.target.params.min_p = min_p.data();
    CHECK(emulate_verify<RejectionRule>(all.device, args) == all.want);
  }
}

TEST_CASE_TEMPLATE("without truncation: the same results, and a status for parameters that truncate", Rule,
                   RejectionRule, TraversalRule, SampleAndMatchRule, GreedyRule) {
  std::vector<SamplingParams> settings = device_settings();
  settings.push_back({.temperature = 0, .top_k = 3});  // nothing is cut from a point mass
  Batch all(settings, 24, 4);
  const auto draft = all.device.logits_draft();
  const auto want = emulate_verify<Rule>(all.device, all.device.args(draft), 2);
  const auto got = emulate_verify<WithoutCuts<Rule>>(all.device, all.device.args(draft), 2);
  int refused = 0;
  for (std::size_t b = 0; b < want.size(); ++b) {
    const bool cut = Rule::kReadsDistributions && is_cut(all.device.params[b]);
    refused += cut;
    if (cut)
      CHECK(got[b].status == Status::truncation_is_not_planned);
    else
      CHECK(got[b] == want[b]);
    if (cut) CHECK(got[b].tokens.empty());
  }
  CHECK(refused == (Rule::kReadsDistributions ? 12 : 0));
}

template <class Rule, class Args>
void check_odd_rows(DeviceBatch<float>& batch, Args args) {
  for (int rows = 1; rows <= 4; ++rows) {
    args.odd_rows = 0;
    const auto want = emulate_verify<Rule>(batch, args, 2, 64, 1, Engine::fibers, rows);
    const std::vector<float> log_probs = batch.out_log_prob;
    for (args.odd_rows = 1; args.odd_rows <= rows; ++args.odd_rows) {
      CHECK(emulate_verify<Rule>(batch, args, 2, 64, 1, Engine::fibers, rows) == want);
      CHECK(batch.out_log_prob == log_probs);
    }
  }
}

TEST_CASE("another number of rows in odd sequences' first pass: the same results") {
  for (const int nodes : {2, 6, 12}) {
    Random random(static_cast<std::uint64_t>(nodes));
    DeviceBatch<float> batch(700);
    for (int i = 0; i < 6; ++i)
      batch.add(random_case(random, 700, {}, {.nodes = nodes, .chooses = false, .wide = 0}, random.bits()),
                {}, 77);
    auto args = batch.args(batch.logits_draft());
    args.trees.parent = nullptr;  // chains
    check_odd_rows<RejectionRule>(batch, args);
    check_odd_rows<TraversalRule>(batch, args);
  }
}
