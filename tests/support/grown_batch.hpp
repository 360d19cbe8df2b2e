// SPDX-License-Identifier: MIT
// Proposals grown on an emulated GPU: inputs and outputs of a batch, and the proposals of the CPU's
// shapes for the same rows.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <specula/cuda/detail/grow/grown_trees.cuh>
#include <specula/proposal/proposal_builder.hpp>
#include <specula/verify/tree_mask.hpp>

#include "device_batch.hpp"
#include "emulated_gpu.hpp"
#include "random.hpp"
#include "scripted_drafter.hpp"
#include "wide_memory.hpp"

namespace specula_test {

/// Launch geometry of a kernel, which must not affect results.
struct Geometry {
  int blocks = 1, threads = 32;
  std::uint64_t seed = 1;
  Engine engine = Engine::fibers;
  Grid grid(int clusters, std::size_t shared_bytes, int step) const {
    return {clusters, blocks, threads, shared_bytes, seed + static_cast<std::uint64_t>(step), engine};
  }
};
inline const std::vector<Geometry> kGeometries = {{1, 32, 1}, {2, 64, 2}, {1, 256, 3}};

/// One sequence of a batch.
struct Growing {
  Text context;
  specula::Token root;
  RowOf rows;
  std::int32_t limit;  // nodes that fit
  Text text() const {
    Text out = context;
    out.push_back(root);
    return out;
  }
};

/// Random sequences, some of them with limits; on request some of their rows have structure.
inline std::vector<Growing> random_batch(Random& random, int sequences, int vocab, double spread,
                                         double ties = 0, double empty = 0, bool structured = false) {
  std::vector<Growing> out;
  for (int b = 0; b < sequences; ++b) {
    Text context;
    for (int i = random.below(5); i > 0; --i) context.push_back(random.below(vocab));
    out.push_back({context, random.below(vocab),
                   (structured ? mixed_rows : random_rows)(vocab, random.bits(), spread, ties, empty),
                   random.bernoulli(0.3) ? random.below(31) : 100000});
  }
  return out;
}

/// Rows rounded to the element type.
template <class Element>
RowOf rounded(RowOf rows) {
  return [rows, round = rounding(Element{})](const Text& text) {
    std::vector<float> out = rows(text);
    if (round)
      for (float& l : out) l = round(l);
    return out;
  };
}

/// Rows of a draft call. The padding between and around them is NaN.
template <class Element>
class CallRows {
 public:
  CallRows(std::size_t count, int vocab, int pad, int offset)
      : vocab_(vocab), stride_(vocab + pad), offset_(offset) {
    data_.resize(count * static_cast<std::size_t>(stride_) + static_cast<std::size_t>(offset) + 16);
    for (Element& e : data_) set_nan(e);
  }
  /// A row that is never set remains NaN, which exposes a read.
  void put(std::size_t row, const std::vector<float>& logits) {
    REQUIRE(logits.size() == static_cast<std::size_t>(vocab_));
    Element* to = data_.data() + offset_ + static_cast<std::ptrdiff_t>(row) * stride_;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (std::isnan(logits[i]))
        set_nan(to[i]);
      else
        store(logits[i], to[i]);
    }
  }
  device::DraftRows<Element> rows() const { return {data_.data() + offset_, stride_}; }

 private:
  static void set_nan(float& e) { e = std::numeric_limits<float>::quiet_NaN(); }
  static void set_nan(device::BFloat16& e) { e.bits = 0x7FC0; }
  static void set_nan(device::Half& e) { e.bits = 0x7E00; }

  int vocab_;
  std::int64_t stride_;
  std::ptrdiff_t offset_;
  std::vector<Element> data_;
};

/// Poisoned arrays for grown trees; see device::GrownTrees.
struct GrownArrays {
  static constexpr std::int32_t kPoison = 0x55555555;
  std::size_t width, words;
  std::vector<specula::Token> token;
  std::vector<specula::NodeId> parent, first_child, next_sibling;
  std::vector<std::int32_t> begin, size, position;
  std::vector<float> confidence;
  std::vector<double> reach;
  std::vector<std::uint64_t> ancestors;
  std::vector<device::Status> status;

  GrownArrays(std::size_t sequences, int nodes)
      : width(static_cast<std::size_t>(nodes)),
        words(specula::mask_words(width)),
        token(sequences * width, kPoison),
        parent(token),
        first_child(token),
        next_sibling(token),
        begin(sequences + 1, kPoison),
        size(sequences, kPoison),
        position(token),
        confidence(sequences * width, -1.0f),
        reach(sequences * width, -1.0),
        ancestors(sequences * width * words, 0x5555555555555555ull),
        status(sequences, static_cast<device::Status>(kPoison)) {}
  friend bool operator==(const GrownArrays&, const GrownArrays&) = default;

