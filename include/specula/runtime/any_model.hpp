// SPDX-License-Identifier: MIT
// Type-erased language model.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "specula/draft/conditioned.hpp"
#include "specula/draft/early_exit_drafter.hpp"
#include "specula/draft/find_skipped.hpp"
#include "specula/draft/layer_skip.hpp"
#include "specula/draft/model_drafter.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/model/skipped_blocks.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/runtime/any_drafter.hpp"

namespace specula {

/// Layers, counted from 1, whose attention and whose MLP a draft skips.
struct BlockLists {
  std::vector<std::int32_t> attention,  ///< in any order
      mlp;                              ///< in any order
};

/// A LanguageModel behind virtual calls: code over it is compiled once for all models, at the cost of one
/// virtual call per pass. The model is referenced and must outlive this. Members beyond the concept are
/// available through drafters, which are created where the model's type is known.
class AnyModel {
 public:
  /// References `model`.
  template <LanguageModel M>
    requires(!std::same_as<M, AnyModel>)
  explicit AnyModel(M& model) : model_(std::make_unique<Of<M>>(model)) {}
  AnyModel(AnyModel&&) = default;            ///< The new one refers to the model.
  AnyModel& operator=(AnyModel&&) = delete;  // a pipeline would take the other model's cache for its own text

  std::int32_t vocab_size() const { return model_->vocab_size(); }  ///< size V of the vocabulary
  std::int32_t size() const { return model_->size(); }              ///< committed tokens
  std::int32_t capacity() const { return model_->capacity(); }      ///< tokens and nodes that it can hold
  void append(Tokens tokens) { model_->append(tokens); }            ///< Commits tokens (prefill).
  /// One pass over new nodes; a row of logits for each.
  LogitsView extend(Tokens tokens, Nodes parents) { return model_->extend(tokens, parents); }
  void commit(Nodes path) { model_->commit(path); }  ///< Commits a path of nodes and drops all others.
  /// KV cache rollback: keeps the first `n` committed tokens.
  void truncate(std::int32_t n) { model_->truncate(n); }
  /// The model's; empty if it has none. See CountsChanges.
  std::optional<std::uint64_t> change_count() const { return model_->change_count(); }
  /// The model's; empty if it has none. See TimesItself.
  std::optional<double> pass_seconds() const { return model_->pass_seconds(); }
  const void* cache_id() const { return model_->cache_id(); }  ///< the model's; see NamesItsCache
  /// extend() in halves, if the model's has them; else no request. See MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) { return model_->begin_pass(tokens, parents); }
  LogitsView end_pass(const LogitsView& rows) { return model_->end_pass(rows); }  ///< The second half.
  /// Told to the model if it is TakesContext.
  void set_context(std::int32_t n) { model_->set_context(n); }
  /// As the model declares (KeepsRawRows); else an empty view: the rows are its own.
  LogitsView raw_rows() const { return model_->raw_rows(); }

