// SPDX-License-Identifier: MIT
// Batches of trees and caches for tree attention: on the host, with the reference, and on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention.cuh"
#include "random.cuh"
#include "tally.cuh"

namespace specula_bench {

enum class Layout { contiguous, pages, pages_by_head, side_by_side };

struct Shape {
  int query_heads = 8, kv_heads = 2, sequences = 3, max_nodes = 20, max_tokens = 300;
  Layout layout = Layout::contiguous;
  int page_size = 16;
  int window = 0;
  float softcap = 0;
  bool tail = true, batch_invariant = false;
  int splits = 0;
  bool full = false;  // all sequences are as long, and all trees as large, as they can be
};

template <class Element, int kHead, class Stored = Element>
struct Batch {
  Shape shape;
  int words, table_pages = 0;
  std::int64_t page_stride, token_stride, head_stride, value_offset = 0;
  std::vector<std::int32_t> begin{0}, length, depth, pages, indptr{0}, parent;
  std::vector<std::uint64_t> mask;
  std::vector<Element> q;
  std::vector<Stored> k, v;
  std::vector<float> k_scale, v_scale;  // (Hkv) of a cache of bytes

  int slot_page(int sequence, int slot) const {
    const int of = slot / shape.page_size;
    if (shape.layout == Layout::contiguous) return sequence;
    if (shape.layout == Layout::pages_by_head)
      return pages[static_cast<std::size_t>(sequence * table_pages + of)];
    return pages[static_cast<std::size_t>(indptr[static_cast<std::size_t>(sequence)] + of)];
  }
  std::size_t row_at(int sequence, int slot, int head) const {
    return static_cast<std::size_t>(slot_page(sequence, slot) * page_stride +
                                    slot % shape.page_size * token_stride + head * head_stride);
  }

  Batch(const Shape& s, std::uint64_t seed) : shape(s), words(s.tail ? (s.max_nodes + 63) / 64 : 0) {
    Random random{seed};
    int pool = 0;
    if (shape.layout == Layout::contiguous) shape.page_size = s.max_tokens + s.max_nodes;
    for (int b = 0; b < s.sequences; ++b) {
      const int nodes = s.full ? s.max_nodes : b == 1 ? 0 : 1 + random.below(s.max_nodes);
      const int half = s.max_tokens / 2;
      length.push_back(s.full ? s.max_tokens : b == 2 ? 0 : s.max_tokens - random.below(half + 1));
      for (int n = 0; n < nodes; ++n) {
        const int p = n == 0 ? -1 : random.below(3) ? n - 1 : random.below(n);
        parent.push_back(p);
        const auto first = static_cast<std::size_t>(begin.back());
        depth.push_back(p < 0 ? 0 : 1 + depth[first + static_cast<std::size_t>(p)]);
        for (int w = 0; w < words; ++w) {
          std::uint64_t word =
              p < 0 ? 0
                    : mask[(first + static_cast<std::size_t>(p)) * static_cast<std::size_t>(words) +
                           static_cast<std::size_t>(w)];
          if (n / 64 == w) word |= std::uint64_t{1} << (n % 64);
          mask.push_back(word);
        }
      }
      begin.push_back(begin.back() + nodes);
      const int slots = length.back() + nodes;
      const int needed = (slots + shape.page_size - 1) / shape.page_size;
      indptr.push_back(indptr.back() + needed);
      table_pages = std::max(table_pages, needed);
      pool += needed;
    }
    if (shape.layout == Layout::contiguous) {
      pool = s.sequences;
    } else {  // pages in a drawn order
      std::vector<std::int32_t> order;
      for (int i = 0; i < pool; ++i) order.push_back(i);
      for (int i = pool - 1; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
      if (shape.layout == Layout::pages_by_head) {
        pages.assign(static_cast<std::size_t>(std::max(1, s.sequences * table_pages)), -1);
        for (int b = 0; b < s.sequences; ++b)
          for (int i = indptr[static_cast<std::size_t>(b)]; i < indptr[static_cast<std::size_t>(b) + 1]; ++i)
            pages[static_cast<std::size_t>(b * table_pages + i - indptr[static_cast<std::size_t>(b)])] =
                order[static_cast<std::size_t>(i)];
      } else {
        pages = order;
      }
      if (pages.empty()) pages.push_back(0);
    }
    const std::int64_t page = static_cast<std::int64_t>(shape.page_size) * s.kv_heads * kHead;
    const bool by_head = shape.layout == Layout::pages_by_head;
    token_stride = by_head ? kHead : s.kv_heads * kHead;
    head_stride = by_head ? static_cast<std::int64_t>(shape.page_size) * kHead : kHead;
    page_stride = page;
    if (shape.layout == Layout::side_by_side) page_stride = 2 * page, value_offset = page;
    Stored nan;
    nan.bits = static_cast<decltype(nan.bits)>(0x7FFF >> 8 * (2 - sizeof(Stored)));
    for (int h = 0; h < s.kv_heads && sizeof(Stored) == 1; ++h) {
      k_scale.push_back(0.5f + 0.1f * static_cast<float>(random.below(10)));
      v_scale.push_back(0.5f + 0.1f * static_cast<float>(random.below(10)));
    }
    const auto size = static_cast<std::size_t>(std::max(1, pool) * page_stride);
    k.assign(size, nan);
    if (shape.layout != Layout::side_by_side) v.assign(size, nan);
    std::vector<Stored>& values = shape.layout == Layout::side_by_side ? k : v;
    for (int b = 0; b < s.sequences; ++b) {
      const auto at = static_cast<std::size_t>(b);
      for (int slot = 0; slot < length[at] + begin[at + 1] - begin[at]; ++slot)
        for (int h = 0; h < s.kv_heads; ++h)
          for (int d = 0; d < kHead; ++d) {
            const std::size_t place = row_at(b, slot, h) + static_cast<std::size_t>(d);
            k[place] = rounded(random.normal(), Stored{});
            values[place + static_cast<std::size_t>(value_offset)] = rounded(random.normal(), Stored{});
          }
    }
    for (int i = 0; i < begin.back() * s.query_heads * kHead; ++i)
      q.push_back(rounded(1.5f * random.normal(), Element{}));
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(kHead)); }
  template <class T>
  static double at(const std::vector<T>& from, std::size_t place) {
    return as_double(from[place]);
  }
  static double of_head(const std::vector<float>& scales, int head) {
    return scales.empty() ? 1.0 : static_cast<double>(scales[static_cast<std::size_t>(head)]);
  }