  device::GrownTrees trees() {
    device::GrownTrees out{token.data(), parent.data()};
    out.begin = begin.data();
    out.size = size.data();
    out.position = position.data();
    out.confidence = confidence.data();
    out.reach = reach.data();
    out.ancestors = ancestors.data();
    out.first_child = first_child.data();
    out.next_sibling = next_sibling.data();
    return out;
  }

  /// Whether sequence b is `tree`, followed by padding only. Confidences are compared
  /// approximately, everything else exactly.
  bool holds(std::size_t b, const specula::TokenTree& tree) const {
    const std::size_t first = b * width, nodes = static_cast<std::size_t>(tree.size());
    bool same = begin[b] == static_cast<std::int32_t>(first) &&
                begin[b + 1] == static_cast<std::int32_t>(first + width) && nodes <= width &&
                size[b] == tree.size();
    if (!same) return false;
    std::vector<std::uint64_t> mask(nodes * specula::mask_words(nodes));
    specula::tree_mask(tree.parents(), mask);
    for (std::size_t i = 0; i < width; ++i) {
      const auto n = static_cast<specula::NodeId>(i);
      const bool there = i < nodes;
      same &= token[first + i] == (there ? tree.token(n) : specula::kNoToken);
      same &= parent[first + i] == (there ? tree.parent(n) : 0);
      same &= position[first + i] == (there ? tree.position(n) : tree.origin() + 1);
      same &= first_child[first + i] == (there ? tree.first_child(n) : specula::kNoParent);
      same &= next_sibling[first + i] == (there ? tree.next_sibling(n) : specula::kNoParent);
      const float wanted = there ? tree.confidence(n) : 0.0f;
      same &= std::abs(confidence[first + i] - wanted) <= 1e-6f * wanted;
      const double above = there && n > 0 ? reach[first + static_cast<std::size_t>(tree.parent(n))] : 1.0;
      const double product = above * static_cast<double>(confidence[first + i]);
      same &= std::abs(reach[first + i] - product) <= 1e-6 * product;
      for (std::size_t w = 0; w < words; ++w) {
        std::uint64_t expected =
            there && w < specula::mask_words(nodes) ? mask[i * specula::mask_words(nodes) + w] : 0;
        if (!there) expected = (i / 64 == w ? std::uint64_t{1} << (i % 64) : 0) | (w == 0 ? 1u : 0u);
        same &= ancestors[(first + i) * words + w] == expected;
      }
    }
    return same;
  }
};

/// The arrays that Roots points to.
struct RootArrays {
  std::vector<specula::Token> token;
  std::vector<std::int32_t> position, limit;
  explicit RootArrays(const std::vector<Growing>& batch) {
    for (const Growing& g : batch) {
      token.push_back(g.root);
      position.push_back(static_cast<std::int32_t>(g.context.size()));
      limit.push_back(g.limit);
    }
  }
  device::Roots roots(bool limits) const {
    return {token.data(), position.data(), limits ? limit.data() : nullptr};
  }
};

/// The workspace that growth keeps between its steps, initially arbitrary bytes, NaN and -1 among them.
struct GrowthMemory {
  std::vector<std::uint64_t> words;
  template <class Plan>
  explicit GrowthMemory(const Plan& plan) : words(device::workspace_bytes(plan) / 8 + 2, ~std::uint64_t{0}) {}
};

// The rest is generic over a Growth, which is a way to grow:
//   Capacity, Plan, Work   its types
//   Calls                  what the draft was run on: made from a plan, comparable
//   run<Element>(batch, plan, geometry, work, roots, rows, calls)
//                          all steps of the live sequences; rows(n) makes CallRows for n rows
//   spine(plan)            of its Planting
//   shape(capacity)        the CPU's
//   right<Element>(growing, plan, calls, b)   whether the calls of sequence b are as they should be

/// Sequences in a call of `all`.
inline std::size_t live_of(const device::Roots& roots, std::size_t all) {
  return roots.sequence_count ? static_cast<std::size_t>(*roots.sequence_count) : all;
}

template <class Growth>
struct Grown {
  typename Growth::Calls calls;
  GrownArrays trees;
  friend bool operator==(const Grown&, const Grown&) = default;
};

template <class Growth>
typename Growth::Plan plan_of(const typename Growth::Capacity& capacity) {
  typename Growth::Plan plan;
  REQUIRE(device::detail::size_plan(&plan, capacity));
  return plan;
}

