// SPDX-License-Identifier: MIT
// labels: threads optimised
// select_nodes(): the likeliest nodes of a batch, against a sort and against what BatchBudget keeps on the
// CPU.
#include <doctest/doctest.h>
#include <specula/cuda/api/select_nodes.cuh>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"
#include "random_trees.hpp"
#include "serial_block.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

constexpr std::int32_t kPoison = 0x55555555;

/// A batch of proposals.
struct Batch {
  std::vector<std::int32_t> begin{0};
  std::vector<Token> token;
  std::vector<NodeId> parent;
  std::vector<double> reach;
  bool chains = false;

  void add(const std::vector<NodeId>& parents, const std::vector<double>& reaches) {
    for (std::size_t i = 0; i < parents.size(); ++i) {
      token.push_back(static_cast<Token>(1000 + token.size()));
      parent.push_back(parents[i]);
      reach.push_back(reaches[i]);
    }
    begin.push_back(static_cast<std::int32_t>(token.size()));
  }
};

/// The nodes that are kept.
struct Kept {
  std::vector<std::int32_t> begin;
  std::vector<Token> token;
  std::vector<NodeId> parent;
  std::vector<std::int32_t> row_of_node;
  friend bool operator==(const Kept&, const Kept&) = default;
};

/// By a sort; `live` sequences.
Kept sorted(const Batch& batch, std::int32_t budget, std::size_t live) {
  std::vector<std::int32_t> order;
  const std::int32_t end = batch.begin[live];
  std::vector<std::uint8_t> root(batch.token.size()), keep(batch.token.size());
  for (std::size_t b = 0; b < live; ++b)
    if (batch.begin[b] < batch.begin[b + 1]) root[static_cast<std::size_t>(batch.begin[b])] = 1;
  for (std::int32_t i = 0; i < end; ++i) {
    const auto n = static_cast<std::size_t>(i);
    keep[n] = root[n];
    if (!root[n] && batch.reach[n] > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto x = batch.reach[static_cast<std::size_t>(a)], y = batch.reach[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::size_t i = 0; i < order.size() && static_cast<std::int32_t>(i) < budget; ++i)
    keep[static_cast<std::size_t>(order[i])] = 1;
  Kept out{std::vector<std::int32_t>(batch.begin.size(), kPoison),
           std::vector<Token>(batch.token.size(), kPoison), std::vector<NodeId>(batch.token.size(), kPoison),
           std::vector<std::int32_t>(batch.token.size(), kPoison)};
  std::int32_t nodes = 0;
  for (std::size_t b = 0; b < live; ++b) {
    const std::int32_t first = out.begin[b] = nodes;
    for (std::int32_t i = batch.begin[b]; i < batch.begin[b + 1]; ++i) {
      const auto n = static_cast<std::size_t>(i);
      out.row_of_node[n] = keep[n] ? nodes : -1;
      if (!keep[n]) continue;
      const NodeId parent = batch.chains ? i - batch.begin[b] - 1 : batch.parent[n];
      const std::int32_t above =
          parent < 0 ? -1 : out.row_of_node[static_cast<std::size_t>(batch.begin[b] + parent)];
      out.token[static_cast<std::size_t>(nodes)] = batch.token[n];
      out.parent[static_cast<std::size_t>(nodes)] = above < 0 ? -1 : above - first;
      ++nodes;
    }
  }
  out.begin[live] = nodes;
  return out;
}

Kept emulated(const Batch& batch, std::int32_t budget, const std::int32_t* live, int threads,
              std::uint64_t seed, Engine engine = Engine::fibers) {
  const std::size_t nodes = batch.token.size();
  Kept out{std::vector<std::int32_t>(batch.begin.size(), kPoison), std::vector<Token>(nodes, kPoison),
           std::vector<NodeId>(nodes, kPoison), std::vector<std::int32_t>(nodes, kPoison)};
  // begins of sequences that are not in the call are anything
  std::vector<std::int32_t> begin = batch.begin;
  for (std::size_t b = live ? static_cast<std::size_t>(*live) + 1 : begin.size(); b < begin.size(); ++b)
    begin[b] = -1000000;
  const detail::SelectNodesArgs args{
      {begin.data(), batch.token.data(), batch.chains ? nullptr : batch.parent.data(), batch.reach.data(),
       &budget, live},
      {out.begin.data(), out.token.data(), out.parent.data(), out.row_of_node.data()},
      static_cast<int>(batch.begin.size()) - 1};
  emulate(
      {.threads = threads, .shared_bytes = sizeof(detail::SelectNodesShared), .seed = seed, .engine = engine},
      [&](EmulatedCluster cluster, int, unsigned char* shared) {
        detail::NodeSelection<EmulatedBlock>(cluster.block(), args, shared).run();
      });
  return out;
}

/// Random trees; of their reaches many are equal if there are few `values`, and some are none.
Batch random_batch(Random& random, int sequences, std::int32_t values) {
  Batch out;
  out.chains = random.bernoulli(0.2);
  for (int b = 0; b < sequences; ++b) {
    const RandomTree tree =
        random.bernoulli(0.2) ? RandomTree{} : random_tree(random, 50, 1 + random.below(30));
    std::vector<double> reach;
    for (NodeId n = 0; n < tree.size(); ++n) {
      const double accept = values > 0 ? std::pow(0.5, random.below(values)) : random.uniform();
      const NodeId parent = out.chains ? n - 1 : tree.parent(n);
      reach.push_back(n == 0                  ? random.uniform() * 2
                      : n == 1 || parent == 0 ? accept
                                              : reach[static_cast<std::size_t>(parent)] * accept);
      if (n > 0 && random.bernoulli(0.03)) reach.back() = 0;
    }
    out.add(tree.parents, reach);
  }
  return out;
}

}  // namespace

UNTHREADED_TEST_CASE("the likeliest over all sequences, ties to the earlier, whatever the launch") {
  Random random(131);
  for (int round = 0; round < 60; ++round) {
    const Batch batch = random_batch(random, 1 + random.below(9), round % 3 == 0 ? 0 : random.below(4));
    const auto nodes = static_cast<std::int32_t>(batch.token.size());
    for (const std::int32_t budget : {-5, 0, 1, 2, 1 + random.below(nodes + 1), nodes, 1 << 30}) {
      CAPTURE(round);
      CAPTURE(budget);
      const Kept want = sorted(batch, budget, batch.begin.size() - 1);
      CHECK(emulated(batch, budget, nullptr, 32 << random.below(4), random.bits()) == want);
    }
  }
}

UNTHREADED_TEST_CASE("numbers that differ in their last digits, NaN, infinity and negative ones") {
  Batch batch;
  const double near = std::nextafter(0.5, 1.0), infinity = std::numeric_limits<double>::infinity();
  batch.add({-1, 0, 0, 0, 0, 0, 0, 0, 0},
            {std::nan(""), 0.5, near, std::nextafter(near, 1.0), std::nan(""), -0.0, -1, infinity, 5e-324});
  for (std::int32_t budget = 0; budget <= 9; ++budget) {
    CAPTURE(budget);
    CHECK(emulated(batch, budget, nullptr, 64, 1).row_of_node == sorted(batch, budget, 1).row_of_node);
  }
  CHECK(emulated(batch, 9, nullptr, 64, 1).begin.back() == 6);
}

UNTHREADED_TEST_CASE("a live count of sequences: what belongs to others is not touched") {
  Random random(132);
  const Batch batch = random_batch(random, 6, 0);
  for (std::int32_t live = 0; live <= 6; ++live)
    CHECK(emulated(batch, 20, &live, 64, 3) == sorted(batch, 20, static_cast<std::size_t>(live)));
}

UNTHREADED_TEST_CASE("a parent that is not kept, or is none, makes no tree") {
  Batch batch;
  batch.add({-1, 0, 1}, {1, 0.2, 0.9});  // not at most its parent's
  batch.add({-1, 5, -7}, {1, 0.9, 0.9});
  const Kept kept = emulated(batch, 3, nullptr, 64, 1);
  CHECK(kept.begin == std::vector<std::int32_t>{0, 2, 5});
  CHECK(std::vector<NodeId>(kept.parent.begin(), kept.parent.begin() + 5) ==
        std::vector<NodeId>{-1, -1, -1, -1, -1});
}

TEST_CASE("on threads") {
  Random random(133);
  const Batch batch = random_batch(random, 5, 3);
  CHECK(emulated(batch, 30, nullptr, 64, 1, Engine::threads) == sorted(batch, 30, 5));
}

UNTHREADED_TEST_CASE("arguments that are refused") {
  const Batch batch;
  alignas(8) static unsigned char there[64];
  const auto* i = reinterpret_cast<const std::int32_t*>(there);
  auto* o = reinterpret_cast<std::int32_t*>(there);
  const Proposals in{i, i, i, reinterpret_cast<const double*>(there), i, i};
  const SelectedNodes out{o, o, o, o};
  CHECK(detail::valid_selection(1, in, out));
  CHECK_FALSE(detail::valid_selection(0, in, out));
  const auto refused = [&](auto change) {
    Proposals a = in;
    SelectedNodes b = out;
    change(a, b);
    return !detail::valid_selection(1, a, b);
  };
  const auto* odd = reinterpret_cast<const std::int32_t*>(there + 2);
  CHECK(refused([](auto& a, auto&) { a.begin = nullptr; }));
  CHECK(refused([](auto& a, auto&) { a.token = nullptr; }));
  CHECK(refused([](auto& a, auto&) { a.reach = nullptr; }));
  CHECK(refused([](auto& a, auto&) { a.budget = nullptr; }));
  CHECK(refused([](auto&, auto& b) { b.begin = nullptr; }));
  CHECK(refused([](auto&, auto& b) { b.token = nullptr; }));
  CHECK(refused([](auto&, auto& b) { b.parent = nullptr; }));
  CHECK(refused([](auto&, auto& b) { b.row_of_node = nullptr; }));
  CHECK(refused([&](auto& a, auto&) { a.parent = odd; }));
  CHECK(refused([&](auto& a, auto&) { a.sequence_count = odd; }));
  CHECK(refused([&](auto& a, auto&) { a.reach = reinterpret_cast<const double*>(there + 4); }));
  CHECK_FALSE(refused([](auto& a, auto&) { a.parent = nullptr, a.sequence_count = nullptr; }));
}
