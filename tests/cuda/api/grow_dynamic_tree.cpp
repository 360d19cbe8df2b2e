// SPDX-License-Identifier: MIT
// labels: threads optimised
// Dynamic trees (EAGLE-2) grown on the device, against the CPU's shape.
#include <doctest/doctest.h>
#include <specula/cuda/api/grow_dynamic_tree.cuh>
#include <specula/shape/dynamic_tree.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "grown_batch.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

/// The inputs of the draft's calls, initially poisoned.
struct Levels {
  std::vector<specula::Token> token;
  std::vector<specula::NodeId> parent;
  std::vector<std::int32_t> position;
  std::vector<std::uint64_t> ancestors;
  explicit Levels(const DynamicTreeSizes& plan)
      : token(static_cast<std::size_t>(plan.expansions * plan.sequences * plan.top_k), GrownArrays::kPoison),
        parent(token),
        position(token),
        ancestors(token.size() * static_cast<std::size_t>(plan.draft_words), 0x5555555555555555ull) {}
  DraftLevels arrays() { return {token.data(), parent.data(), position.data(), ancestors.data()}; }
  friend bool operator==(const Levels&, const Levels&) = default;
};

template <class Element>
void step(const DynamicTreeSizes& plan, Geometry geometry, const detail::DynamicTreeArgs<Element>& args) {
  emulate(geometry.grid(plan.sequences * (args.level == 0 ? 1 : plan.top_k),
                        detail::dynamic_tree_shared_bytes<EmulatedCluster>(args.scan, geometry.threads / 32,
                                                                           plan.top_k),
                        args.level),
          [&](EmulatedCluster cluster, int index, unsigned char* shared) {
            dynamic_tree_step(cluster, args, index, shared);
          });
}

using Ranker = std::vector<specula::Top> (*)(const std::vector<float>&);

/// The levels of the draft's calls, from the definition, by full sorts; `draft_tokens` is the pool.
template <class Element>
bool right_levels(const Growing& g, const DynamicTreeSizes& plan, const Levels& levels, std::size_t b,
                  std::vector<DraftToken>& draft_tokens, Ranker ranker = ranked) {
  const auto k = static_cast<std::size_t>(plan.top_k), words = static_cast<std::size_t>(plan.draft_words);
  std::vector<int> frontier{-1}, node_of;  // node_of: of the draft, by draft token
  std::vector<std::vector<std::uint64_t>> seen{std::vector<std::uint64_t>(words)};
  seen[0][0] = 1;
  bool right = true;
  for (int level = 0; level <= plan.expansions; ++level) {
    std::vector<int> fresh;
    for (const int f : frontier) {
      const std::vector<specula::Top> row =
          ranker(rounded<Element>(g.rows)(text_of(g.text(), draft_tokens, f)));
      for (std::size_t i = 0; i < std::min(row.size(), k); ++i) {
        fresh.push_back(static_cast<int>(draft_tokens.size()));
        const double reach = f < 0 ? 1 : draft_tokens[static_cast<std::size_t>(f)].reach;
        draft_tokens.push_back({row[i].token, f, row[i].prob, reach * row[i].prob});
      }
    }
    if (level == plan.expansions) break;
    node_of.resize(draft_tokens.size(), -1);
    frontier = likeliest(draft_tokens, fresh, plan.top_k);
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t at =
          (static_cast<std::size_t>(level) * static_cast<std::size_t>(plan.sequences) + b) * k + i;
      const int node = 1 + level * plan.top_k + static_cast<int>(i);
      const bool there = i < frontier.size();
      int parent = 0;
      if (there) {
        const auto f = static_cast<std::size_t>(frontier[i]);
        const int above = draft_tokens[f].parent;
        parent = above < 0 ? 0 : node_of[static_cast<std::size_t>(above)];
        node_of[f] = node;
        right &= levels.token[at] == draft_tokens[f].token;
      } else {
        right &= levels.token[at] == specula::kNoToken;
      }
      right &= levels.parent[at] == parent;
      right &= levels.position[at] == static_cast<std::int32_t>(g.context.size()) + level + 1;
      std::vector<std::uint64_t> mask = seen[static_cast<std::size_t>(parent)];
      mask[static_cast<std::size_t>(node / 64)] |= std::uint64_t{1} << (node % 64);
      right &= std::equal(mask.begin(), mask.end(),
                          levels.ancestors.begin() + static_cast<std::ptrdiff_t>(at * words));
      seen.push_back(mask);
    }
  }
  return right;
}

