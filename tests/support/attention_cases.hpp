// SPDX-License-Identifier: MIT
// Test cases that every variant of tree attention must pass. attention_runs.hpp defines a variant.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <specula/cuda/api/tree_attention_plan.cuh>
#include <type_traits>
#include <vector>

#include "attention_runs.hpp"
#include "attention_scene.hpp"
#include "random.hpp"

namespace specula_test {

template <class Variant, class Element, int kHead>
using SceneOf = AttentionScene<Element, kHead, typename Variant::template Stored<Element>>;

template <class Variant, class Element, int kHead>
AttentionErrors check_attention(const AttentionCase& c, AttentionCut cut = {}) {
  CAPTURE(c.seed);
  CAPTURE(static_cast<int>(c.scores));
  CAPTURE(static_cast<int>(c.layout));
  CAPTURE(cut.rows);
  CAPTURE(cut.splits);
  CAPTURE(cut.cluster);
  const SceneOf<Variant, Element, kHead> scene(c);
  const AttentionErrors errors =
      compare_attention(scene, Variant::run(scene, plan_for<Variant>(scene, cut), c.seed));
  CAPTURE(errors.sequence);
  CAPTURE(errors.node);
  CAPTURE(errors.head);
  CHECK(errors.wrong == 0);
  // Error left by rounding the weights: about 2e-3 for bf16, 2e-4 for f16, twice
  // that where few keys dominate.
  CHECK(errors.relative < (std::is_same_v<Element, specula::cuda::BFloat16> ? 5e-3 : 6e-4));
  CHECK(errors.lse < 1e-4);
  return errors;
}

inline AttentionCase random_attention(std::uint64_t seed) {
  Random random(seed);
  AttentionCase c;
  c.seed = seed;
  const int groups[] = {1, 2, 3, 4, 7, 8}, pages[] = {1, 3, 16, 32, 7, 64, 100, 5};
  c.kv_heads = 1 + random.below(2);
  c.query_heads = c.kv_heads * groups[random.below(6)];
  for (int b = 1 + random.below(3); b > 0; --b) {
    const int edges[] = {0, 1, 15, 16, 17, 63, 64, 65, 128, 200};
    c.lengths.push_back(random.bernoulli(0.5) ? edges[random.below(10)] : random.below(450));
    c.nodes.push_back(random.bernoulli(0.15) ? 0 : 1 + random.below(random.bernoulli(0.3) ? 40 : 12));
  }
  c.page_size = pages[random.below(8)];
  c.layout = static_cast<KvLayout>(random.below(5));
  c.table = static_cast<KvTable>(random.below(2));
  c.two_tables = random.bernoulli(0.4);
  c.cross = random.bernoulli(0.2);
  if (random.bernoulli(0.4)) c.window = 1 + random.below(random.bernoulli(0.5) ? 20 : 200);
  c.by_depth = random.bernoulli(0.5);
  if (random.bernoulli(0.3)) c.softcap = random.bernoulli(0.5) ? 2.0f : 30.0f;
  if (random.bernoulli(0.4)) c.scale = random.bernoulli(0.5) ? 0.5f : -0.2f;
  c.scaled = random.bernoulli(0.4);
  if (random.bernoulli(0.6)) c.scores = kKeyScores[random.below(5)];
  return c;
}

/// The bits of one sequence's results.
template <class Scene>
std::vector<std::uint32_t> bits_of(const Scene& scene, const AttentionOutput<typename Scene::Element>& got,
                                   std::size_t b) {
  std::vector<std::uint32_t> out;
  for (std::int64_t n = scene.begin[b]; n < scene.begin[b + 1]; ++n) {
    for (int i = 0; i < scene.c.query_heads * Scene::kHead; ++i)
      out.push_back(got.out[static_cast<std::size_t>(n * got.stride + i)].bits);
    for (int h = 0; h < scene.c.query_heads; ++h)
      out.push_back(
          specula::cuda::detail::bits_of(got.lse[static_cast<std::size_t>(n * scene.c.query_heads + h)]));
  }
  return out;
}

template <class Variant, class Element>
void check_random_batches() {
  double worst = 0, sum = 0;
  for (std::uint64_t seed = 1; seed <= Variant::kTrials; ++seed) {
    Random random(1000 + seed);
    const AttentionCase c = random_attention(seed);
    const int kind = random.below(1 + static_cast<int>(std::size(Variant::kRows)));
    const AttentionCut cut{kind == 0 ? 0 : Variant::kRows[kind - 1], 1 + random.below(9),
                           1 << random.below(4)};
    const double error = random.bernoulli(0.5) ? check_attention<Variant, Element, 128>(c, cut).relative
                                               : check_attention<Variant, Element, 64>(c, cut).relative;
    worst = std::max(worst, error);
    sum += error;
  }
  MESSAGE("relative error: mean ", sum / Variant::kTrials, ", worst ", worst);
}

TEST_CASE_TEMPLATE_DEFINE("random ragged batches match the reference", Variant, attention_random) {
  check_random_batches<Variant, specula::cuda::BFloat16>();
  check_random_batches<Variant, specula::cuda::Half>();
}

TEST_CASE_TEMPLATE_DEFINE("prefix lengths around the edges of tiles and pages", Variant, attention_edges) {
  std::uint64_t seed = 100;
  for (const int length : {0, 1, 15, 16, 17, 63, 64, 65, 127, 129, 300})
    for (const int rows : Variant::kRows) {
      AttentionCase c{.query_heads = 4, .lengths = {length}, .nodes = {5}, .page_size = 16, .seed = ++seed};
      c.window = length % 2 == 0 ? 0 : 40;
      check_attention<Variant, specula::cuda::BFloat16, 64>(c, {rows, 1 + length % 3});
      c.layout = KvLayout::joint_hnd;
      check_attention<Variant, specula::cuda::Half, 128>(c, {rows, 1 + length % 4, 1 + length % 2});
    }
}

TEST_CASE_TEMPLATE_DEFINE("trees larger than a mask word, a tile of rows and a tile of keys", Variant,
                          attention_wide) {
  for (const int nodes : {63, 64, 65, 129, 130}) {
    AttentionCase c{.query_heads = 3,
                    .lengths = {50},
                    .nodes = {nodes},
                    .page_size = 7,
                    .seed = static_cast<std::uint64_t>(nodes)};
    check_attention<Variant, specula::cuda::BFloat16, 64>(c, {0, 2});
    c.window = 3;
    check_attention<Variant, specula::cuda::Half, 64>(c, {64, 3, 2});
  }
  check_attention<Variant, specula::cuda::BFloat16, 128>(
      {.query_heads = 2, .lengths = {20, 0}, .nodes = {130, 70}, .seed = 5});
}

TEST_CASE_TEMPLATE_DEFINE("cross attention: all committed tokens, no draft tokens", Variant,
                          attention_cross) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    AttentionCase c{.query_heads = 4,
                    .kv_heads = 2,
                    .lengths = {90, 0, 65},
                    .nodes = {6, 2, 17},
                    .cross = true,
                    .seed = seed};
    check_attention<Variant, specula::cuda::BFloat16, 64>(c, {0, static_cast<int>(2 * seed)});
    c.window = 30;
    check_attention<Variant, specula::cuda::Half, 128>(c, {Variant::kRows[0], 2, 2});
  }
}

