// SPDX-License-Identifier: MIT
// TextBatch over models of many texts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <specula/pipeline.hpp>

#include "text_batch.hpp"

namespace specula_tools {

namespace detail {

using Make = std::function<std::unique_ptr<specula::Pipeline>(std::int32_t)>;

template <class Model, class... Models>
struct BatchOver final : TextBatch {
  BatchOver(std::int32_t texts, const Make& make, Models&... models)
      : slots(texts), all{&models...}, batch(texts, recorded(make), models...) {}
  specula::TextId join(specula::TextRequest request) override {
    const auto id = std::make_shared<specula::TextId>();
    request.sink = [this, id, sink = std::move(request.sink)](specula::Tokens fresh) {
      note_draft_error(*id);
      return !sink || sink(fresh);
    };
    return *id = batch.join(std::move(request));
  }
  bool cancel(specula::TextId id) override { return batch.cancel(id); }
  const std::vector<specula::TextResult>& step() override { return batch.step(); }
  bool empty() const override { return batch.empty(); }
  std::int32_t waiting() const override { return batch.running() + batch.queued(); }
  double pass_seconds() const override {
    double sum = 0;
    for (const Model* model : all)
      for (std::int32_t slot = 0; slot < slots; ++slot) sum += model->pass_seconds(slot);
    return sum;
  }
  std::string draft_error(specula::TextId id) const override {
    const auto found = draft_errors.find(id);
    return found == draft_errors.end() ? std::string() : found->second;
  }
  /// `make`, whose pipelines are kept in mind.
  Make recorded(const Make& make) {
    return [this, make](std::int32_t slot) {
      auto made = make(slot);
      pipelines.push_back(made.get());
      return made;
    };
  }
  /// Within the sink of a text, which is that of one of the pipelines.
  void note_draft_error(specula::TextId id) {
    for (const specula::Pipeline* pipeline : pipelines)
      if (pipeline->text().data() == batch.text(id).data())
        if (std::string error = pipeline->draft_error(); !error.empty()) draft_errors[id] = std::move(error);
  }
  std::int32_t slots;
  std::vector<Model*> all;
  std::vector<const specula::Pipeline*> pipelines;
  std::map<specula::TextId, std::string> draft_errors;
  specula::BatchSpeculator<Make, Models...> batch;
};

}  // namespace detail

/// `texts` at once. `models_of(slot)` are a text's models, slots of `target` and of `drafts`, which are those
/// of batched_factory(). `cost-aware:` pipelines share one budget. Throws as that, and what building the
/// pipeline throws.
template <class Model>
std::unique_ptr<TextBatch> make_text_batch(
    const std::string& pipeline, const specula::SamplingParams& params, std::int32_t texts,
    const std::function<specula::PipelineModels&(std::int32_t)>& models_of, Model& target,
    const std::vector<Model*>& drafts) {
  const specula::PipelineFactory factory = batched_factory(pipeline);
  const detail::Make make = [&](std::int32_t slot) { return factory.build(models_of(slot), params); };
  const auto over = [&](auto&... all) -> std::unique_ptr<TextBatch> {
    using Batch = detail::BatchOver<Model, std::remove_reference_t<decltype(all)>...>;
    auto batch = std::make_unique<Batch>(texts, make, all...);
    if (specula::PipelineSpec(pipeline).cost_aware()) batch->batch.share(specula::BatchBudget());
    return batch;
  };
  if (drafts.empty()) return over(target);
  if (drafts.size() == 1) return over(*drafts[0], target);
  return over(*drafts[1], *drafts[0], target);  // the cheapest first: others wait for it more often
}

}  // namespace specula_tools
