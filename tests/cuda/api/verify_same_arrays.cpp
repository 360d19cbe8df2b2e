// SPDX-License-Identifier: MIT
// labels: optimised
// verify_batch() and the kernels on the emulated GPU, called with the same arrays: the same tokens, paths,
// counts, statuses and log-probabilities.
#include <doctest/doctest.h>
#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/api/verify_matching.cuh>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/verify_batch.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
namespace kernels = specula::cuda::detail;

namespace {

constexpr int kSettings = 7;

struct Compared {
  int sequences = 0, differ = 0, unexplained = 0, failed = 0, logs = 0;
};

/// A batch of random cases with mixed parameters and some empty slots.
template <class Element>
struct Scene {
  DeviceBatch<Element> batch;
  std::vector<Case> cases;  // of the sequences that are no empty slots
  std::vector<int> case_of;
  std::vector<std::uint64_t> uniforms;
  BatchMemory memory;

  Scene(Random& random, int vocab, const Mix& mix, int size)
      : batch(vocab, random.bernoulli(0.5) ? (vocab + 7) / 8 * 8 : vocab + random.below(3),
              random.bernoulli(0.3) ? 1 : 0) {
    for (int i = 0; i < size; ++i) {
      if (random.bernoulli(0.1) && (i + 1 < size || !cases.empty())) {
        batch.add_empty();
        case_of.push_back(-1);
        continue;
      }
      Mix one = mix;
      one.nodes = 1 + random.below(mix.nodes);
      one.round = rounding(Element{});
      const SamplingParams params = device_settings()[static_cast<std::size_t>(random.below(kSettings))];
      case_of.push_back(static_cast<int>(cases.size()));
      cases.push_back(random_case(random, vocab, params, one, random.bits()));
      uniforms.push_back(random.bits());
      batch.add(cases.back(), params, uniforms.back());
    }
  }

  /// What verify_batch() makes of the arrays that the kernel was called with.
  template <class Rule, class Draft>
  std::vector<DeviceResult> on_cpu(const Rule& rule, const kernels::VerifyArgs<Element, Draft>& args) {
    const int failed = verify_batch(rule, {batch.sequences(), args.max_nodes, args.width - 1, batch.vocab},
                                    args.trees, args.target, args.draft, args.out, memory);
    std::vector<DeviceResult> results = batch.results();
    int not_ok = 0;
    for (std::size_t b = 0; b < results.size(); ++b) {
      not_ok += results[b].status != Status::ok;
      CHECK((results[b].status != Status::ok) == !memory.message(static_cast<std::int32_t>(b)).empty());
    }
    CHECK(failed == not_ok);
    return results;
  }
};

/// `sequences` of them, in batches; dense(case, uniform draws) finds margins.
template <class DeviceRule, class Element, class Rule, class Dense, class DraftOf>
Compared compare(const Rule& rule, Dense dense, DraftOf draft_of, int sequences, int vocab, const Mix& mix,
                 std::uint64_t seed, bool chains = false) {
  Random random(seed);
  Compared out;
  while (out.sequences < sequences) {
    Scene<Element> scene(random, vocab, mix, 1 + random.below(40));
    DeviceBatch<Element>& batch = scene.batch;
    if (mix.draws && batch.stats.empty()) continue;  // a draft without rows has null arrays
    batch.logs = !random.bernoulli(0.2);
    auto args = batch.args(draft_of(batch));
    if (chains) args.trees.parent = nullptr;
    const std::vector<DeviceResult> want =
        emulate_verify<DeviceRule>(batch, args, 1 + random.below(3), 64, random.bits());
    const std::vector<float> logs = batch.out_log_prob;
    args = batch.args(args.draft);
    if (chains) args.trees.parent = nullptr;
    const std::vector<DeviceResult> got = scene.on_cpu(rule, args);
    for (std::size_t b = 0; b < want.size(); ++b) {
      ++out.sequences;
      out.failed += want[b].status != Status::ok;
      if (got[b] == want[b]) {
        const std::vector<float> mine = batch.log_probs(b);
        for (std::size_t i = 0; batch.logs && i < mine.size(); ++i) {
          const float theirs = logs[b * static_cast<std::size_t>(batch.width) + i];
          const bool close = std::abs(mine[i] - theirs) <= 1e-5f * (1 - theirs);
          CHECK(close);
          out.logs += close;
        }
        continue;
      }
      ++out.differ;
      DenseUniforms margin(scene.uniforms[static_cast<std::size_t>(scene.case_of[b])]);
      dense(scene.cases[static_cast<std::size_t>(scene.case_of[b])], margin);
      out.unexplained += margin.margin > 1e-5;
    }
  }
  return out;
}

void require(const Compared& c) {
  CAPTURE(c.sequences);
  CHECK(c.unexplained == 0);
  CHECK(c.differ * 10000 <= c.sequences + 9999);  // 1 in 10,000
}

const auto rejection = [](const Case& it, DenseUniforms& u) {
  dense_rejection(it.dense, it.distributions, u);
};
const auto traversal = [](const Case& it, DenseUniforms& u) {
  dense_traversal(it.dense, it.distributions, u);
};
const auto block = [](const Case& it, DenseUniforms& u) { dense_block(it.dense, it.distributions, u); };
const auto match = [](const Case& it, DenseUniforms& u) { dense_match(it.dense, it.distributions, u); };
const auto nothing = [](const Case&, DenseUniforms&) {};

const auto logits = [](auto& batch) { return batch.logits_draft(); };
const auto floats = [](auto& batch) { return batch.float_draft(); };
const auto probs = [](auto& batch) { return batch.probs_draft(); };
const auto sparse = [](auto& batch) { return batch.sparse_draft(batch.vocab); };
const auto chosen = [](auto&) { return device::ChosenDraft{}; };

}  // namespace