/// Runs all steps of a batch, with the sequences' rows as the draft, and returns its proposals. Blocks and
/// a single thread must give the same proposals.
template <class Growth, class Element>
Grown<Growth> grow(const std::vector<Growing>& batch, const typename Growth::Plan& plan, Geometry geometry,
                   GrowthMemory& memory, int pad = 0, int offset = 0, bool limits = true,
                   const std::int32_t* live = nullptr) {
  Grown<Growth> out{typename Growth::Calls(plan), GrownArrays(batch.size(), plan.width)};
  const RootArrays arrays(batch);
  device::Roots roots = arrays.roots(limits);
  roots.sequence_count = live;
  const auto work = Growth::Work::at(memory.words.data(), plan);
  const auto rows = [&](std::size_t count) { return CallRows<Element>(count, plan.vocab, pad, offset); };
  Growth::template run<Element>(batch, plan, geometry, work, roots, rows, out.calls);

  using device::detail::TreeBuilder;
  const int spine = Growth::spine(plan);
  const std::size_t bytes = TreeBuilder<EmulatedBlock>::shared_bytes(plan.pool, spine, plan.width);
  device::detail::BuildTreeArgs build_args{
      roots,      work.pool, out.trees.trees(), work.status, out.trees.status.data(), plan.sequences,
      plan.width, spine};
  emulate({.clusters = plan.sequences,
           .threads = 2 * geometry.threads,
           .shared_bytes = bytes,
           .seed = geometry.seed,
           .engine = geometry.engine},
          [&](EmulatedCluster cluster, int b, unsigned char* shared) {
            TreeBuilder<EmulatedBlock>(cluster.block(), build_args, b, shared).build_tree();
          });
  GrownArrays serial(batch.size(), plan.width);
  build_args.out = serial.trees();
  build_args.status_out = serial.status.data();
  using Serial = TreeBuilder<device::SerialGroup>;
  std::vector<device::detail::TwoNumbers> shared(
      Serial::shared_bytes(plan.pool, spine, plan.width) / sizeof(device::detail::TwoNumbers) + 1);
  for (int b = 0; b < plan.sequences; ++b)
    Serial({}, build_args, b, reinterpret_cast<unsigned char*>(shared.data())).build_tree();
  CHECK(serial == out.trees);
  return out;
}

/// The CPU's proposal.
template <class Growth, class Element>
specula::ProposalBuilder proposal(const Growing& g, const typename Growth::Plan& plan,
                                  const typename Growth::Capacity& capacity) {
  specula::ProposalBuilder tree(plan.vocab, plan.width, 0);
  tree.reset(g.root, static_cast<std::int32_t>(g.context.size()), g.limit);
  ScriptedDrafter drafter(plan.vocab, rounded<Element>(g.rows));
  NoUniforms none;
  Growth::shape(capacity).propose(drafter, specula::ProposeContext{g.context, {}, g.limit}, tree, none).run();
  return tree;
}

/// Checks that proposals equal the CPU's, that the draft calls are right, and that results are the same
/// bits for every launch geometry, also on a workspace left by an earlier launch.
template <class Growth, class Element>
void check(const std::vector<Growing>& batch, typename Growth::Capacity capacity, std::uint64_t seed,
           const std::vector<Geometry>& geometries = kGeometries) {
  Random random(seed);
  capacity.sequences = static_cast<int>(batch.size());
  const auto plan = plan_of<Growth>(capacity);
  GrowthMemory memory(plan);
  const auto run = [&](const Geometry& geometry) {
    return grow<Growth, Element>(batch, plan, geometry, memory, random.below(3), random.below(8));
  };
  const Grown<Growth> first = run(geometries[0]);
  for (std::size_t b = 0; b < batch.size(); ++b) {
    CAPTURE(b);
    CHECK(first.trees.status[b] == device::Status::ok);
    CHECK(first.trees.holds(b, proposal<Growth, Element>(batch[b], plan, capacity)));
    CHECK(Growth::template right<Element>(batch[b], plan, first.calls, b));
  }
  for (const Geometry& geometry : geometries) {
    CAPTURE(geometry.blocks);
    CAPTURE(geometry.threads);
    CHECK(run(geometry) == first);
  }
}