TEST_CASE_TEMPLATE_DEFINE("a live count of sequences: what belongs to others is not touched", Variant,
                          attention_live) {
  using Scene = SceneOf<Variant, specula::cuda::BFloat16, 64>;
  Scene scene({.query_heads = 2, .lengths = {70, 5, 200}, .nodes = {3, 0, 7}, .seed = 5});
  for (const int rows : Variant::kRows)
    for (const AttentionCut cut : {AttentionCut{}, AttentionCut{rows, 4, 2}}) {
      const auto plan = plan_for<Variant>(scene, cut);
      const auto all = Variant::run(scene, plan);
      for (std::int32_t live = 0; live <= 3; ++live) {
        Scene some = scene;
        const std::vector<std::int32_t> begin = some.begin;
        for (std::size_t b = static_cast<std::size_t>(live) + 1; b < 4; ++b) some.begin[b] = -1000000;
        some.args = scene.args;
        some.args.begin = some.begin.data();
        some.args.sequence_count = &live;
        some.begin.back() = begin.back();  // for the size of the outputs
        if (live < 3) some.begin.insert(some.begin.end() - 1, -1000000), some.args.begin = some.begin.data();
        const auto got = Variant::run(some, plan);
        const auto nodes = static_cast<std::size_t>(begin[static_cast<std::size_t>(live)]);
        for (std::size_t b = 0; b < 3; ++b)
          CHECK(got.status[b] == (static_cast<std::int32_t>(b) < live
                                      ? specula::cuda::Status::ok
                                      : specula::cuda::Status::infinite_loss));
        for (std::size_t n = 0; n < 10; ++n)
          for (std::size_t i = 0; i < 128; ++i) {
            const std::size_t at = n * static_cast<std::size_t>(got.stride) + i;
            if (got.out[at].bits != (n < nodes ? all.out[at].bits : 0x7FFE)) FAIL("node ", n);
          }
      }
    }
}

