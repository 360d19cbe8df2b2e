// SPDX-License-Identifier: MIT
// KV cache of the committed context and the nodes, contiguous per layer and head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cpu {

/// Both in the layout that the panel product reads: keys as panels of 16 positions, values as panels of 16
/// features.
///
///   key   (layer, head): [slot / 16][feature][slot % 16]
///   value (layer, head): [feature / 16][slot][feature % 16]
///
/// A slot holds one token; committed tokens are in the slots of their positions. Memory: 2 * layers * heads *
/// capacity * head_dim values.
template <class Real>
class KvCache {
 public:
  KvCache() = default;
  /// Allocates `capacity` slots, rounded up to whole panels, for `heads` KV heads per layer.
  KvCache(std::int32_t layers, std::int32_t heads, std::int32_t head_dim, std::int32_t capacity)
      : layers_(layers),
        heads_(heads),
        head_dim_(head_dim),
        slots_(detail::round_up(capacity, detail::kPanel)) {
    const auto parts = static_cast<std::size_t>(layers) * static_cast<std::size_t>(heads);
    keys_.resize(parts * static_cast<std::size_t>(key_stride()));
    values_.resize(parts * static_cast<std::size_t>(value_stride()));
  }

  std::int32_t layers() const { return layers_; }      ///< layers of the model
  std::int32_t heads() const { return heads_; }        ///< KV heads per layer
  std::int32_t head_dim() const { return head_dim_; }  ///< features per head
  std::int32_t slots() const { return slots_; }        ///< rounded up to whole panels
  /// Panels of 16 features per value.
  std::int32_t value_panels() const { return detail::round_up(head_dim_, detail::kPanel) / detail::kPanel; }

  /// Panels over slots; the depth of the product is head_dim.
  detail::RealPanels<Real> keys(std::int32_t layer, std::int32_t head) const {
    return {keys_.data() + part(layer, head) * key_stride(),
            static_cast<std::ptrdiff_t>(detail::kPanel) * head_dim_, detail::kPanel};
  }
  /// Panels over features, from slot `first` on; the depth of the product is the number of slots.
  detail::RealPanels<Real> values(std::int32_t layer, std::int32_t head, std::int32_t first) const {
    const auto panel = static_cast<std::ptrdiff_t>(detail::kPanel) * slots_;
    return {values_.data() + part(layer, head) * value_stride() +
                first * static_cast<std::ptrdiff_t>(detail::kPanel),
            panel, detail::kPanel};
  }

  /// Writes a key and a value (head_dim) to a slot.
  void store(std::int32_t layer, std::int32_t head, std::int32_t slot, const Real* key, const Real* value) {
    Real* to_key = key_at(part(layer, head), slot);
    Real* to_value = value_at(part(layer, head), slot);
    for (std::int32_t d = 0; d < head_dim_; ++d) {
      to_key[key_offset(d)] = key[d];
      to_value[value_offset(d)] = value[d];
    }
  }

  /// Room for `capacity` slots, at least as many as now. Throws std::bad_alloc, and changes nothing.
  void grow(std::int32_t capacity) {
    KvCache more(layers_, heads_, head_dim_, capacity);
    more.copy(*this, slots_);
    *this = std::move(more);
  }
  /// The first `slots` slots become those of `other`, whole panels at a time.
  void copy(const KvCache& other, std::int32_t slots) {
    const auto filled = static_cast<std::ptrdiff_t>(detail::round_up(slots, detail::kPanel));
    for (std::ptrdiff_t p = 0; p < static_cast<std::ptrdiff_t>(layers_) * heads_; ++p) {
      std::copy_n(other.keys_.data() + p * other.key_stride(), filled * head_dim_,
                  keys_.data() + p * key_stride());
      for (std::ptrdiff_t panel = 0; panel < value_panels(); ++panel)
        std::copy_n(other.values_.data() + p * other.value_stride() + panel * other.slots_ * detail::kPanel,
                    filled * detail::kPanel,
                    values_.data() + p * value_stride() + panel * slots_ * detail::kPanel);
    }
  }

  /// Copies slot `from` to slot `to` in all layers and heads.
  void move(std::int32_t from, std::int32_t to) {
    if (from == to) return;
    for (std::ptrdiff_t p = 0; p < static_cast<std::ptrdiff_t>(layers_) * heads_; ++p) {
      const Real *key = key_at(p, from), *value = value_at(p, from);
      Real *to_key = key_at(p, to), *to_value = value_at(p, to);
      for (std::int32_t d = 0; d < head_dim_; ++d) {
        to_key[key_offset(d)] = key[key_offset(d)];
        to_value[value_offset(d)] = value[value_offset(d)];
      }
    }
  }

 private:
  static std::ptrdiff_t key_offset(std::int32_t d) { return static_cast<std::ptrdiff_t>(d) * detail::kPanel; }
  std::ptrdiff_t value_offset(std::int32_t d) const {
    return static_cast<std::ptrdiff_t>(d / detail::kPanel) * slots_ * detail::kPanel + d % detail::kPanel;
  }
  std::ptrdiff_t key_stride() const { return static_cast<std::ptrdiff_t>(slots_) * head_dim_; }
  std::ptrdiff_t value_stride() const {
    return static_cast<std::ptrdiff_t>(slots_) * detail::round_up(head_dim_, detail::kPanel);
  }
  std::ptrdiff_t part(std::int32_t layer, std::int32_t head) const {
    return static_cast<std::ptrdiff_t>(layer) * heads_ + head;
  }
  Real* key_at(std::ptrdiff_t part, std::int32_t slot) {
    return keys_.data() + part * key_stride() +
           static_cast<std::ptrdiff_t>(slot / detail::kPanel) * detail::kPanel * head_dim_ +
           slot % detail::kPanel;
  }
  Real* value_at(std::ptrdiff_t part, std::int32_t slot) {
    return values_.data() + part * value_stride() + static_cast<std::ptrdiff_t>(slot) * detail::kPanel;
  }

  std::int32_t layers_ = 0, heads_ = 0, head_dim_ = 0, slots_ = 0;
  detail::AlignedVector<Real> keys_, values_;
};

/// The keys and values of a model's committed tokens, for a draft that is conditioned on them: those of the
/// tokens at positions [0, size()), keys with RoPE applied. Not owned; valid until the model's next call,
/// after which its accessors throw std::logic_error.
template <class Real>
class KeyValuesView {
 public:
  KeyValuesView() = default;
  /// Of the first `size` tokens in `cache`; `guard` is the model's.
  KeyValuesView(const KvCache<Real>& cache, std::int32_t size, specula::detail::ViewGuard guard)
      : cache_(&cache), size_(size), guard_(guard) {}

  /// Committed tokens. Throws std::logic_error if the view is stale.
  std::int32_t size() const {
    check_guard();
    return size_;
  }
  /// The cache that holds them. Throws std::logic_error if the view is stale.
  const KvCache<Real>& cache() const {
    check_guard();
    return *cache_;
  }

 private:
  void check_guard() const { guard_.expect_valid("KeyValuesView"); }

  const KvCache<Real>* cache_ = nullptr;
  std::int32_t size_ = 0;
  specula::detail::ViewGuard guard_;
};

}  // namespace specula::cpu
