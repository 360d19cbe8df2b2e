// labels: threads
#include <doctest/doctest.h>
#include <specula/cuda/device/grow.cuh>
#include <specula/shape/cape.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "grown_batch.hpp"
#include "thread_sanitizer.hpp"
#include "wide_memory.hpp"

using namespace specula_test;
using device::CapeCapacity;
using device::CapeExtras;
using device::CapePlan;
using device::SerialGroup;
using device::Status;
using device::detail::CapeArgs;
using device::detail::CapeWork;
using device::detail::Planter;
using device::detail::Planting;

namespace {

struct Spine {
  std::vector<specula::Token> token;
  std::vector<std::int32_t> position;
  explicit Spine(const CapePlan& plan)
      : token(static_cast<std::size_t>(plan.length * plan.sequences), GrownArrays::kPoison),
        position(token) {}
  friend bool operator==(const Spine&, const Spine&) = default;
};

struct Grown {
  Spine spine;
  GrownArrays trees;
  friend bool operator==(const Grown&, const Grown&) = default;
};

struct Memory {
  std::vector<std::uint64_t> words;
  explicit Memory(const CapePlan& plan) : words(device::workspace_bytes(plan) / 8 + 2, ~std::uint64_t{0}) {}
};

CapePlan plan_of(const CapeCapacity& capacity) {
  CapePlan plan;
  REQUIRE(device::detail::size_plan(&plan, capacity));
  return plan;
}

template <class Element>
Grown grow(const std::vector<Growing>& batch, const CapePlan& plan, Geometry geometry, Memory& memory,
           int pad = 0, int offset = 0, bool limits = true) {
  const std::size_t sequences = batch.size();
  Grown out{Spine(plan), GrownArrays(sequences, plan.width)};
  const RootArrays roots(batch);
  const CapeWork work = CapeWork::at(memory.words.data(), plan);
  std::vector<Text> texts;
  for (const Growing& g : batch) texts.push_back(g.text());
  for (int step = 0; step < plan.length; ++step) {
    CallRows<Element> rows(sequences, plan.vocab, pad, offset);
    for (std::size_t b = 0; b < sequences; ++b) {
      bool there = true;
      if (step > 0) {
        const std::size_t at = static_cast<std::size_t>(step - 1) * sequences + b;
        CHECK(out.spine.position[at] == static_cast<std::int32_t>(batch[b].context.size()) + step);
        there = out.spine.token[at] != specula::kNoToken;
        texts[b].push_back(out.spine.token[at]);
      }
      if (there) rows.put(b, rounded<Element>(batch[b].rows)(texts[b]));
    }
    const CapeArgs<Element> args{rows.rows(),
                                 roots.position.data(),
                                 {out.spine.token.data(), out.spine.position.data()},
                                 work,
                                 plan.extras,
                                 plan.sequences,
                                 plan.length,
                                 plan.most,
                                 plan.vocab,
                                 step};
    emulate({.clusters = plan.sequences,
             .blocks = geometry.blocks,
             .threads = geometry.threads,
             .shared_bytes = device::detail::cape_shared_bytes<EmulatedCluster>(plan.vocab, plan.most),
             .seed = geometry.seed + static_cast<std::uint64_t>(step),
             .engine = geometry.engine},
            [&](EmulatedCluster cluster, int index, unsigned char* shared) {
              cape_step(cluster, args, index, shared);
            });
  }
  const Planting planting{roots.roots(limits),     work.pool,      out.trees.trees(), work.status,
                          out.trees.status.data(), plan.sequences, plan.width};
  const std::size_t bytes = Planter<EmulatedBlock>::shared_bytes(plan.length * plan.most, plan.width);
  emulate({.clusters = plan.sequences,
           .threads = 2 * geometry.threads,
           .shared_bytes = bytes,
           .seed = geometry.seed,
           .engine = geometry.engine},
          [&](EmulatedCluster cluster, int b, unsigned char* shared) {
            cape_finish(cluster.block(), planting, plan.length, b, shared);
          });
  GrownArrays serial(sequences, plan.width);  // one thread makes the same
  Planting serially = planting;
  serially.out = serial.trees();
  serially.told = serial.status.data();
  std::vector<device::detail::Ranked> shared(bytes / sizeof(device::detail::Ranked) + 1);
  for (int b = 0; b < plan.sequences; ++b)
    cape_finish(SerialGroup{}, serially, plan.length, b, reinterpret_cast<unsigned char*>(shared.data()));
  CHECK(serial == out.trees);
  return out;
}

template <class Element>
specula::TokenTree proposal(const Growing& g, const CapePlan& plan, const CapeCapacity& capacity) {
  specula::TokenTree tree(plan.vocab, plan.width, 0);
  tree.reset(g.root, static_cast<std::int32_t>(g.context.size()), g.limit);
  ScriptedDrafter drafter(plan.vocab, rounded<Element>(g.rows));
  specula::Cape shape{.length = capacity.length, .budget = capacity.budget};
  std::copy_n(capacity.extras.thresholds, 3, shape.extras.thresholds.begin());
  std::copy_n(capacity.extras.counts, 4, shape.extras.counts.begin());
  NoCoins none;
  shape.propose(drafter, specula::Round{g.context, {}, g.limit}, tree, none);
  return tree;
}

template <class Element>
void check(const std::vector<Growing>& batch, CapeCapacity capacity, std::uint64_t seed,
           const std::vector<Geometry>& geometries) {
  Random random(seed);
  capacity.sequences = static_cast<int>(batch.size());
  const CapePlan plan = plan_of(capacity);
  Memory memory(plan);
  const Grown first = grow<Element>(batch, plan, geometries[0], memory, random.below(3), random.below(8));
  for (std::size_t b = 0; b < batch.size(); ++b) {
    CAPTURE(b);
    CHECK(first.trees.status[b] == Status::ok);
    CHECK(first.trees.holds(b, proposal<Element>(batch[b], plan, capacity)));
    Text text = batch[b].text();  // the spine does not stop at a limit
    for (int step = 0; step < plan.length; ++step) {
      const std::vector<float> row = rounded<Element>(batch[b].rows)(text);
      const auto best = static_cast<specula::Token>(std::max_element(row.begin(), row.end()) - row.begin());
      CHECK(first.spine.token[static_cast<std::size_t>(step) * batch.size() + b] == best);
      text.push_back(best);
    }
  }
  for (const Geometry& geometry : geometries) {
    CAPTURE(geometry.blocks);
    CAPTURE(geometry.threads);
    CHECK(grow<Element>(batch, plan, geometry, memory, random.below(3), random.below(8)) == first);
  }
}

std::vector<Growing> random_batch(Random& random, int sequences, int vocab, double spread, double ties,
                                  double empty) {
  std::vector<Growing> out;
  for (int b = 0; b < sequences; ++b) {
    Text context;
    for (int i = random.below(5); i > 0; --i) context.push_back(random.below(vocab));
    out.push_back({context, random.below(vocab), random_rows(vocab, random.bits(), spread, ties, empty),
                   random.chance(0.3) ? random.below(12) : 100000});
  }
  return out;
}

const std::vector<Geometry> kGeometries = {{1, 32, 1}, {2, 64, 2}, {1, 256, 3}};

}  // namespace