struct DynamicTree {
  using Capacity = DynamicTreeCapacity;
  using Plan = DynamicTreeSizes;
  using Work = detail::DynamicTreeWork;
  using Calls = Levels;

  template <class Element, class Rows>
  static void run(const std::vector<Growing>& batch, const Plan& plan, Geometry geometry, const Work& work,
                  const Roots& roots, Rows rows_of, Calls& levels) {
    const auto k = static_cast<std::size_t>(plan.top_k), sequences = batch.size();
    const std::size_t live = live_of(roots, sequences);
    std::vector<std::vector<Text>> texts(sequences);  // of the draft's nodes
    for (int level = 0; level <= plan.expansions; ++level) {
      const std::size_t width = level == 0 ? 1 : k;
      CallRows<Element> rows = rows_of(sequences * width);
      for (std::size_t b = 0; b < live; ++b)
        for (std::size_t i = 0; i < width; ++i) {
          Text text = batch[b].text();
          bool there = true;
          if (level > 0) {
            const std::size_t at = (static_cast<std::size_t>(level - 1) * sequences + b) * k + i;
            const specula::Token token = levels.token[at];
            const specula::NodeId parent = levels.parent[at];
            REQUIRE(parent >= 0);
            REQUIRE(parent < static_cast<specula::NodeId>(1 + static_cast<std::size_t>(level - 1) * k));
            there = token != specula::kNoToken;
            text = texts[b][static_cast<std::size_t>(parent)];
            text.push_back(token);
          }
          texts[b].push_back(text);
          if (there) rows.put(b * width + i, rounded<Element>(batch[b].rows)(text));
        }
      step<Element>(plan, geometry,
                    {rows.rows(),
                     roots,
                     levels.arrays(),
                     work,
                     {plan.vocab, 1, 8192},
                     plan.sequences,
                     plan.top_k,
                     plan.expansions,
                     plan.draft_words,
                     level});
      for (std::size_t b = 0; b < live; ++b) CHECK(work.arrived[b] == 0);
    }
  }
  static int spine(const Plan&) { return 0; }
  static specula::DynamicTree shape(const Capacity& capacity) {
    return {.top_k = capacity.top_k, .expansions = capacity.expansions, .total = capacity.total};
  }
  template <class Element>
  static bool right(const Growing& g, const Plan& plan, const Levels& levels, std::size_t b) {
    std::vector<DraftToken> draft_tokens;
    return right_levels<Element>(g, plan, levels, b, draft_tokens);
  }
};

/// The best tokens of a row with the bits that the device gives their probabilities: the CPU's differ in the
/// last ones, and so do ties of products of them.
std::vector<specula::Top> ranked_on_device(const std::vector<float>& row) {
  using TopK = detail::RowTopK<EmulatedCluster>;
  const int vocab = static_cast<int>(row.size()), k = 32;
  const detail::ScanSize size{vocab, 1, 4096};
  std::vector<specula::Top> out;
  emulate({.shared_bytes = TopK::shared_bytes(size, 1, k, 0)},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            TopK top(cluster, size, k, 0, shared);
            top.find(detail::Row<float>{row.data(), vocab});
            if (cluster.block().rank() == 0)
              for (int i = 0; i < top.found(); ++i) out.push_back({top[i].token, top[i].prob});
          });
  return out;
}

}  // namespace

UNTHREADED_TEST_CASE("top 10, 5 expansions, 59 draft tokens: trees and draft calls are the CPU's") {
  Random random(101);
  check<DynamicTree, BFloat16>(random_batch(random, 2, 700, 4), {.vocab = 700}, 1, {{2, 64, 1}, {1, 128, 2}});
}

UNTHREADED_TEST_CASE("any widths, depths, vocabularies and elements; ties, and rows with few tokens") {
  Random random(102);
  for (const int vocab : {1, 2, 7, 60, 513, 1100})
    for (const int k : {1, 2, 5}) {
      const DynamicTreeCapacity capacity{
          .top_k = k, .expansions = random.below(5), .total = 1 + random.below(40), .vocab = vocab};
      CAPTURE(vocab);
      CAPTURE(k);
      const double ties = random.bernoulli(0.5) ? 0.7 : 0, empty = random.bernoulli(0.5) ? 0.8 : 0;
      const std::vector<Growing> batch =
          random_batch(random, 3, vocab, random.between(0.5, 10), ties, empty, true);
      check<DynamicTree, float>(batch, capacity, random.bits());
      check<DynamicTree, Half>(batch, capacity, random.bits(), {kGeometries[1]});
    }
}

