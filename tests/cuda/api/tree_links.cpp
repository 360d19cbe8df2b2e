// SPDX-License-Identifier: MIT
// Links, depths and masks of trees, computed on the device.
#include <doctest/doctest.h>
#include <specula/cuda/api/tree_links.cuh>
#include <specula/verify/tree_mask.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

constexpr std::int32_t kPoison = 0x55555555;
constexpr std::uint64_t kPoisonWord = 0x5555555555555555ull;

struct Links {
  std::vector<NodeId> first_child, next_sibling;
  std::vector<std::int32_t> depth;
  std::vector<std::uint64_t> ancestors;
  std::vector<Status> status;
  friend bool operator==(const Links&, const Links&) = default;

  Links(std::size_t nodes, std::size_t trees, int max_nodes)
      : first_child(nodes, kPoison),
        next_sibling(nodes, kPoison),
        depth(nodes, kPoison),
        ancestors(nodes * static_cast<std::size_t>(mask_words(max_nodes)), kPoisonWord),
        status(trees, static_cast<Status>(kPoison)) {}
  detail::TreeLinksArgs args(const std::vector<std::int32_t>& begin, const NodeId* parent, int max_nodes) {
    return {begin.data(),
            parent,
            {first_child.data(), next_sibling.data(), depth.data(), ancestors.data(), status.data()},
            max_nodes,
            nullptr};
  }
};

/// With one thread, a warp and two blocks; all the same.
Links links(const std::vector<std::int32_t>& begin, const NodeId* parent, int max_nodes, std::uint64_t seed) {
  const std::size_t trees = begin.size() - 1, bytes = detail::tree_links_shared_bytes(max_nodes);
  const auto nodes = static_cast<std::size_t>(begin.back());
  Links serial(nodes, trees, max_nodes);
  std::vector<detail::FourNodes> shared(bytes / sizeof(detail::FourNodes) + 1);
  for (std::size_t b = 0; b < trees; ++b)
    tree_links(SerialGroup{}, serial.args(begin, parent, max_nodes), static_cast<int>(b),
               reinterpret_cast<unsigned char*>(shared.data()));
  for (const int threads : {32, 128}) {
    Links out(nodes, trees, max_nodes);
    emulate({.clusters = static_cast<int>(trees), .threads = threads, .shared_bytes = bytes, .seed = seed},
            [&](EmulatedCluster cluster, int b, unsigned char* memory) {
              tree_links(cluster.block(), out.args(begin, parent, max_nodes), b, memory);
            });
    CHECK(out == serial);
  }
  return serial;
}

}  // namespace

TEST_CASE("links, depths and masks of random trees, chains and stars, in one batch") {
  Random random(91);
  for (int round = 0; round < 12; ++round) {
    std::vector<std::int32_t> begin{0};
    std::vector<NodeId> parent;
    int most = 1;
    for (int b = 0; b < 5; ++b) {
      const int n = b == 0 ? 1 : 1 + random.below(round < 8 ? 70 : 150);
      for (NodeId i = 0; i < n; ++i)
        parent.push_back(i == 0                           ? kNoParent
                         : b == 1                         ? i - 1
                         : b == 2                         ? 0
                         : b == 3 && random.bernoulli(.7) ? std::max(0, i - 1 - random.below(4))
                                                          : random.below(i));
      begin.push_back(static_cast<std::int32_t>(parent.size()));
      most = std::max(most, n);
    }
    const int max_nodes = most + (round % 2 == 0 ? 0 : 64);
    const auto words = static_cast<std::size_t>(mask_words(max_nodes));
    const Links found = links(begin, parent.data(), max_nodes, random.bits());
    for (std::size_t b = 0; b + 1 < begin.size(); ++b) {
      const auto first = static_cast<std::size_t>(begin[b]);
      const std::size_t n = static_cast<std::size_t>(begin[b + 1]) - first;
      CHECK(found.status[b] == Status::ok);
      std::vector<std::uint64_t> mask(n * specula::mask_words(n));
      specula::tree_mask({parent.data() + first, n}, mask);
      bool same = true;
      for (std::size_t i = 0; i < n; ++i) {
        NodeId child = kNoParent, sibling = kNoParent;
        for (std::size_t c = n; c-- > i + 1;) {
          if (parent[first + c] == static_cast<NodeId>(i)) child = static_cast<NodeId>(c);
          if (parent[first + c] == parent[first + i]) sibling = static_cast<NodeId>(c);
        }
        std::int32_t depth = 0;
        for (NodeId a = static_cast<NodeId>(i); a != 0; a = parent[first + static_cast<std::size_t>(a)])
          ++depth;
        same &= found.first_child[first + i] == child && found.next_sibling[first + i] == sibling &&
                found.depth[first + i] == depth;
        for (std::size_t w = 0; w < words; ++w)
          same &= found.ancestors[(first + i) * words + w] ==
                  (w < specula::mask_words(n) ? mask[i * specula::mask_words(n) + w] : 0);
      }
      CHECK(same);
    }
  }
}

