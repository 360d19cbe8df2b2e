// A language model, whichever kind it is of.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "specula/any/any_drafter.hpp"
#include "specula/concepts.hpp"
#include "specula/draft/early_exit_drafter.hpp"
#include "specula/draft/layer_skip.hpp"
#include "specula/draft/model_drafter.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula {

/// Layers, counted from 1, whose attention and whose MLP a draft leaves out.
struct BlockLists {
  std::vector<std::int32_t> attention, mlp;
};

/// A LanguageModel behind virtual calls: what runs over it is compiled once for all models, and costs one
/// such call a pass. The model is referenced and must outlive this. What a kind of model can do beyond the
/// concept is given as drafters, made where the kind is still known.
class AnyModel {
 public:
  template <LanguageModel M>
    requires(!std::same_as<M, AnyModel>)
  explicit AnyModel(M& model) : model_(std::make_unique<Of<M>>(model)) {}

  std::int32_t vocab_size() const { return model_->vocab_size(); }
  std::int32_t size() const { return model_->size(); }
  std::int32_t capacity() const { return model_->capacity(); }
  void append(Tokens tokens) { changed().append(tokens); }
  LogitsView extend(Tokens tokens, Nodes parents) { return changed().extend(tokens, parents); }
  void commit(Nodes path) { changed().commit(path); }
  void truncate(std::int32_t n) { changed().truncate(n); }
  /// Grows with each call that changes the model; where the model has no generation() itself, with each that
  /// came this way.
  std::uint64_t generation() const { return model_->generation(changes_); }

  /// A ModelDrafter of it.
  AnyDrafter drafter() { return model_->drafter(); }
  /// At which it can stop; 0 for a kind that cannot.
  std::int32_t exits() const { return model_->exits(); }
  /// An EarlyExitDrafter of it. Throws what its constructor throws, and std::invalid_argument where exits()
  /// is 0.
  AnyDrafter early_exit(const std::vector<float>& thresholds, ExitBy by) {
    return model_->early_exit(thresholds, by);
  }
  /// Whether it can leave out layers of its own.
  bool skips_layers() const { return model_->skips_layers(); }
  /// A LayerSkip of it. Throws what its constructor throws, and std::invalid_argument unless skips_layers().
  AnyDrafter layer_skip(const SkipRules& rules) { return model_->layer_skip(rules); }
  /// The same of blocks that are given, layers counted from 1. Throws also for layers that there are not.
  AnyDrafter layer_skip(const BlockLists& blocks) { return model_->layer_skip(blocks); }

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
    virtual std::uint64_t generation(std::uint64_t changes) const = 0;
    virtual AnyDrafter drafter() = 0;
    virtual std::int32_t exits() const = 0;
    virtual AnyDrafter early_exit(const std::vector<float>& thresholds, ExitBy by) = 0;
    virtual bool skips_layers() const = 0;
    virtual AnyDrafter layer_skip(const SkipRules& rules) = 0;
    virtual AnyDrafter layer_skip(const BlockLists& blocks) = 0;
  };
  template <class M>
  struct Of final : Base {
    explicit Of(M& model) : it(model) {}
    std::int32_t vocab_size() const override { return it.vocab_size(); }
    std::int32_t size() const override { return it.size(); }
    std::int32_t capacity() const override { return it.capacity(); }
    void append(Tokens tokens) override { it.append(tokens); }
    LogitsView extend(Tokens tokens, Nodes parents) override { return it.extend(tokens, parents); }
    void commit(Nodes path) override { it.commit(path); }
    void truncate(std::int32_t n) override { it.truncate(n); }
    std::uint64_t generation(std::uint64_t changes) const override {
      if constexpr (requires { it.generation(); }) return it.generation();
      return changes;
    }
    AnyDrafter drafter() override { return AnyDrafter(ModelDrafter{it}); }
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
    [[noreturn]] static void skips_none() {
      throw std::invalid_argument("AnyModel::layer_skip: a model of this kind leaves no layers out");
    }
    M& it;
  };

  Base& changed() {
    ++changes_;
    return *model_;
  }

  std::unique_ptr<Base> model_;
  std::uint64_t changes_ = 0;
};

static_assert(LanguageModel<AnyModel>);

/// A model of a known kind, and as any.
template <LanguageModel M>
struct HeldModel {
  template <class... Arguments>
  explicit HeldModel(Arguments&&... arguments) : model(std::forward<Arguments>(arguments)...) {}
  HeldModel(const HeldModel&) = delete;  // `any` refers to `model`
  HeldModel& operator=(const HeldModel&) = delete;

  M model;
  AnyModel any{model};
};

}  // namespace specula
