// SPDX-License-Identifier: MIT
// labels: threads optimised
// CAPE proposals grown on the device, against the CPU's shape.
#include <doctest/doctest.h>
#include <specula/cuda/api/grow.cuh>
#include <specula/shape/cape.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "grown_batch.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

struct Spine {
  std::vector<specula::Token> token;
  std::vector<std::int32_t> position;
  explicit Spine(const CapeSizes& plan)
      : token(static_cast<std::size_t>(plan.length * plan.sequences), GrownArrays::kPoison),
        position(token) {}
  CapeSpine arrays() { return {token.data(), position.data()}; }
  friend bool operator==(const Spine&, const Spine&) = default;
};

template <class Element>
void step(const CapeSizes& plan, Geometry geometry, const detail::CapeArgs<Element>& args) {
  emulate(
      geometry.grid(plan.sequences,
                    detail::cape_shared_bytes<EmulatedCluster>(args.scan, geometry.threads / 32, plan.most),
                    args.step),
      [&](EmulatedCluster cluster, int b, unsigned char* shared) { cape_step(cluster, args, b, shared); });
}

struct Cape {
  using Capacity = CapeCapacity;
  using Plan = CapeSizes;
  using Work = detail::CapeWork;
  using Calls = Spine;

  template <class Element, class Rows>
  static void run(const std::vector<Growing>& batch, const Plan& plan, Geometry geometry, const Work& work,
                  const Roots& roots, Rows rows_of, Calls& spine) {
    std::vector<Text> texts;
    for (const Growing& g : batch) texts.push_back(g.text());
    for (int s = 0; s < plan.length; ++s) {
      CallRows<Element> rows = rows_of(batch.size());
      for (std::size_t b = 0; b < live_of(roots, batch.size()); ++b) {
        bool there = true;
        if (s > 0) {
          const std::size_t at = static_cast<std::size_t>(s - 1) * batch.size() + b;
          CHECK(spine.position[at] == static_cast<std::int32_t>(batch[b].context.size()) + s);
          there = spine.token[at] != specula::kNoToken;
          texts[b].push_back(spine.token[at]);
        }
        if (there) rows.put(b, rounded<Element>(batch[b].rows)(texts[b]));
      }
      step<Element>(plan, geometry,
                    {rows.rows(),
                     roots,
                     spine.arrays(),
                     work,
                     plan.extras,
                     {plan.vocab, 1, 4096},
                     plan.sequences,
                     plan.length,
                     plan.most,
                     s});
    }
  }
  static int spine(const Plan& plan) { return plan.length; }
  static specula::Cape shape(const Capacity& capacity) {
    specula::Cape out{.length = capacity.length, .budget = capacity.budget};
    std::copy_n(capacity.extras.thresholds, 3, out.extras.thresholds.begin());
    std::copy_n(capacity.extras.counts, 4, out.extras.counts.begin());
    return out;
  }
  template <class Element>
  static bool right(const Growing& g, const Plan& plan, const Spine& spine, std::size_t b) {
    Text text = g.text();  // the spine does not stop at a limit
    for (int s = 0; s < plan.length; ++s) {
      const std::vector<float> row = rounded<Element>(g.rows)(text);
      text.push_back(static_cast<specula::Token>(std::max_element(row.begin(), row.end()) - row.begin()));
      if (spine.token[static_cast<std::size_t>(s * plan.sequences) + b] != text.back()) return false;
    }
    return true;
  }
};

}  // namespace

UNTHREADED_TEST_CASE(
    "the paper's parameters (length 4, extras 7 5 3 1, 32 draft tokens): the trees are the CPU's") {
  Random random(111);
  for (const double spread : {0.5, 3.0, 8.0, 15.0}) {  // all confidences
    check<Cape, BFloat16>(random_batch(random, 3, 700, spread), {.vocab = 700}, 1);
    check<Cape, float>(random_batch(random, 6, 9, spread), {.vocab = 9}, 2, {kGeometries[1]});
  }
}

UNTHREADED_TEST_CASE(
    "any lengths, budgets, extras, vocabularies and elements; ties, and rows with few tokens") {
  Random random(112);
  for (const int vocab : {1, 2, 7, 60, 513, 1100})
    for (int i = 0; i < 4; ++i) {
      CapeCapacity capacity{.length = 1 + random.below(6), .budget = 1 + random.below(30), .vocab = vocab};
      if (i > 0) {
        const float at = static_cast<float>(random.between(0, 0.5));
        for (int t = 0; t < 3; ++t) capacity.extras.thresholds[t] = at * static_cast<float>(t + 1) / 1.5f;
        for (std::int32_t& count : capacity.extras.counts) count = random.below(i == 1 ? 32 : 6) - (i == 3);
      }
      CAPTURE(vocab);
      CAPTURE(i);
      const double ties = random.bernoulli(0.5) ? 0.7 : 0, empty = random.bernoulli(0.5) ? 0.8 : 0;
      const std::vector<Growing> batch =
          random_batch(random, 4, vocab, random.between(0.5, 10), ties, empty, true);
      check<Cape, float>(batch, capacity, random.bits());
      check<Cape, Half>(batch, capacity, random.bits(), {kGeometries[1]});
    }
}