TEST_CASE("the paper's: four long, 7 5 3 1 extras, 32 guesses; the trees are the CPU's" *
          doctest::skip(kThreadSanitizer)) {
  Random random(111);
  for (const double spread : {0.5, 3.0, 8.0, 15.0}) {  // of every confidence
    check<device::BFloat16>(random_batch(random, 3, 700, spread, 0, 0), {.vocab = 700}, 1, kGeometries);
    check<float>(random_batch(random, 6, 9, spread, 0, 0), {.vocab = 9}, 2, {kGeometries[1]});
  }
}

TEST_CASE("any lengths, budgets, extras, vocabularies and elements; ties, and rows with few tokens" *
          doctest::skip(kThreadSanitizer)) {
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
      const double ties = random.chance(0.5) ? 0.7 : 0, empty = random.chance(0.5) ? 0.8 : 0;
      const std::vector<Growing> batch = random_batch(random, 4, vocab, random.between(0.5, 10), ties, empty);
      check<float>(batch, capacity, random.bits(), kGeometries);
      check<device::Half>(batch, capacity, random.bits(), {kGeometries[1]});
    }
}

TEST_CASE(
    "extras tie along the spine and within a row: the older go first; none of them, or the budget is the "
    "spine's" *
    doctest::skip(kThreadSanitizer)) {
  std::vector<float> row(1300, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < 12; ++i) row[i * 107] = i % 2 ? 0.0f : -0.0f;
  const Growing g{{3}, 4, [row](const Text&) { return row; }, 100000};
  for (const int budget : {1, 3, 4, 5, 11, 20, 100}) {
    check<float>({g}, {.length = 4, .budget = budget, .vocab = 1300}, 1, kGeometries);
    CapeCapacity none{.length = 4, .budget = budget, .vocab = 1300};
    for (std::int32_t& count : none.extras.counts) count = 0;
    check<float>({g}, none, 1, kGeometries);
  }
}