TEST_CASE_TEMPLATE_DEFINE("a query that attends to nothing gets zeros and -infinity", Variant,
                          attention_of_nothing) {
  using Scene = SceneOf<Variant, specula::cuda::BFloat16, 64>;
  // No tokens at all, and a window that ends before the query.
  AttentionCase c{.query_heads = 2, .lengths = {0, 40}, .nodes = {3, 2}, .cross = true, .seed = 3};
  c.window = 5;
  Scene scene(c);
  for (std::int32_t& p : scene.position) p += 100;
  for (const int rows : Variant::kRows)
    for (const AttentionCut cut : {AttentionCut{}, AttentionCut{rows, 4, 1}, AttentionCut{rows, 8, 8}}) {
      const auto got = Variant::run(scene, plan_for<Variant>(scene, cut));
      CHECK(compare_attention(scene, got).wrong == 0);
      for (const std::size_t b : {0u, 1u})
        for (const std::uint32_t bits : bits_of(scene, got, b)) CHECK((bits == 0 || bits == 0xFF800000u));
    }
  // A node whose mask excludes even itself, among nodes that attend to something.
  Scene bare({.query_heads = 2, .lengths = {0}, .nodes = {5}, .seed = 4});
  for (int w = 0; w < bare.words; ++w) bare.mask[static_cast<std::size_t>(2 * bare.words + w)] = 0;
  for (const float scale : {0.1f, 0.0f}) {
    bare.args.scale = scale;
    const auto got = Variant::run(bare, plan_for<Variant>(bare));
    for (int i = 0; i < 128; ++i) CHECK(got.out[static_cast<std::size_t>(2 * got.stride + i)].bits == 0);
    CHECK(got.lse[4] == -INFINITY);
    CHECK(std::isfinite(got.lse[3]));
  }
}

TEST_CASE_TEMPLATE_DEFINE("positive, negative and zero scales, with and without a soft cap", Variant,
                          attention_scales) {
  for (const float scale : {0.0f, -0.3f, 0.7f, 1e-6f, -1e-6f})
    for (const float softcap : {0.0f, 5.0f})
      for (const bool scaled : {false, true}) {
        const AttentionCase c{.query_heads = 6,
                              .kv_heads = 3,
                              .lengths = {75, 130},
                              .nodes = {5, 9},
                              .softcap = softcap,
                              .scale = scale,
                              .scaled = scaled,
                              .seed = scaled ? 13u : 14u};
        check_attention<Variant, specula::cuda::Half, 64>(c, {0, 2});
      }
}