UNTHREADED_TEST_CASE(
    "ties of extras along the spine and within a row: the older come first; no extras, or budget for the "
    "spine only") {
  std::vector<float> row(1300, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < 12; ++i) row[i * 107] = i % 2 ? 0.0f : -0.0f;
  const Growing g{{3}, 4, [row](const Text&) { return row; }, 100000};
  for (const int budget : {1, 3, 4, 5, 11, 20, 100}) {
    check<Cape, float>({g}, {.length = 4, .budget = budget, .vocab = 1300}, 1);
    CapeCapacity none{.length = 4, .budget = budget, .vocab = 1300};
    for (std::int32_t& count : none.extras.counts) count = 0;
    check<Cape, float>({g}, none, 1);
  }
}

UNTHREADED_TEST_CASE("limits of 0, of the root alone, within the spine, within the extras; and no limits") {
  Random random(113);
  std::vector<Growing> batch = random_batch(random, 6, 50, 4);
  const std::int32_t limits[] = {0, 1, 2, 5, 8, -5};
  for (std::size_t b = 0; b < 6; ++b) batch[b].limit = limits[b];
  check<Cape, float>(batch, {.vocab = 50}, 1);
  const CapeSizes plan = plan_of<Cape>({.sequences = 6, .vocab = 50});
  GrowthMemory memory(plan);
  const Grown<Cape> found = grow<Cape, float>(batch, plan, {}, memory, 0, 0, false);
  for (std::size_t b = 0; b < 6; ++b) CHECK(found.trees.size[b] > 8);
}

UNTHREADED_TEST_CASE(
    "a bad row at any step: status, the root alone, no further reads; other sequences are unaffected") {
  Random random(114);
  for (std::size_t bad_step = 0; bad_step < 4; ++bad_step) {
    const std::vector<Growing> batch = random_batch(random, 3, 60, 4);
    const std::size_t length = batch[1].text().size() + bad_step;
    check_bad_rows<Cape>(
        batch, {.vocab = 60}, [=](const Text& text) { return text.size() >= length; },
        [&](const Grown<Cape>& found) {
          for (std::size_t s = 0; s < 4; ++s)
            CHECK((found.calls.token[s * 3 + 1] == specula::kNoToken) == (s >= bad_step));
        });
  }
}

UNTHREADED_TEST_CASE("a sequence's proposal does not depend on its slot in the batch") {
  Random random(115);
  check_slots<Cape>(random_batch(random, 4, 90, 4, 0.3), {.vocab = 90});
}

UNTHREADED_TEST_CASE("rows beyond 32-bit offsets") {
  const WideRows wide;
  if (!wide.there()) return;
  const CapeSizes plan = plan_of<Cape>({.sequences = 3, .length = 1, .vocab = 20});
  GrowthMemory work(plan);
  Spine spine(plan);
  const std::vector<std::int32_t> position(3);
  step<float>(plan, {},
              {wide.rows(),
               Roots{nullptr, position.data()},
               spine.arrays(),
               detail::CapeWork::at(work.words.data(), plan),
               plan.extras,
               {20, 1, 4096},
               3,
               1,
               plan.most,
               0});
  CHECK(spine.token == std::vector<specula::Token>{1, 8, 15});
}

TEST_CASE("concurrent threads") {
  Random random(116);
  check<Cape, float>(random_batch(random, 1, 600, 4, 0.2), {.length = 2, .budget = 6, .vocab = 600}, 1,
                     {{2, 32, 1, Engine::threads}, {1, 32, 1}});
}

UNTHREADED_TEST_CASE("the number of extras by confidence, and capacities") {
  const CapeExtras extras;
  const specula::CapeExtras on_cpu;
  for (const float at : {0.0f, 0.3f, 0.6f, 0.8f, 1.0f})
    for (const float c : {std::nextafter(at, -1.0f), at, std::nextafter(at, 2.0f)})
      CHECK(extras(c) == on_cpu(c));
  CHECK(extras.most() == 7);
  CapeSizes plan;
  CHECK(detail::size_plan(&plan, {.vocab = 128256}));
  CHECK(plan.pool == 32);
  CHECK(plan.width == 33);
  CHECK(detail::size_plan(&plan, {.length = 2, .budget = 100, .vocab = 5}));
  CHECK(plan.width == 17);
  CapeExtras many;
  many.counts[2] = 32;
  for (const CapeCapacity& bad : {CapeCapacity{.vocab = 0},
                                  {.sequences = 0, .vocab = 9},
                                  {.length = 0, .vocab = 9},
                                  {.budget = 0, .vocab = 9},
                                  {.length = 10001, .vocab = 9},
                                  {.vocab = 9, .extras = many}})
    CHECK_FALSE(detail::size_plan(&plan, bad));
}

UNTHREADED_TEST_CASE("a live count of sequences: what belongs to others is not touched") {
  Random random(119);
  check_live<Cape>(random_batch(random, 4, 90, 4), {.length = 3, .budget = 12, .vocab = 90});
}
