// SPDX-License-Identifier: MIT
// Compares verification on an emulated GPU with the CPU's, on random ragged batches.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "device_batch.hpp"

namespace specula_test {

struct Agreement {
  int trees = 0, differ = 0;
  int unexplained = 0;  // results differ, yet no uniform draw was within 1e-5 of a boundary
};

/// Whether a sequence has these log-probabilities, or, of a rule that reads no distributions, zeros.
template <class DeviceRule, class Element>
bool has_log_probs(const DeviceBatch<Element>& batch, std::size_t b, const std::vector<double>& want) {
  const std::vector<float> got = batch.log_probs(b);
  bool same = got.size() == want.size();
  for (std::size_t i = 0; same && i < want.size(); ++i) {
    const double wanted = DeviceRule::kReadsDistributions ? want[i] : 0.0;
    same = std::abs(static_cast<double>(got[i]) - wanted) <= 1e-5 * (1 - wanted);
  }
  return same;
}

/// Runs `trees` random trees over `vocab` tokens in batches of mixed parameters, each batch with another
/// cluster size. dense(case, uniform draws) is the reference rule, which gives the margins.
template <class DeviceRule, class Element, class Rule, class Dense, class DraftOf>
Agreement compare_with_cpu(const Rule& rule, Dense dense, DraftOf draft_of, int trees, int vocab,
                           const Mix& mix, std::uint64_t seed) {
  Random random(seed);
  Agreement out;
  const auto settings = device_settings();
  while (out.trees < trees) {
    // Strides that leave rows unaligned and strides that align them.
    const std::ptrdiff_t stride = random.bernoulli(0.5) ? (vocab + 7) / 8 * 8 : vocab + random.below(3);
    DeviceBatch<Element> batch(vocab, stride, random.bernoulli(0.3) ? 1 : 0);
    batch.logs = !random.bernoulli(0.2);
    std::vector<DeviceResult> want;
    std::vector<std::vector<double>> log_probs;
    std::vector<double> margins;
    const int size = std::min(trees - out.trees, 1 + random.below(64));
    for (int i = 0; i < size; ++i) {
      if (random.bernoulli(0.1)) {
        batch.add_empty();
        want.push_back({});
        log_probs.push_back({});
        margins.push_back(1);
      }
      const specula::SamplingParams params =
          settings[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(settings.size())))];
      Mix one = mix;
      one.nodes = 1 + random.below(mix.nodes);
      one.round = rounding(Element{});
      const Case it = random_case(random, vocab, params, one, random.bits());
      const std::uint64_t uniforms = random.bits();
      batch.add(it, params, uniforms);
      const specula::VerifyResult result = result_of(rule, it, params, uniforms);
      want.push_back(as_device(result, it.tree));
      log_probs.push_back(log_probs_of(it, params, result));
      DenseUniforms margin(uniforms);
      dense(it, margin);
      margins.push_back(margin.margin);
    }
    const auto args = batch.args(draft_of(batch));
    const auto got = emulate_verify<DeviceRule>(batch, args, 1 + random.below(4), 64 + 32 * random.below(3),
                                                random.bits());
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (got[i] == want[i] && (!batch.logs || has_log_probs<DeviceRule>(batch, i, log_probs[i]))) continue;
      ++out.differ;
      if (margins[i] > 1e-5) ++out.unexplained;
    }
    out.trees += size;
  }
  return out;
}

inline void require_agreement(const Agreement& a) {
  CAPTURE(a.trees);
  CHECK(a.unexplained == 0);
  CHECK(a.differ * 10000 <= 5 * a.trees);
}

/// Whether SPECULA_TEST_THOROUGH is set, as `scripts/test --cuda` does.
inline bool thorough() {
  const char* value = std::getenv("SPECULA_TEST_THOROUGH");
  return value && *value;
}

/// 3,400 trees over vocabularies of less than a tile and of more than one: with three element types some
/// 10,000. A tenth of that unless thorough().
template <class DeviceRule, class Element, class Rule, class Dense, class DraftOf>
void require_agreement_on_ragged_trees(const Rule& rule, Dense dense, DraftOf draft_of, std::uint64_t seed,
                                       const Mix& mix = {.nodes = 20}) {
  Agreement all;
  const int share = thorough() ? 1 : 10;
  for (const int vocab : {3, 40, 600}) {
    const Agreement a =
        compare_with_cpu<DeviceRule, Element>(rule, dense, draft_of, (vocab == 600 ? 200 : 1600) / share,
                                              vocab, mix, seed + static_cast<std::uint64_t>(vocab));
    all.trees += a.trees, all.differ += a.differ, all.unexplained += a.unexplained;
  }
  CHECK(all.trees == 3400 / share);
  require_agreement(all);
}

}  // namespace specula_test