  /// In doubles, straight from the definition: out (N, Hq, D), lse (N, Hq).
  void reference(std::vector<double>& out, std::vector<double>& lse) const {
    const int nodes = begin.back(), rows = nodes * shape.query_heads;
    out.assign(static_cast<std::size_t>(rows) * kHead, 0.0);
    lse.assign(static_cast<std::size_t>(rows), -std::numeric_limits<double>::infinity());
    const std::vector<Stored>& values = shape.layout == Layout::side_by_side ? k : v;
    const auto row = [&](int r) {
      const int query = r / shape.query_heads, head = r % shape.query_heads;
      const int kv_head = head / (shape.query_heads / shape.kv_heads);
      int b = 0;
      while (begin[static_cast<std::size_t>(b) + 1] <= query) ++b;
      const int first = begin[static_cast<std::size_t>(b)], node = query - first;
      const int prefix = length[static_cast<std::size_t>(b)];
      const int position = prefix + depth[static_cast<std::size_t>(query)];
      std::vector<std::pair<double, int>> seen;  // score and slot
      double top = -std::numeric_limits<double>::infinity();
      const auto look = [&](int slot, int key_position) {
        if (shape.window > 0 && position - key_position >= shape.window) return;
        double score = 0;
        const std::size_t qa = static_cast<std::size_t>(r) * kHead, ka = row_at(b, slot, kv_head);
        for (std::size_t d = 0; d < kHead; ++d) score += at(q, qa + d) * at(k, ka + d);
        score *= static_cast<double>(scale()) * of_head(k_scale, kv_head);
        if (shape.softcap > 0) {
          const auto cap = static_cast<double>(shape.softcap);
          score = cap * std::tanh(score / cap);
        }
        seen.emplace_back(score, slot);
        top = std::max(top, score);
      };
      for (int slot = 0; slot < prefix; ++slot) look(slot, slot);
      if (shape.tail)
        for (int n = node; n >= 0; n = parent[static_cast<std::size_t>(first + n)])
          look(prefix + n, prefix + depth[static_cast<std::size_t>(first + n)]);
      if (seen.empty()) return;
      double total = 0;
      for (const auto& s : seen) total += std::exp(s.first - top);
      for (const auto& s : seen) {
        const double weight = std::exp(s.first - top) / total;
        const std::size_t va = row_at(b, s.second, kv_head) + static_cast<std::size_t>(value_offset);
        for (std::size_t d = 0; d < kHead; ++d)
          out[static_cast<std::size_t>(r) * kHead + d] +=
              weight * of_head(v_scale, kv_head) * at(values, va + d);
      }
      lse[static_cast<std::size_t>(r)] = top + std::log(total);
    };
    for_all(rows, row);
  }
};

/// A batch on the device, its outputs poisoned.
template <class Element, int kHead, class Stored = Element>
class DeviceBatch {
 public:
  explicit DeviceBatch(const Batch<Element, kHead, Stored>& batch) { upload(batch); }
  void upload(const Batch<Element, kHead, Stored>& batch) {
    shape_ = batch.shape, words_ = batch.words, table_pages_ = batch.table_pages;
    page_stride_ = batch.page_stride, token_stride_ = batch.token_stride, head_stride_ = batch.head_stride;
    value_offset_ = batch.value_offset, scale_ = batch.scale();
    begin_.upload(batch.begin), length_.upload(batch.length), depth_.upload(batch.depth);
    pages_.upload(batch.pages), indptr_.upload(batch.indptr), mask_.upload(batch.mask);
    q_.upload(batch.q), k_.upload(batch.k), v_.upload(batch.v);
    k_scale_.upload(batch.k_scale), v_scale_.upload(batch.v_scale);
    const auto rows = static_cast<std::size_t>(batch.begin.back() * batch.shape.query_heads);
    out_.reserve(rows * kHead), lse_.reserve(rows);
    poison();
  }
  void poison() {
    out_.fill_bytes(0xFF), lse_.fill_bytes(0xFF);  // NaN
  }
  device::TreeAttentionCapacity capacity() const {
    device::TreeAttentionCapacity out;
    out.sequences = shape_.sequences;
    out.max_nodes = shape_.max_nodes;
    out.query_heads = shape_.query_heads;
    out.kv_heads = shape_.kv_heads;
    out.max_tokens = shape_.max_tokens;
    out.splits = shape_.splits;
    out.batch_invariant = shape_.batch_invariant;
    return out;
  }
  /// From sequence `first` on.
  device::TreeAttentionArgs<Element, Stored> args(int first = 0) const {
    const bool side = shape_.layout == Layout::side_by_side;
    const std::int32_t* pages = shape_.layout == Layout::contiguous ? nullptr : pages_.data();
    const std::int64_t page = shape_.layout == Layout::contiguous ? first * page_stride_ : 0;
    const std::ptrdiff_t row =
        shape_.layout == Layout::pages_by_head ? static_cast<std::ptrdiff_t>(first) * table_pages_ : 0;
    const Stored* keys = k_.data() + page;
    const Stored* values = (side ? k_.data() + value_offset_ : v_.data()) + page;
    device::TreeAttentionArgs<Element, Stored> out{};
    out.q = q_.data();
    out.q_stride = shape_.query_heads * kHead;
    out.kv.k = {keys, page_stride_, token_stride_, head_stride_, pages ? pages + row : nullptr};
    out.kv.v = {values, page_stride_, token_stride_, head_stride_, pages ? pages + row : nullptr};
    out.kv.length = length_.data() + first;
    out.kv.page_size = shape_.page_size;
    if (shape_.layout == Layout::pages || side) out.kv.indptr = indptr_.data() + first;
    if (shape_.layout == Layout::pages_by_head) out.kv.max_pages = table_pages_;
    out.begin = begin_.data() + first;
    out.mask = mask_.data();
    out.words = words_;
    out.out = out_.data();
    out.out_stride = shape_.query_heads * kHead;
    out.lse = lse_.data();
    out.scale = scale_;
    out.softcap = shape_.softcap;
    out.window = shape_.window;
    out.depth = shape_.window ? depth_.data() : nullptr;
    if (sizeof(Stored) == 1) out.k_scale = k_scale_.data(), out.v_scale = v_scale_.data();
    return out;
  }
  std::vector<Element> out() const { return out_.download(); }
  std::vector<float> lse() const { return lse_.download(); }

 private:
  Shape shape_;
  int words_ = 0, table_pages_ = 0;
  std::int64_t page_stride_ = 0, token_stride_ = 0, head_stride_ = 0, value_offset_ = 0;
  float scale_ = 1;
  DeviceArray<std::int32_t> begin_, length_, depth_, pages_, indptr_;
  DeviceArray<std::uint64_t> mask_;
  DeviceArray<Element> q_, out_;
  DeviceArray<Stored> k_, v_;
  DeviceArray<float> k_scale_, v_scale_, lse_;
};

}  // namespace specula_bench