/// The result of a sequence does not depend on its slot in the batch.
template <class Growth>
void check_slots(const std::vector<Growing>& batch, typename Growth::Capacity capacity) {
  capacity.sequences = static_cast<int>(batch.size());
  const auto all = plan_of<Growth>(capacity);
  capacity.sequences = 1;
  const auto one = plan_of<Growth>(capacity);
  GrowthMemory memory(all);
  const GrownArrays together = grow<Growth, float>(batch, all, {}, memory).trees;
  for (std::size_t b = 0; b < batch.size(); ++b) {
    GrowthMemory alone_memory(one);
    const GrownArrays alone = grow<Growth, float>({batch[b]}, one, {2, 32, 9}, alone_memory).trees;
    bool same = true;
    for (std::size_t i = 0; i < alone.width; ++i)
      same &= together.token[b * alone.width + i] == alone.token[i] &&
              together.confidence[b * alone.width + i] == alone.confidence[i];
    CHECK(same);
  }
}

/// With a live count the first sequences are as they are alone, and nothing of the others is touched.
template <class Growth>
void check_live(const std::vector<Growing>& batch, typename Growth::Capacity capacity) {
  capacity.sequences = static_cast<int>(batch.size());
  const auto plan = plan_of<Growth>(capacity);
  GrowthMemory memory(plan);
  const GrownArrays all = grow<Growth, float>(batch, plan, {}, memory).trees;
  for (std::int32_t live = 0; live <= plan.sequences; ++live) {
    GrowthMemory fresh(plan);
    const GrownArrays some = grow<Growth, float>(batch, plan, {2, 64, 5}, fresh, 0, 0, true, &live).trees;
    const GrownArrays untouched(batch.size(), plan.width);
    const auto cut = [&](auto field) {
      auto out = untouched.*field;
      const std::size_t each = out.size() / batch.size() * static_cast<std::size_t>(live);
      std::copy_n((all.*field).begin(), each, out.begin());
      return out == some.*field;
    };
    CHECK(cut(&GrownArrays::token));
    CHECK(cut(&GrownArrays::parent));
    CHECK(cut(&GrownArrays::size));
    CHECK(cut(&GrownArrays::position));
    CHECK(cut(&GrownArrays::reach));
    CHECK(cut(&GrownArrays::ancestors));
    CHECK(cut(&GrownArrays::status));
    std::vector<std::int32_t> begin = untouched.begin;
    std::copy_n(all.begin.begin(), live == 0 ? 0 : live + 1, begin.begin());
    CHECK(begin == some.begin);
  }
}

/// The second of three sequences has bad rows after the texts that `is_bad` selects. It must get a
/// status and the root alone, the others must be unaffected, and so must the next round.
/// `right(grown)` checks its calls.
template <class Growth, class IsBad, class Right>
void check_bad_rows(std::vector<Growing> batch, typename Growth::Capacity capacity, IsBad is_bad,
                    Right right) {
  capacity.sequences = 3;
  const auto plan = plan_of<Growth>(capacity);
  const auto expected = [&](std::size_t b) { return proposal<Growth, float>(batch[b], plan, capacity); };
  const RowOf good = batch[1].rows;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    CAPTURE(bad);
    batch[1].rows = [=](const Text& text) {
      std::vector<float> row = good(text);
      if (is_bad(text) && bad != -kInf) row[33] = bad;
      if (is_bad(text) && bad == -kInf) std::fill(row.begin(), row.end(), bad);
      return row;
    };
    GrowthMemory memory(plan);
    for (const Geometry& geometry : kGeometries) {
      const Grown<Growth> found = grow<Growth, float>(batch, plan, geometry, memory);
      using device::Status;
      CHECK(found.trees.status == std::vector<Status>{Status::ok,
                                                      bad == -kInf ? Status::empty_row : Status::not_a_number,
                                                      Status::ok});
      CHECK(found.trees.holds(0, expected(0)));
      CHECK(found.trees.holds(2, expected(2)));
      specula::ProposalBuilder alone(plan.vocab, 2, 0);
      alone.reset(batch[1].root, static_cast<std::int32_t>(batch[1].context.size()), 2);
      CHECK(found.trees.holds(1, alone));
      right(found);
    }
    batch[1].rows = good;
    CHECK(grow<Growth, float>(batch, plan, {}, memory).trees.holds(1, expected(1)));
  }
}

/// Three rows of 20 logits so far apart that 32 bits do not index them. Token 7 b + 1 is the best of row b.
class WideRows {
 public:
  WideRows() : memory_(4 * (2 * kStride + 64)) {
    for (std::int64_t b = 0; b < 3 && there(); ++b) data()[b * kStride + 7 * b + 1] = 5.0f;
  }
  bool there() const { return memory_.data() != nullptr; }
  device::DraftRows<float> rows() const { return {data(), kStride}; }

 private:
  static constexpr std::int64_t kStride = (std::int64_t{1} << 31) - 3;
  float* data() const { return static_cast<float*>(memory_.data()); }
  WideMemory memory_;
};

}  // namespace specula_test
