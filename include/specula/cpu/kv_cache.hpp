// SPDX-License-Identifier: MIT
// KV cache of the committed context and the nodes, contiguous per layer and head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/round_to_half.hpp"
#include "specula/cpu/inputs.hpp"
#include "specula/model/view_guard.hpp"
#include "specula/simd/isa.hpp"

namespace specula::cpu {

/// Both in the layout that the panel product reads: keys as panels of 16 positions, values as panels of 16
/// features.
///
///   key   (layer, head): [slot / 16][feature][slot % 16]
///   value (layer, head): [feature / 16][slot][feature % 16]
///
/// A slot holds one token; committed tokens are in the slots of their positions. Memory: 2 * layers * heads *
/// capacity * head_dim numbers, which are Real or half floats.
template <class Real>
class KvCache {
 public:
  KvCache() = default;
  /// Allocates `capacity` slots, rounded up to whole panels, for `heads` KV heads per layer. Half floats are
  /// for Real = float only; `isa` rounds to them, to the same bits whichever it is.
  KvCache(std::int32_t layers, std::int32_t heads, std::int32_t head_dim, std::int32_t capacity,
          CacheType type = CacheType::full, Isa isa = best_isa())
      : layers_(layers),
        heads_(heads),
        head_dim_(head_dim),
        slots_(detail::round_up(capacity, detail::kPanel)),
        type_(type),
        isa_(isa) {
    const auto parts = static_cast<std::size_t>(layers) * static_cast<std::size_t>(heads);
    visit([&](auto& own) {
      own.keys.resize(parts * static_cast<std::size_t>(key_stride()));
      own.values.resize(parts * static_cast<std::size_t>(value_stride()));
    });
  }

  std::int32_t layers() const { return layers_; }      ///< layers of the model
  std::int32_t heads() const { return heads_; }        ///< KV heads per layer
  std::int32_t head_dim() const { return head_dim_; }  ///< features per head
  std::int32_t slots() const { return slots_; }        ///< rounded up to whole panels
  CacheType type() const { return type_; }             ///< of the numbers
  /// Panels of 16 features per value.
  std::int32_t value_panels() const { return detail::round_up(head_dim_, detail::kPanel) / detail::kPanel; }

  /// Panels over slots; the depth of the product is head_dim. T is the type of the numbers: Real, or
  /// std::uint16_t for half floats.
  template <class T = Real>
  auto keys(std::int32_t layer, std::int32_t head) const {
    return panels(numbers<T>().keys.data() + part(layer, head) * key_stride(),
                  static_cast<std::ptrdiff_t>(detail::kPanel) * head_dim_);
  }
  /// Panels over features, from slot `first` on; the depth of the product is the number of slots.
  template <class T = Real>
  auto values(std::int32_t layer, std::int32_t head, std::int32_t first) const {
    return panels(numbers<T>().values.data() + part(layer, head) * value_stride() +
                      first * static_cast<std::ptrdiff_t>(detail::kPanel),
                  static_cast<std::ptrdiff_t>(detail::kPanel) * slots_);
  }

  /// Writes a key and a value (head_dim) to a slot.
  void store(std::int32_t layer, std::int32_t head, std::int32_t slot, const Real* key, const Real* value) {
    visit([&]<class T>(Numbers<T>& own) {
      T* const to_key = key_at(own, part(layer, head), slot);
      T* const to_value = value_at(own, part(layer, head), slot);
      for (std::int32_t d = 0; d < head_dim_; d += detail::kPanel) {
        const std::int32_t count = std::min(detail::kPanel, head_dim_ - d);
        T some[detail::kPanel];
        convert(key + d, count, some);
        for (std::int32_t i = 0; i < count; ++i) to_key[key_offset(d + i)] = some[i];
        convert(value + d, count, to_value + value_offset(d));
      }
    });
  }

  /// Room for `capacity` slots, at least as many as now. Throws std::bad_alloc, and changes nothing.
  void grow(std::int32_t capacity) {
    KvCache more(layers_, heads_, head_dim_, capacity, type_, isa_);
    more.copy(*this, slots_);
    *this = std::move(more);
  }
  /// The first `slots` slots become those of `other`, whole panels at a time. Both are of one shape and type.
  void copy(const KvCache& other, std::int32_t slots) {
    const auto filled = static_cast<std::ptrdiff_t>(detail::round_up(slots, detail::kPanel));
    visit([&]<class T>(Numbers<T>& own) {
      const Numbers<T>& from = other.template numbers<T>();
      for (std::ptrdiff_t p = 0; p < static_cast<std::ptrdiff_t>(layers_) * heads_; ++p) {
        std::copy_n(from.keys.data() + p * other.key_stride(), filled * head_dim_,
                    own.keys.data() + p * key_stride());
        for (std::ptrdiff_t panel = 0; panel < value_panels(); ++panel)
          std::copy_n(from.values.data() + p * other.value_stride() + panel * other.slots_ * detail::kPanel,
                      filled * detail::kPanel,
                      own.values.data() + p * value_stride() + panel * slots_ * detail::kPanel);
      }
    });
  }

  /// Copies slot `from` to slot `to` in all layers and heads.
  void move(std::int32_t from, std::int32_t to) {
    if (from == to) return;
    visit([&]<class T>(Numbers<T>& own) {
      for (std::ptrdiff_t p = 0; p < static_cast<std::ptrdiff_t>(layers_) * heads_; ++p) {
        const T *key = key_at(own, p, from), *value = value_at(own, p, from);
        T *to_key = key_at(own, p, to), *to_value = value_at(own, p, to);
        for (std::int32_t d = 0; d < head_dim_; ++d) {
          to_key[key_offset(d)] = key[key_offset(d)];
          to_value[value_offset(d)] = value[value_offset(d)];
        }
      }
    });
  }

 private:
  template <class T>
  struct Numbers {
    detail::AlignedVector<T> keys, values;
  };

  /// Calls f with the numbers of this type; the others are empty.
  template <class F>
  void visit(F f) {
    if constexpr (std::is_same_v<Real, float>)
      if (type_ == CacheType::half) return f(halves_);
    f(full_);
  }
  template <class T>
  const Numbers<T>& numbers() const {
    if constexpr (std::is_same_v<T, Real>)
      return full_;
    else
      return halves_;
  }
  static detail::RealPanels<Real> panels(const Real* at, std::ptrdiff_t panel) {
    return {at, panel, detail::kPanel};
  }
  static detail::HalfPanels panels(const std::uint16_t* at, std::ptrdiff_t panel) { return {at, panel}; }

  void convert(const Real* from, std::int32_t count, Real* to) const { std::copy_n(from, count, to); }
  void convert(const Real* from, std::int32_t count, std::uint16_t* to) const {
    detail::round_to_half(isa_, from, count, to);
  }

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
  template <class T>
  T* key_at(Numbers<T>& of, std::ptrdiff_t part, std::int32_t slot) const {
    return of.keys.data() + part * key_stride() +
           static_cast<std::ptrdiff_t>(slot / detail::kPanel) * detail::kPanel * head_dim_ +
           slot % detail::kPanel;
  }
  template <class T>
  T* value_at(Numbers<T>& of, std::ptrdiff_t part, std::int32_t slot) const {
    return of.values.data() + part * value_stride() + static_cast<std::ptrdiff_t>(slot) * detail::kPanel;
  }

  std::int32_t layers_ = 0, heads_ = 0, head_dim_ = 0, slots_ = 0;
  CacheType type_ = CacheType::full;
  Isa isa_ = Isa::portable;
  Numbers<Real> full_;
  Numbers<std::uint16_t> halves_;
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