TEST_CASE_TEMPLATE_DEFINE("positions need not be slots: windows are applied by position", Variant,
                          attention_positions) {
  AttentionCase c{
      .query_heads = 2, .lengths = {100}, .nodes = {16}, .window = 25, .forget = false, .seed = 9};
  SceneOf<Variant, specula::cuda::Half, 64> scene(c);
  Random random(7);
  for (std::int32_t& p : scene.position) p = 60 + random.below(70);
  for (const AttentionCut cut : {AttentionCut{}, AttentionCut{64, 2, 1}})
    CHECK(compare_attention(scene, Variant::run(scene, plan_for<Variant>(scene, cut))).relative < 6e-4);
  for (std::int32_t& p : scene.position)
    p = static_cast<std::int32_t>(4LL * random.below(1000000000) - 2000000000);  // no overflow
  const auto errors = compare_attention(scene, Variant::run(scene, plan_for<Variant>(scene)));
  CHECK(errors.wrong == 0);
  CHECK(errors.relative < 6e-4);
}

TEST_CASE_TEMPLATE_DEFINE("flat, peaked, rising and falling scores, in every layout", Variant,
                          attention_scores) {
  std::uint64_t seed = 300;
  for (const KeyScores scores : kKeyScores)
    for (int layout = 0; layout < 5; ++layout) {
      const AttentionCase c{.query_heads = 4,
                            .kv_heads = 2,
                            .lengths = {150, 0, 63},
                            .nodes = {5, 2, 7},
                            .page_size = layout % 2 == 0 ? 16 : 7,
                            .layout = static_cast<KvLayout>(layout),
                            .two_tables = layout % 3 == 0,
                            .window = layout == 1 ? 40 : 0,
                            .scores = scores,
                            .seed = ++seed};
      const int rows = Variant::kRows[seed % std::size(Variant::kRows)];
      check_attention<Variant, specula::cuda::BFloat16, 64>(c, {rows, 1 + layout});
      check_attention<Variant, specula::cuda::Half, 128>(c, {0, 1 + layout, 1 << layout % 3});
    }
}

TEST_CASE_TEMPLATE_DEFINE("scores around 0, and maxima that rise steeply", Variant, attention_maxima) {
  for (const double spread : {1e-3, 4.0, 12.0}) {
    AttentionCase c{
        .query_heads = 4, .lengths = {250}, .nodes = {6}, .scale = 1.0f, .spread = spread, .seed = 11};
    const SceneOf<Variant, specula::cuda::BFloat16, 64> scene(c);
    const auto errors =
        compare_attention(scene, Variant::run(scene, plan_for<Variant>(scene, {Variant::kRows[0], 3, 1})));
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 6e-3);
    CHECK(errors.lse < 1e-3);
  }
}

TEST_CASE_TEMPLATE_DEFINE("the same bits in every run, whatever the order of threads and clusters", Variant,
                          attention_order) {
  const SceneOf<Variant, specula::cuda::BFloat16, 64> scene(
      {.query_heads = 4, .kv_heads = 2, .lengths = {300, 500, 70}, .nodes = {20, 3, 0}, .seed = 21});
  // Few and many splits share one workspace of counters and partial results: each plan must leave the
  // counters as the next one expects them.
  AttentionMemory shared;
  const AttentionCut cuts[] = {{0, 6, 1}, {0, 7, 2}, {0, 8, 4}, {0, 16, 8}};
  for (std::size_t i = 0; i < std::size(Variant::kRows); ++i) {
    AttentionCut cut = cuts[i];
    cut.rows = Variant::kRows[i];
    const auto plan = plan_for<Variant>(scene, cut);
    const auto first = Variant::run(scene, plan, 1);
    for (std::uint64_t seed = 2; seed <= 3; ++seed)
      CHECK(Variant::run(scene, plan, seed, Engine::fibers, &shared) == first);
  }
  // The two smallest row tiles also give the same bits.
  for (const int splits : {1, 5})
    CHECK(Variant::run(scene, plan_for<Variant>(scene, {Variant::kRows[0], splits})) ==
          Variant::run(scene, plan_for<Variant>(scene, {Variant::kRows[1], splits})));
}

