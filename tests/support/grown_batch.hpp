// Proposals grown on an emulated GPU: what a batch begins with, what it leaves, and what the CPU's shapes
// make of the same rows.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <specula/cuda/device/grown_trees.cuh>
#include <specula/token_tree.hpp>
#include <specula/verify/tree_mask.hpp>

#include "device_batch.hpp"
#include "emulated_gpu.hpp"
#include "random.hpp"
#include "scripted_drafter.hpp"

namespace specula_test {

/// How a kernel is launched; nothing of it may show in the results.
struct Geometry {
  int blocks = 1, threads = 32;
  std::uint64_t seed = 1;
  Engine engine = Engine::fibers;
};

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

/// Rows rounded to what an element holds.
template <class Element>
RowOf rounded(RowOf rows) {
  return [rows, round = rounding(Element{})](const Text& text) {
    std::vector<float> out = rows(text);
    if (round)
      for (float& l : out) l = round(l);
    return out;
  };
}

/// Rows of a call of the draft. What lies between and around them is NaN.
template <class Element>
class CallRows {
 public:
  CallRows(std::size_t count, int vocab, int pad, int offset)
      : vocab_(vocab), stride_(vocab + pad), offset_(offset) {
    data_.resize(count * static_cast<std::size_t>(stride_) + static_cast<std::size_t>(offset) + 16);
    for (Element& e : data_) set_nan(e);
  }
  /// A row that is never put stays NaN: reading it shows.
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
        ancestors(sequences * width * words, 0x5555555555555555ull),
        status(sequences, static_cast<device::Status>(kPoison)) {}
  friend bool operator==(const GrownArrays&, const GrownArrays&) = default;

  device::GrownTrees trees() {
    device::GrownTrees out{token.data(), parent.data()};
    out.begin = begin.data();
    out.size = size.data();
    out.position = position.data();
    out.confidence = confidence.data();
    out.ancestors = ancestors.data();
    out.first_child = first_child.data();
    out.next_sibling = next_sibling.data();
    return out;
  }

  /// Whether sequence b is `tree`, and all behind it padding. Confidences are near; everything else the same.
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

/// What Roots points to.
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

}  // namespace specula_test