TEST_CASE("no parents: chains") {
  const std::vector<std::int32_t> begin = {0, 3, 4, 74};
  const Links found = links(begin, nullptr, 70, 1);
  CHECK(found.status == std::vector<Status>(3, Status::ok));
  CHECK(std::vector<NodeId>(found.first_child.begin(), found.first_child.begin() + 4) ==
        std::vector<NodeId>{1, 2, -1, -1});
  CHECK(found.next_sibling == std::vector<NodeId>(74, -1));
  CHECK(found.depth[73] == 69);
  CHECK(found.ancestors[2 * 73] == ~std::uint64_t{0});
  CHECK(found.ancestors[2 * 73 + 1] == 63);
}

TEST_CASE(
    "bad trees get a status and no links; trees that are too large are not touched; empty slots are no "
    "error") {
  for (const std::vector<NodeId>& bad : {std::vector<NodeId>{-1, 1, 0},
                                         {-1, 2, 0},
                                         {0, 0, 1},
                                         {-1, -1, 0},
                                         {-1, 0, 1000000},
                                         {-2, 0, 0},
                                         {-1, 0, -1000000}}) {
    std::vector<NodeId> parent = {-1, 0, 0};
    parent.insert(parent.end(), bad.begin(), bad.end());
    parent.insert(parent.end(), {-1, 0, 1, 2, 3});
    const Links found = links({0, 3, 6, 6, 11}, parent.data(), 4, 1);
    CHECK(found.status == std::vector<Status>{Status::ok, Status::bad_tree, Status::ok, Status::bad_tree});
    CHECK(found.first_child ==
          std::vector<NodeId>{1, -1, -1, -1, -1, -1, kPoison, kPoison, kPoison, kPoison, kPoison});
    CHECK(found.next_sibling[1] == 2);
    CHECK(found.next_sibling[4] == -1);
    CHECK(found.depth[3] == 0);
    CHECK(found.depth[4] == 1);
    CHECK(std::vector<std::uint64_t>(found.ancestors.begin() + 3, found.ancestors.begin() + 7) ==
          std::vector<std::uint64_t>{1, 3, 5, kPoisonWord});
  }
}

TEST_CASE("outputs that are null are not written") {
  const std::vector<std::int32_t> begin = {0, 3};
  std::vector<NodeId> depth(3, kPoison);
  std::vector<detail::FourNodes> shared(detail::tree_links_shared_bytes(3) / sizeof(detail::FourNodes) + 1);
  detail::TreeLinksArgs args{begin.data(), nullptr, {}, 3, nullptr};
  args.out.depth = depth.data();
  tree_links(SerialGroup{}, args, 0, reinterpret_cast<unsigned char*>(shared.data()));
  CHECK(depth == std::vector<NodeId>{0, 1, 2});
}

TEST_CASE("a live count of trees: what belongs to others is not touched") {
  const std::vector<std::int32_t> begin = {0, 2, -1000000};
  std::vector<detail::FourNodes> shared(detail::tree_links_shared_bytes(3) / sizeof(detail::FourNodes) + 1);
  Links out(4, 2, 3);
  for (std::int32_t live = 0; live <= 1; ++live) {
    detail::TreeLinksArgs args = out.args(begin, nullptr, 3);
    args.sequence_count = &live;
    for (int b = 0; b < 2; ++b)
      tree_links(SerialGroup{}, args, b, reinterpret_cast<unsigned char*>(shared.data()));
    CHECK(out.depth ==
          (live ? std::vector<NodeId>{0, 1, kPoison, kPoison} : std::vector<NodeId>(4, kPoison)));
    CHECK(out.status[0] == (live ? Status::ok : static_cast<Status>(kPoison)));
    CHECK(out.status[1] == static_cast<Status>(kPoison));
  }
}