TEST_CASE("limits: none, the root alone, within the spine, within the extras; and no limits" *
          doctest::skip(kThreadSanitizer)) {
  Random random(113);
  std::vector<Growing> batch = random_batch(random, 6, 50, 4, 0, 0);
  const std::int32_t limits[] = {0, 1, 2, 5, 8, -5};
  for (std::size_t b = 0; b < 6; ++b) batch[b].limit = limits[b];
  check<float>(batch, {.vocab = 50}, 1, kGeometries);
  const CapePlan plan = plan_of({.sequences = 6, .vocab = 50});
  Memory memory(plan);
  const Grown found = grow<float>(batch, plan, {}, memory, 0, 0, false);
  for (std::size_t b = 0; b < 6; ++b) CHECK(found.trees.size[b] > 8);
}

TEST_CASE("a bad row at any step: a status, the root alone, and nothing more is read; others go on" *
          doctest::skip(kThreadSanitizer)) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  Random random(114);
  for (std::size_t bad_step = 0; bad_step < 4; ++bad_step)
    for (const int kind : {0, 1, 2}) {
      std::vector<Growing> batch = random_batch(random, 3, 60, 4, 0, 0);
      const RowOf good = batch[1].rows;
      const std::size_t length = batch[1].text().size();
      batch[1].rows = [=](const Text& text) {
        std::vector<float> row = good(text);
        if (text.size() < length + bad_step) return row;
        if (kind < 2) row[33] = kind == 0 ? nan : inf;
        if (kind == 2) std::fill(row.begin(), row.end(), -inf);
        return row;
      };
      const CapeCapacity capacity{.sequences = 3, .vocab = 60};
      const CapePlan plan = plan_of(capacity);
      Memory memory(plan);
      for (const Geometry& geometry : kGeometries) {
        const Grown found = grow<float>(batch, plan, geometry, memory);
        CHECK(found.trees.status == std::vector<Status>{Status::ok,
                                                        kind < 2 ? Status::not_a_number : Status::empty_row,
                                                        Status::ok});
        CHECK(found.trees.holds(0, proposal<float>(batch[0], plan, capacity)));
        CHECK(found.trees.holds(2, proposal<float>(batch[2], plan, capacity)));
        specula::TokenTree alone(60, 2, 0);
        alone.reset(batch[1].root, static_cast<std::int32_t>(batch[1].context.size()), 2);
        CHECK(found.trees.holds(1, alone));
        for (std::size_t step = 0; step < 4; ++step)
          CHECK((found.spine.token[step * 3 + 1] == specula::kNoToken) == (step >= bad_step));
      }
      batch[1].rows = good;
      CHECK(grow<float>(batch, plan, {}, memory).trees.holds(1, proposal<float>(batch[1], plan, capacity)));
    }
}