  /// A ModelDrafter over the model.
  AnyDrafter drafter() { return model_->drafter(); }
  /// The target state that the model reads when it drafts, as TargetConditioned declares; else nothing.
  Conditioning conditioned_on() const { return model_->conditioned_on(); }
  /// Whether drafts can read this state of the model: whether it is ExposesKeyValues or ExposesFeatures.
  bool exposes(Conditioning state) const { return model_->view_type(state) != nullptr; }
  /// A drafter for `target`, which must outlive it: a Glide or a FeatureHead by conditioned_on(), else a
  /// ModelDrafter. Throws std::invalid_argument if the target does not expose the state that the model reads,
  /// or only as views of another type, and what the drafter's constructor throws. The type is compared here
  /// only; a round costs one virtual call for the view.
  AnyDrafter drafter(AnyModel& target) { return model_->drafter(target); }
  /// Number of early exits; 0 if the type has none.
  std::int32_t exits() const { return model_->exits(); }
  /// An EarlyExitDrafter over the model. Throws what its constructor throws, and std::invalid_argument if
  /// exits() is 0.
  AnyDrafter early_exit(const std::vector<float>& thresholds, ExitBy by) {
    return model_->early_exit(thresholds, by);
  }
  /// Whether the model can skip layers.
  bool skips_layers() const { return model_->skips_layers(); }
  /// A LayerSkip over the model. Throws what its constructor throws, and std::invalid_argument unless
  /// skips_layers().
  AnyDrafter layer_skip(const SkipRules& rules) { return model_->layer_skip(rules); }
  /// The same with given blocks, layers counted from 1. Also throws for layers that do not exist.
  AnyDrafter layer_skip(const BlockLists& blocks) { return model_->layer_skip(blocks); }
  /// specula::find_skipped() on the model. Throws as that, and std::invalid_argument unless skips_layers().
  FoundBlocks find_skipped(std::span<const std::vector<Token>> texts, const FindSkipped& how = {}) {
    return model_->find_skipped(texts, how);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::int32_t vocab_size() const = 0;
    virtual std::int32_t size() const = 0;
    virtual std::int32_t capacity() const = 0;
    virtual void append(Tokens tokens) = 0;
    virtual LogitsView extend(Tokens tokens, Nodes parents) = 0;
    virtual void commit(Nodes path) = 0;
    virtual void truncate(std::int32_t n) = 0;
    virtual std::optional<std::uint64_t> change_count() const = 0;
    virtual std::optional<double> pass_seconds() const = 0;
    virtual const void* cache_id() const = 0;
    virtual PassRequest begin_pass(Tokens tokens, Nodes parents) = 0;
    virtual LogitsView end_pass(const LogitsView& rows) = 0;
    virtual void set_context(std::int32_t n) = 0;
    virtual LogitsView raw_rows() const = 0;
    virtual AnyDrafter drafter() = 0;
    virtual AnyDrafter drafter(AnyModel& target) = 0;
    virtual Conditioning conditioned_on() const = 0;
    virtual const std::type_info* view_type(Conditioning state) const = 0;  // null: not exposed
    virtual void view(Conditioning state, void* out) = 0;  // `out`: std::optional of that type
    virtual std::int32_t exits() const = 0;
    virtual AnyDrafter early_exit(const std::vector<float>& thresholds, ExitBy by) = 0;
    virtual bool skips_layers() const = 0;
    virtual AnyDrafter layer_skip(const SkipRules& rules) = 0;
    virtual AnyDrafter layer_skip(const BlockLists& blocks) = 0;
    virtual FoundBlocks find_skipped(std::span<const std::vector<Token>> texts, const FindSkipped& how) = 0;
  };
  /// The target's state as its original type, for ConditionedDrafter.
  template <Conditioning state, class View>
  struct Accessor {
    static constexpr const char* name = state == Conditioning::key_values ? "Glide" : "FeatureHead";
    static View of(AnyModel& target) {
      std::optional<View> out;
      target.model_->view(state, &out);
      return *std::move(out);
    }
  };
  template <class M>
  struct Of final : Base {
    static_assert(detail::check_model_members<M>());
    explicit Of(M& model) : it(model) {}
    std::int32_t vocab_size() const override { return it.vocab_size(); }
    std::int32_t size() const override { return it.size(); }
    std::int32_t capacity() const override { return it.capacity(); }
    void append(Tokens tokens) override { it.append(tokens); }
    LogitsView extend(Tokens tokens, Nodes parents) override { return it.extend(tokens, parents); }
    void commit(Nodes path) override { it.commit(path); }
    void truncate(std::int32_t n) override { it.truncate(n); }
    std::optional<std::uint64_t> change_count() const override {
      if constexpr (CountsChanges<M>) return it.change_count();
      return std::nullopt;
    }
    std::optional<double> pass_seconds() const override {
      if constexpr (TimesItself<M>) return it.pass_seconds();
      return std::nullopt;
    }
    const void* cache_id() const override { return detail::cache_of(it); }
    PassRequest begin_pass([[maybe_unused]] Tokens tokens, [[maybe_unused]] Nodes parents) override {
      if constexpr (MergesPasses<M>) return it.begin_pass(tokens, parents);
      return {};
    }
    LogitsView end_pass(const LogitsView& rows) override {
      if constexpr (MergesPasses<M>) return it.end_pass(rows);
      return rows;
    }
    void set_context([[maybe_unused]] std::int32_t n) override {
      if constexpr (TakesContext<M>) it.set_context(n);
    }
    LogitsView raw_rows() const override {
      if constexpr (KeepsRawRows<M>) return it.raw_rows();
      return {};
    }
    AnyDrafter drafter() override { return AnyDrafter(ModelDrafter{it}); }
    AnyDrafter drafter([[maybe_unused]] AnyModel& target) override {
      if constexpr (TargetConditioned<M>) {
        const Conditioning reads = it.conditioned_on();
        if constexpr (detail::TakesKeyValues<M>)
          if (reads == Conditioning::key_values)
            return conditioned<Conditioning::key_values, typename M::TargetKeyValues>(target);
        if constexpr (detail::TakesFeatures<M>)
          if (reads == Conditioning::features)
            return conditioned<Conditioning::features, typename M::TargetFeatures>(target);
      }
      return drafter();
    }
    template <Conditioning reads, class View>
    AnyDrafter conditioned(AnyModel& target) {
      const auto fail = [](const std::string& what) {
        throw std::invalid_argument("AnyModel::drafter: the draft reads the target's " +
                                    std::string(name_of(reads)) + ", " + what);
      };
      if (cache_id() == target.cache_id()) fail("and is that target itself");
      const std::type_info* given = target.model_->view_type(reads);
      if (!given) fail("which the target does not expose");
      if (*given != typeid(View)) fail("and takes no view of the type that the target gives");
      return AnyDrafter(detail::ConditionedDrafter<M, AnyModel, Accessor<reads, View>>(it, target));
    }
    Conditioning conditioned_on() const override {
      if constexpr (TargetConditioned<M>) return it.conditioned_on();
      return Conditioning::nothing;
    }
    const std::type_info* view_type([[maybe_unused]] Conditioning state) const override {
      if constexpr (ExposesKeyValues<M>)
        if (state == Conditioning::key_values) return &typeid(decltype(it.key_values()));
      if constexpr (ExposesFeatures<M>)
        if (state == Conditioning::features) return &typeid(decltype(it.features()));
      return nullptr;
    }
    void view([[maybe_unused]] Conditioning state, [[maybe_unused]] void* out) override {
      if constexpr (ExposesKeyValues<M>)
        if (state == Conditioning::key_values) put(it.key_values(), out);
      if constexpr (ExposesFeatures<M>)
        if (state == Conditioning::features) put(it.features(), out);
    }
    template <class View>
    static void put(View view, void* out) {
      static_cast<std::optional<View>*>(out)->emplace(std::move(view));
    }
    std::int32_t exits() const override {
      if constexpr (ExitsEarly<M>) return it.exits();
      return 0;
    }
    AnyDrafter early_exit([[maybe_unused]] const std::vector<float>& thresholds,
                          [[maybe_unused]] ExitBy by) override {
      if constexpr (ExitsEarly<M>) return AnyDrafter(EarlyExitDrafter{it, thresholds, by});
      throw std::invalid_argument("AnyModel::early_exit: a model of this kind has no exits");
    }
    bool skips_layers() const override { return SkipsLayers<M>; }
    AnyDrafter layer_skip([[maybe_unused]] const SkipRules& rules) override {
      if constexpr (SkipsLayers<M>) return AnyDrafter(LayerSkip{it, rules});
      skips_none();
    }
    AnyDrafter layer_skip([[maybe_unused]] const BlockLists& blocks) override {
      if constexpr (SkipsLayers<M>)
        return AnyDrafter(LayerSkip{it, SkippedBlocks::given(it.layers(), blocks.attention, blocks.mlp)});
      skips_none();
    }
    FoundBlocks find_skipped([[maybe_unused]] std::span<const std::vector<Token>> texts,
                             [[maybe_unused]] const FindSkipped& how) override {
      if constexpr (SkipsLayers<M>) return specula::find_skipped(it, texts, how);
      skips_none();
    }
    [[noreturn]] static void skips_none() {
      throw std::invalid_argument("AnyModel::layer_skip: a model of this kind leaves no layers out");
    }
    M& it;
  };

  std::unique_ptr<Base> model_;
};

static_assert(LanguageModel<AnyModel>);

/// A model of a known type with its AnyModel.
template <LanguageModel M>
struct HeldModel {
  /// Constructs the model from `arguments`.
  template <class... Arguments>
  explicit HeldModel(Arguments&&... arguments) : model(std::forward<Arguments>(arguments)...) {}
  HeldModel(const HeldModel&) = delete;  // `any` refers to `model`
  HeldModel& operator=(const HeldModel&) = delete;

  M model;              ///< the model itself
  AnyModel any{model};  ///< a reference to it
};

}  // namespace specula
