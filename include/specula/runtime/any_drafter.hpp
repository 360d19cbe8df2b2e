// SPDX-License-Identifier: MIT
// Type-erased drafter over one model: ModelDrafter, Glide or FeatureHead.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "specula/base/stats.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"

namespace specula {

/// A ModelDrafter, Glide or FeatureHead, chosen when the models are loaded, so that a pipeline is compiled
/// once for all of them. One virtual call per pass.
class AnyDrafter {
 public:
  /// Takes the drafter.
  template <LogitsDrafter D>
  explicit AnyDrafter(D drafter) : drafter_(std::make_unique<Of<D>>(std::move(drafter))) {}

  std::int32_t vocab_size() const { return drafter_->vocab_size(); }  ///< size V of the vocabulary
  std::int32_t capacity() const { return drafter_->capacity(); }      ///< tokens and nodes that it can hold
  Usage usage() const noexcept { return drafter_->usage(); }          ///< calls, nodes and seconds so far
  /// The drafter's, null if it names none; see NamesItsCache.
  const void* cache_id() const { return drafter_->cache_id(); }
  /// Allocates memory for a text with its proposal, if the drafter does.
  void reserve(const Sizes& sizes) { drafter_->reserve(sizes); }
  /// Begins a text that shares `n` tokens with the last one.
  void truncate(std::int32_t n) { drafter_->truncate(n); }
  /// Brings it to the text `context` followed by `draft_tokens`; see Drafter.
  void sync(Tokens context, Tokens draft_tokens) { drafter_->sync(context, draft_tokens); }
  /// Adds nodes; predicts the token after each. See Drafter.
  LogitsView extend(Tokens tokens, Nodes parents) { return drafter_->extend(tokens, parents); }
  /// extend() in halves, if the drafter's has them; else no request. See MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) { return drafter_->begin_pass(tokens, parents); }
  /// The second half.
  LogitsView end_pass(const LogitsView& rows) { return drafter_->end_pass(rows); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::int32_t vocab_size() const = 0;
    virtual std::int32_t capacity() const = 0;
    virtual Usage usage() const noexcept = 0;
    virtual const void* cache_id() const = 0;
    virtual void reserve(const Sizes& sizes) = 0;
    virtual void truncate(std::int32_t n) = 0;
    virtual void sync(Tokens context, Tokens draft_tokens) = 0;
    virtual LogitsView extend(Tokens tokens, Nodes parents) = 0;
    virtual PassRequest begin_pass(Tokens tokens, Nodes parents) = 0;
    virtual LogitsView end_pass(const LogitsView& rows) = 0;
  };
  template <class D>
  struct Of final : Base {
    static_assert(detail::check_drafter_members<D>());
    static_assert(!HasMembers<D>, "AnyDrafter: a Stack would lose its members; erase each of them instead");
    explicit Of(D drafter) : it(std::move(drafter)) {}
    std::int32_t vocab_size() const override { return it.vocab_size(); }
    std::int32_t capacity() const override { return it.capacity(); }
    Usage usage() const noexcept override {
      if constexpr (ReportsUsage<D>) return it.usage();
      return {};
    }
    const void* cache_id() const override {
      if constexpr (NamesItsCache<D>) return it.cache_id();
      return nullptr;
    }
    void reserve([[maybe_unused]] const Sizes& sizes) override {
      if constexpr (Reserves<D>) it.reserve(sizes);
    }
    void truncate(std::int32_t n) override { it.truncate(n); }
    void sync(Tokens context, Tokens draft_tokens) override { it.sync(context, draft_tokens); }
    LogitsView extend(Tokens tokens, Nodes parents) override { return it.extend(tokens, parents); }
    PassRequest begin_pass([[maybe_unused]] Tokens tokens, [[maybe_unused]] Nodes parents) override {
      if constexpr (MergesPasses<D>) return it.begin_pass(tokens, parents);
      return {};
    }
    LogitsView end_pass(const LogitsView& rows) override {
      if constexpr (MergesPasses<D>) return it.end_pass(rows);
      return rows;
    }
    D it;
  };

  std::unique_ptr<Base> drafter_;
};

}  // namespace specula
