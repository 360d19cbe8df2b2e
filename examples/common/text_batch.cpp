// SPDX-License-Identifier: MIT
#include "text_batch.hpp"

#include <functional>
#include <map>
#include <utility>

#include <specula/cpu/decoder.hpp>
#include <specula/pipeline.hpp>

#include "errors.hpp"
#include "model_pack.hpp"

namespace specula_examples {

namespace {

using Model = specula::cpu::Decoder<float>;
using Make = std::function<std::unique_ptr<specula::Pipeline>(std::int32_t)>;

template <class... Models>
struct Batch final : TextBatch {
  Batch(std::int32_t texts, const Make& make, Models&... models)
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

constexpr std::size_t kMostDrafts = 2;

specula::PipelineFactory batched_factory(const std::string& pipeline) {
  specula::PipelineFactory factory = specula::prepare_pipeline(pipeline);
  if (!factory.exits.empty() || factory.measures || pipeline.find("layer-skip") != std::string::npos)
    throw UsageError("pipeline '" + pipeline +
                     "': a draft that runs a part of its layers is run text by text, without --batch");
  if (factory.drafts.size() > kMostDrafts)
    throw UsageError("pipeline '" + pipeline + "': --batch takes two draft models at most");
  return factory;
}

}  // namespace

void check_batched(const std::string& pipeline) { batched_factory(pipeline); }

std::unique_ptr<TextBatch> make_text_batch(ModelPack& models, const std::string& pipeline,
                                           const specula::SamplingParams& params, std::int32_t texts) {
  const specula::PipelineFactory factory = batched_factory(pipeline);
  const Make make = [&](std::int32_t slot) { return factory.build(models.text(slot), params); };
  Model& target = models.target_model();
  const std::vector<Model*> drafts = models.draft_models(factory.drafts);
  const auto over = [&](auto&... all) -> std::unique_ptr<TextBatch> {
    auto batch = std::make_unique<Batch<std::remove_reference_t<decltype(all)>...>>(texts, make, all...);
    if (specula::PipelineSpec(pipeline).cost_aware()) batch->batch.share(specula::BatchBudget());
    return batch;
  };
  if (drafts.empty()) return over(target);
  if (drafts.size() == 1) return over(*drafts[0], target);
  return over(*drafts[1], *drafts[0], target);  // the cheapest first: others wait for it more often
}

}  // namespace specula_examples