TEST_CASE_TEMPLATE("all rules and all forms of q over random ragged batches", Element, float, device::Half,
                   device::BFloat16) {
  const int share = thorough() ? 1 : 6;
  std::uint64_t seed = 1;
  for (const int vocab : {3, 40, 600}) {
    const int n = (vocab == 600 ? 100 : 400) / share;
    const Mix trees{.nodes = 14}, chains{.nodes = 8, .chooses = false, .wide = 0};
    const auto each_form = [&]<class DeviceRule>(DeviceRule, const auto& rule, const auto& dense,
                                                 const Mix& mix, bool are_chains) {
      require(compare<DeviceRule, Element>(rule, dense, logits, n, vocab, mix, ++seed, are_chains));
      require(compare<DeviceRule, Element>(rule, dense, floats, n, vocab, mix, ++seed, are_chains));
      require(compare<DeviceRule, Element>(rule, dense, probs, n, vocab, mix, ++seed, are_chains));
      if (vocab <= 40)
        require(compare<DeviceRule, Element>(rule, dense, sparse, n, vocab, mix, ++seed, are_chains));
    };
    each_form(kernels::RejectionRule{}, Rejection{}, rejection, trees, false);
    each_form(kernels::TraversalRule{}, Traversal{}, traversal, trees, false);
    each_form(kernels::TraversalRule{}, Block{}, block, chains, true);
    const Mix points{.nodes = 14, .draws = false, .distinct = false};
    require(
        compare<kernels::RejectionRule, Element>(Rejection{}, rejection, chosen, n, vocab, points, ++seed));
    require(
        compare<kernels::TraversalRule, Element>(Traversal{}, traversal, chosen, n, vocab, points, ++seed));
    const Compared matched = compare<kernels::SampleAndMatchRule, Element>(SampleAndMatch{}, match, chosen, n,
                                                                           vocab, trees, ++seed);
    require(matched);
    CHECK(matched.logs > 0);
    require(compare<kernels::GreedyRule, Element>(Greedy{}, nothing, chosen, n, vocab, trees, ++seed));
  }
}

TEST_CASE("damaged arrays have the same statuses") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  std::array<int, 10> seen{};
  Random random(9);
  for (int round = 0; round < 400; ++round) {
    const int vocab = random.bernoulli(0.3) ? 530 : 20;
    Scene<float> scene(random, vocab, {.nodes = 8}, 6);
    DeviceBatch<float>& batch = scene.batch;
    if (batch.stats.empty()) continue;
    if (round % 20 >= 10) {  // less room than some sequences need
      batch.max_nodes = 1 + random.below(batch.max_nodes);
      batch.width = std::min(batch.width, batch.max_nodes);
    }
    auto args = batch.args(batch.logits_draft());
    const auto node = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(batch.token.size())));
    const auto b = static_cast<std::size_t>(random.below(batch.sequences()));
    const auto row = batch.target.begin() + batch.offset + static_cast<std::ptrdiff_t>(node) * batch.stride;
    switch (round % 10) {
      case 0:
        row[random.below(vocab)] = nan;
        break;
      case 1:
        row[random.below(vocab)] = inf;
        break;
      case 2:
        std::fill_n(row, vocab, -inf);
        break;
      case 3:
        row[random.below(vocab)] = 3.3e38f;
        break;
      case 4:
        batch.params[b].top_p = 0;
        break;
      case 5:
        batch.params[b].temperature = nan;
        break;
      case 6:
        batch.parent[node] = batch.parent[node] < 0 ? 0 : 7;
        break;
      case 7:
        batch.token[node] = vocab;
        break;
      case 8:
        batch.token[node] = -1;
        break;
      default:
        args.draft.rows = 1;
        break;
    }
    const auto want = emulate_verify<kernels::RejectionRule>(batch, args, 1);
    const auto got = scene.on_cpu(Rejection{}, args);
    for (std::size_t i = 0; i < want.size(); ++i) {
      CAPTURE(round);
      CHECK(got[i] == want[i]);
      ++seen[static_cast<std::size_t>(want[i].status)];
    }
  }
  for (const Status status : {Status::ok, Status::not_a_number, Status::empty_row, Status::overflow,
                              Status::bad_parameters, Status::bad_tree, Status::bad_draft_row})
    CHECK(seen[static_cast<std::size_t>(status)] > 5);
}