TEST_CASE_TEMPLATE_DEFINE("batch-invariant: bits depend on the sequence alone", Variant,
                          attention_invariance) {
  const AttentionCase wanted{.query_heads = 2,
                             .lengths = {1500, 260, 600, 64},
                             .nodes = {3, 40, 17, 1},
                             .page_size = 32,
                             .window = 1000,
                             .seed = 31};
  using Scene = SceneOf<Variant, specula::cuda::BFloat16, 64>;
  const Scene batch(wanted);
  // The production plan, except that splits have 2 tiles, not 32.
  const auto plan_of = [](specula::cuda::TreeAttentionCapacity c, bool clusters, int slots) {
    const int in_clusters = clusters ? slots : 0;
    c.query_heads = 2;
    c.kv_heads = 1;
    c.batch_invariant = true;
    specula::cuda::TreeAttentionGeometry plan;
    REQUIRE(Variant::fill(&plan, c, 64, {{slots, in_clusters, in_clusters, in_clusters}}));
    CHECK(plan.fixed_tiles == 32);
    plan.fixed_tiles = 2;
    plan.splits = ((c.max_tokens + c.max_nodes + 63) / 64 + 2) / 2;
    plan.cluster = specula::cuda::detail::choose_cluster(plan.splits, clusters);
    plan.splits = (plan.splits + plan.cluster - 1) / plan.cluster * plan.cluster;
    return plan;
  };
  for (const bool clusters : {false, true}) {
    const auto together =
        Variant::run(batch, plan_of({.sequences = 4, .max_nodes = 40, .max_tokens = 1500}, clusters, 264));
    const auto errors = compare_attention(batch, together);
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 5e-3);
    for (std::size_t b = 0; b < 4; ++b) {
      Scene alone = batch;
      alone.args.begin = batch.begin.data() + b;
      alone.args.kv.length = batch.length.data() + b;
      alone.args.kv.indptr = batch.indptr.data() + b;
      const specula::cuda::TreeAttentionCapacity capacity{
          .sequences = 1,
          .max_nodes = wanted.nodes[b] + (b == 1 ? 24 : 0),
          .max_tokens = wanted.lengths[b] + (b == 3 ? 1500 : 0)};
      const auto got = Variant::run(alone, plan_of(capacity, clusters, 132), 7);
      CHECK(bits_of(batch, got, b) == bits_of(batch, together, b));
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("capacities larger and smaller than the batch", Variant, attention_capacities) {
  const SceneOf<Variant, specula::cuda::BFloat16, 64> scene(
      {.query_heads = 2, .lengths = {700, 10}, .nodes = {3, 80}, .seed = 41});
  specula::cuda::TreeAttentionCapacity c{
      .sequences = 2, .max_nodes = 100, .query_heads = 2, .kv_heads = 1, .max_tokens = 5000, .splits = 5};
  specula::cuda::TreeAttentionGeometry plan;
  REQUIRE(Variant::fill(&plan, c, 64, {{100, 100, 96, 96}}));
  CHECK(compare_attention(scene, Variant::run(scene, plan)).relative < 5e-3);
  c.max_tokens = 64;  // more tokens than the plan's limit: correct, but not split
  for (const bool invariant : {false, true}) {
    c.batch_invariant = invariant;
    REQUIRE(Variant::fill(&plan, c, 64, {{100, 100, 96, 96}}));
    CHECK(compare_attention(scene, Variant::run(scene, plan)).relative < 5e-3);
  }
  c.max_nodes = 8;  // rows of further nodes are not written
  REQUIRE(Variant::fill(&plan, c, 64, {{100, 100, 96, 96}}));
  const auto got = Variant::run(scene, plan);
  const std::int64_t first = scene.begin[1];
  for (int n = 0; n < 80; ++n)
    CHECK((got.out[static_cast<std::size_t>((first + n) * got.stride)].bits == 0x7FFE) ==
          (2 * n >= plan.rows));
  CHECK(got.status == std::vector{specula::cuda::Status::ok, specula::cuda::Status::bad_tree});
}

TEST_CASE_TEMPLATE_DEFINE("bad input neither crashes nor writes out of bounds", Variant,
                          attention_bad_input) {
  const AttentionCase c{
      .query_heads = 2, .lengths = {40, 70}, .nodes = {9, 12}, .table = KvTable::rectangle, .seed = 51};
  using Scene = SceneOf<Variant, specula::cuda::BFloat16, 64>;
  const Scene good(c);
  const auto plan = plan_for<Variant>(good);
  const auto want = Variant::run(good, plan);
  const std::vector only_first_bad{specula::cuda::Status::bad_tree, specula::cuda::Status::ok};
  {
    Scene scene(c);
    scene.length[0] = -5;
    const auto got = Variant::run(scene, plan);
    CHECK(bits_of(scene, got, 1) == bits_of(good, want, 1));
    CHECK(got.status == only_first_bad);
  }
  {
    Scene scene(c);  // more tokens than pages: existing pages are read
    scene.length[0] = 0x7FFFFFF0;
    for (std::int32_t* p : {scene.pages_k.data(), scene.pages_v.data()})
      for (int i = 0; i < scene.max_pages; ++i) p[i] = -1 - i;
    scene.args.kv.page_count = 3;
    for (std::size_t i = static_cast<std::size_t>(scene.max_pages); i < scene.pages_k.size(); ++i)
      scene.args.kv.page_count =
          std::max(scene.args.kv.page_count,
                   scene.pages_k[i] < 1000 ? static_cast<std::uint32_t>(scene.pages_k[i]) + 1 : 0);
    const auto got = Variant::run(scene, plan);
    CHECK(bits_of(scene, got, 1) == bits_of(good, want, 1));
    CHECK(got.status == only_first_bad);
  }
  {
    Scene scene(c);
    scene.begin = {12, 0, 21};  // a negative count
    const auto got = Variant::run(scene, plan);
    CHECK(got.out[static_cast<std::size_t>(21 * got.stride)].bits == 0x7FFE);
    CHECK(got.status[0] == specula::cuda::Status::bad_tree);
  }
  {
    Scene scene(c);  // NaN in a query affects only its own rows
    for (int i = 0; i < 2 * 64; ++i) scene.q[static_cast<std::size_t>(scene.q_stride + i)] = {0x7FC1};
    const auto got = Variant::run(scene, plan);
    CHECK(bits_of(scene, got, 1) == bits_of(good, want, 1));
    for (const int n : {0, 2, 8})
      for (int i = 0; i < 128; ++i)
        CHECK(got.out[static_cast<std::size_t>(n * got.stride + i)].bits ==
              want.out[static_cast<std::size_t>(n * got.stride + i)].bits);
    CHECK(std::isnan(got.lse[2]));
  }
}

/// The nodes of a scene from number earlier[b] of its sequences on, as a scene of their own; the others have
/// run.
template <class Scene>
struct LaterNodes {
  using Element = typename Scene::Element;
  using Stored = typename Scene::Stored;
  static constexpr int kHead = Scene::kHead;
  AttentionCase c;
  std::vector<std::int32_t> begin{0}, earlier;
  std::vector<Element> q;
  std::vector<std::uint64_t> mask;
  specula::cuda::TreeAttentionArgs<Element, Stored> args;

  LaterNodes(const Scene& of, const std::vector<int>& first)
      : c(of.c), earlier(first.begin(), first.end()), args(of.args) {
    for (std::size_t b = 0; b < first.size(); ++b) {
      for (std::int64_t n = of.begin[b] + first[b]; n < of.begin[b + 1]; ++n) {
        q.insert(q.end(), of.q.begin() + n * of.q_stride, of.q.begin() + (n + 1) * of.q_stride);
        mask.insert(mask.end(), of.mask.begin() + n * of.words, of.mask.begin() + (n + 1) * of.words);
      }
      begin.push_back(begin.back() + of.begin[b + 1] - of.begin[b] - first[b]);
    }
    q.resize(q.size() + 1), mask.resize(mask.size() + 1);  // never null
    args.q = q.data(), args.mask = mask.data(), args.begin = begin.data(), args.earlier = earlier.data();
    args.position = args.depth = nullptr;
  }
};

TEST_CASE_TEMPLATE_DEFINE("nodes of a tree in two calls have the bits that they have in one", Variant,
                          attention_earlier) {
  const auto check = [](const AttentionCase& c, const std::vector<int>& first) {
    using Scene = SceneOf<Variant, specula::cuda::BFloat16, 64>;
    const Scene scene(c);
    const auto plan = plan_for<Variant>(scene);
    const auto all = Variant::run(scene, plan);
    LaterNodes<Scene> rest(scene, first);
    const auto later = Variant::run(rest, plan);
    for (std::size_t b = 0; b < first.size(); ++b) {
      CAPTURE(b);
      CHECK(later.status[b] == specula::cuda::Status::ok);
      const auto whole = bits_of(scene, all, b), part = bits_of(rest, later, b);
      REQUIRE(part.size() <= whole.size());
      CHECK(std::equal(part.begin(), part.end(), whole.end() - static_cast<std::ptrdiff_t>(part.size())));
    }
    // More nodes than the mask has bits for, and fewer than none.
    rest.earlier[0] = 64 * rest.args.words;
    CHECK(Variant::run(rest, plan).status[0] == specula::cuda::Status::bad_tree);
    rest.earlier[0] = -1;
    CHECK(Variant::run(rest, plan).status[0] == specula::cuda::Status::bad_tree);
  };
  check({.query_heads = 6, .kv_heads = 2, .lengths = {50, 130, 64}, .nodes = {12, 40, 9}, .seed = 3},
        {5, 39, 0});
  check({.query_heads = 2, .kv_heads = 1, .lengths = {60}, .nodes = {130}, .seed = 4}, {66});
}

}  // namespace specula_test

/// Instantiates all cases above for a variant.
#define ATTENTION_CASES(Variant)                            \
  TEST_CASE_TEMPLATE_INVOKE(attention_random, Variant);     \
  TEST_CASE_TEMPLATE_INVOKE(attention_edges, Variant);      \
  TEST_CASE_TEMPLATE_INVOKE(attention_wide, Variant);       \
  TEST_CASE_TEMPLATE_INVOKE(attention_cross, Variant);      \
  TEST_CASE_TEMPLATE_INVOKE(attention_of_nothing, Variant); \
  TEST_CASE_TEMPLATE_INVOKE(attention_live, Variant);       \
  TEST_CASE_TEMPLATE_INVOKE(attention_scales, Variant);     \
  TEST_CASE_TEMPLATE_INVOKE(attention_positions, Variant);  \
  TEST_CASE_TEMPLATE_INVOKE(attention_scores, Variant);     \
  TEST_CASE_TEMPLATE_INVOKE(attention_maxima, Variant);     \
  TEST_CASE_TEMPLATE_INVOKE(attention_order, Variant);      \
  TEST_CASE_TEMPLATE_INVOKE(attention_invariance, Variant); \
  TEST_CASE_TEMPLATE_INVOKE(attention_earlier, Variant);    \
  TEST_CASE_TEMPLATE_INVOKE(attention_capacities, Variant); \
  TEST_CASE_TEMPLATE_INVOKE(attention_bad_input, Variant)