UNTHREADED_TEST_CASE("rows of equal logits: all candidates tie, the older comes first") {
  Random random(103);
  for (const int vocab : {9, 609, 1209})
    for (const int k : {2, 4}) {
      // One row everywhere: all candidates of a level tie, on the CPU too.
      Growing g{{0, 1}, 2, {}, 100000};
      std::vector<float> row(static_cast<std::size_t>(vocab), -std::numeric_limits<float>::infinity());
      for (std::size_t i = 0; i < 9; ++i) row[i * 67 % row.size()] = i % 2 ? 0.0f : -0.0f;
      g.rows = [row](const Text&) { return row; };
      const DynamicTreeCapacity capacity{.top_k = k, .expansions = 3, .total = 17, .vocab = vocab};
      check<DynamicTree, float>({g}, capacity, 1);

      // Paths of different rows tie, or nearly so.
      g.rows = flat_rows(vocab, random.bits());
      const DynamicTreeSizes plan = plan_of<DynamicTree>(capacity);
      GrowthMemory memory(plan);
      const Grown<DynamicTree> found = grow<DynamicTree, float>({g}, plan, {}, memory);
      std::vector<DraftToken> draft_tokens;
      CHECK(right_levels<float>(g, plan, found.calls, 0, draft_tokens, ranked_on_device));
      std::vector<int> all(draft_tokens.size());
      std::iota(all.begin(), all.end(), 0);
      const std::vector<int> best = likeliest(draft_tokens, all, 17);
      REQUIRE(found.trees.size[0] == static_cast<std::int32_t>(best.size()) + 1);
      for (std::size_t i = 0; i < best.size(); ++i) {
        const DraftToken& draft_token = draft_tokens[static_cast<std::size_t>(best[i])];
        CHECK(found.trees.token[i + 1] == draft_token.token);
        CHECK(found.trees.confidence[i + 1] == static_cast<float>(draft_token.prob));
        const auto parent = std::find(best.begin(), best.end(), draft_token.parent);
        CHECK(found.trees.parent[i + 1] ==
              (draft_token.parent < 0 ? 0 : static_cast<specula::NodeId>(parent - best.begin()) + 1));
      }
    }
}

UNTHREADED_TEST_CASE("32 candidates per row and more than 64 nodes, in draft calls and in the tree") {
  Random random(104);
  check<DynamicTree, float>(random_batch(random, 2, 300, 3),
                            {.top_k = 32, .expansions = 2, .total = 150, .vocab = 300}, 1, {{1, 64, 1}});
  check<DynamicTree, float>(random_batch(random, 1, 90, 3),
                            {.top_k = 16, .expansions = 5, .total = 10000, .vocab = 90}, 1, {{1, 64, 1}});
}

UNTHREADED_TEST_CASE("limits of 0, of the root alone, below the total; and no limits") {
  Random random(105);
  std::vector<Growing> batch = random_batch(random, 5, 50, 4);
  const std::int32_t limits[] = {0, 1, 2, 8, -5};
  for (std::size_t b = 0; b < 5; ++b) batch[b].limit = limits[b];
  check<DynamicTree, float>(batch, {.top_k = 3, .expansions = 2, .total = 12, .vocab = 50}, 1);
  const DynamicTreeSizes plan =
      plan_of<DynamicTree>({.sequences = 5, .top_k = 3, .expansions = 2, .total = 12, .vocab = 50});
  GrowthMemory memory(plan);
  const Grown<DynamicTree> found = grow<DynamicTree, float>(batch, plan, {}, memory, 0, 0, false);
  CHECK(found.trees.size == std::vector<std::int32_t>(5, 13));
}

UNTHREADED_TEST_CASE("a sequence's proposal does not depend on its slot in the batch") {
  Random random(106);
  check_slots<DynamicTree>(random_batch(random, 4, 90, 4, 0.3),
                           {.top_k = 4, .expansions = 3, .total = 20, .vocab = 90});
}

UNTHREADED_TEST_CASE("a live count of sequences: what belongs to others is not touched") {
  Random random(108);
  check_live<DynamicTree>(random_batch(random, 4, 90, 4),
                          {.top_k = 3, .expansions = 2, .total = 12, .vocab = 90});
}