TEST_CASE("a batch is its sequences, whatever their slots" * doctest::skip(kThreadSanitizer)) {
  Random random(115);
  const std::vector<Growing> batch = random_batch(random, 4, 90, 4, 0.3, 0);
  const CapePlan all = plan_of({.sequences = 4, .vocab = 90}), one = plan_of({.vocab = 90});
  Memory memory(all);
  const Grown together = grow<float>(batch, all, {}, memory);
  for (std::size_t b = 0; b < 4; ++b) {
    Memory own(one);
    const Grown alone = grow<float>({batch[b]}, one, {2, 32, 9}, own);
    const std::size_t width = alone.trees.width;
    for (std::size_t i = 0; i < width; ++i) {
      CHECK(together.trees.token[b * width + i] == alone.trees.token[i]);
      CHECK(together.trees.confidence[b * width + i] == alone.trees.confidence[i]);
    }
  }
}

TEST_CASE("rows so far apart that 32 bits do not index them" * doctest::skip(kThreadSanitizer)) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 31) - 3;
  const WideMemory memory(4 * (2 * kStride + 64));
  if (!memory.data()) return;
  auto* rows = static_cast<float*>(memory.data());
  for (std::int64_t b = 0; b < 3; ++b) rows[b * kStride + 7 * b + 1] = 5.0f;
  const CapePlan plan = plan_of({.sequences = 3, .length = 1, .vocab = 20});
  Memory work(plan);
  Spine spine(plan);
  const std::vector<std::int32_t> position(3);
  const CapeArgs<float> args{{rows, kStride},
                             position.data(),
                             {spine.token.data(), spine.position.data()},
                             CapeWork::at(work.words.data(), plan),
                             plan.extras,
                             3,
                             1,
                             plan.most,
                             20,
                             0};
  emulate(
      {.clusters = 3, .shared_bytes = device::detail::cape_shared_bytes<EmulatedCluster>(20, plan.most)},
      [&](EmulatedCluster cluster, int b, unsigned char* shared) { cape_step(cluster, args, b, shared); });
  CHECK(spine.token == std::vector<specula::Token>{1, 8, 15});
}

TEST_CASE("threads of their own") {
  Random random(116);
  check<float>(random_batch(random, 1, 600, 4, 0.2, 0), {.length = 2, .budget = 6, .vocab = 600}, 1,
               {{2, 32, 1, Engine::threads}, {1, 32, 1}});
}

TEST_CASE("how many extras a confidence asks for, and capacities") {
  const CapeExtras extras;
  const specula::CapeExtras on_cpu;
  for (const float at : {0.0f, 0.3f, 0.6f, 0.8f, 1.0f})
    for (const float c : {std::nextafter(at, -1.0f), at, std::nextafter(at, 2.0f)})
      CHECK(extras(c) == on_cpu(c));
  CHECK(extras.most() == 7);
  CapePlan plan;
  CHECK(device::detail::size_plan(&plan, {.vocab = 128256}));
  CHECK(plan.pool == 32);
  CHECK(plan.width == 33);
  CHECK(device::detail::size_plan(&plan, {.length = 2, .budget = 100, .vocab = 5}));
  CHECK(plan.width == 17);
  CapeExtras many;
  many.counts[2] = 32;
  for (const CapeCapacity& bad : {CapeCapacity{.vocab = 0},
                                  {.sequences = 0, .vocab = 9},
                                  {.length = 0, .vocab = 9},
                                  {.budget = 0, .vocab = 9},
                                  {.length = 10001, .vocab = 9},
                                  {.vocab = 9, .extras = many}})
    CHECK_FALSE(device::detail::size_plan(&plan, bad));
}