UNTHREADED_TEST_CASE(
    "a bad row at any level and position: status, the root alone, no further reads; other sequences are "
    "unaffected") {
  Random random(107);
  for (std::size_t depth = 0; depth < 4; ++depth) {
    std::vector<Growing> batch = random_batch(random, 3, 60, 4);
    for (Growing& g : batch) g.limit = 1000;
    const std::size_t length = batch[1].text().size() + depth;
    check_bad_rows<DynamicTree>(
        batch, {.top_k = 5, .expansions = 3, .total = 12, .vocab = 60},
        [=](const Text& text) {  // some of the rows of that level, and everything after
          return text.size() > length || (text.size() == length && (depth == 0 || text.back() % 2));
        },
        [&](const Grown<DynamicTree>& found) {
          for (std::size_t level = depth; level < 3; ++level)
            for (std::size_t i = 0; i < 5; ++i)
              CHECK(found.calls.token[(level * 3 + 1) * 5 + i] == specula::kNoToken);
        });
  }
}

UNTHREADED_TEST_CASE("of two kinds of bad rows the first is reported") {
  Random random(108);
  std::vector<Growing> batch = random_batch(random, 1, 40, 4);
  const RowOf good = batch[0].rows;
  const std::size_t length = batch[0].text().size();
  std::vector<specula::Top> best = ranked(good(batch[0].text()));
  best.resize(3);
  batch[0].rows = [=](const Text& text) {
    std::vector<float> row = good(text);
    if (text.size() == length) return row;
    if (text.back() == best[1].token)
      std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
    if (text.back() == best[2].token) row[0] = std::numeric_limits<float>::quiet_NaN();
    return row;
  };
  const DynamicTreeSizes plan = plan_of<DynamicTree>({.top_k = 3, .expansions = 1, .total = 5, .vocab = 40});
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    GrowthMemory memory(plan);
    CHECK(grow<DynamicTree, float>(batch, plan, {1, 32, seed}, memory).trees.status[0] == Status::empty_row);
  }
}

UNTHREADED_TEST_CASE("rows beyond 32-bit offsets") {
  const WideRows wide;
  if (!wide.there()) return;
  const DynamicTreeSizes plan =
      plan_of<DynamicTree>({.sequences = 3, .top_k = 2, .expansions = 1, .total = 5, .vocab = 20});
  GrowthMemory work(plan);
  Levels levels(plan);
  const std::vector<std::int32_t> position(3);
  step<float>(plan, {},
              {wide.rows(),
               Roots{nullptr, position.data()},
               levels.arrays(),
               detail::DynamicTreeWork::at(work.words.data(), plan),
               {20, 1, 4096},
               3,
               2,
               1,
               1,
               0});
  CHECK(levels.token == std::vector<specula::Token>{1, 0, 8, 0, 15, 0});
}

TEST_CASE("concurrent threads") {
  Random random(109);
  const std::vector<Growing> batch = random_batch(random, 1, 600, 4, 0.2);
  check<DynamicTree, float>(batch, {.top_k = 2, .expansions = 1, .total = 5, .vocab = 600}, 1,
                            {{2, 32, 1, Engine::threads}, {1, 32, 1}});
}

UNTHREADED_TEST_CASE("capacities") {
  DynamicTreeSizes plan;
  CHECK(detail::size_plan(&plan, {.vocab = 128256}));
  CHECK(plan.pool == 510);
  CHECK(plan.width == 60);
  CHECK(plan.draft_words == 1);
  CHECK(detail::size_plan(&plan, {.top_k = 16, .expansions = 4, .total = 2000, .vocab = 5}));
  CHECK(plan.width == 1 + 16 * 65);
  CHECK(plan.draft_words == 2);
  for (const DynamicTreeCapacity& bad : {DynamicTreeCapacity{.vocab = 0},
                                         {.sequences = 0, .vocab = 9},
                                         {.top_k = 0, .vocab = 9},
                                         {.top_k = 33, .vocab = 9},
                                         {.expansions = -1, .vocab = 9},
                                         {.expansions = 1001, .vocab = 9},
                                         {.total = 0, .vocab = 9}})
    CHECK_FALSE(detail::size_plan(&plan, bad));
}

UNTHREADED_TEST_CASE("a block uses at most the shared memory that make_dynamic_tree_plan() states") {
  for (const int vocab : {1, 512, 32000, 128256, 256000})
    for (const int k : {1, 10, 32}) {
      const int most = 32 * ((vocab + 511) / 512) + 22 * k * k + 27000;
      const detail::ScanSize least{vocab, 1, 4096};
      CHECK(detail::dynamic_tree_shared_bytes<EmulatedCluster>(least, 4, k) <=
            static_cast<std::size_t>(most));
      const DynamicTreeSizes plan = plan_of<DynamicTree>({.top_k = k, .total = 100000, .vocab = vocab});
      CHECK(detail::TreeBuilder<EmulatedBlock>::shared_bytes(plan.pool, 0, plan.width) <=
            static_cast<std::size_t>(40 * plan.pool + 3000));
    }
}
