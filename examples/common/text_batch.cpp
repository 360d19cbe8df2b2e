#include "text_batch.hpp"

#include <functional>
#include <utility>

#include <specula/cpu/decoder.hpp>

#include "errors.hpp"

namespace specula_examples {

namespace {

using Model = specula::cpu::Decoder<float>;
using Make = std::function<std::unique_ptr<specula::Pipeline>(std::int32_t)>;

}  // namespace

struct TextBatch::Base {
  virtual ~Base() = default;
  virtual specula::TextId join(specula::TextRequest request) = 0;
  virtual const std::vector<specula::TextResult>& step() = 0;
  virtual bool empty() const = 0;
  virtual std::int32_t waiting() const = 0;
  virtual double pass_seconds() const = 0;
};

template <class... Models>
struct TextBatch::Of final : Base {
  Of(std::int32_t texts, Make make, Models&... models)
      : slots(texts), all{&models...}, batch(texts, std::move(make), models...) {}
  specula::TextId join(specula::TextRequest request) override { return batch.join(std::move(request)); }
  const std::vector<specula::TextResult>& step() override { return batch.step(); }
  bool empty() const override { return batch.empty(); }
  std::int32_t waiting() const override { return batch.running() + batch.queued(); }
  double pass_seconds() const override {
    double sum = 0;
    for (const Model* model : all)
      for (std::int32_t slot = 0; slot < slots; ++slot) sum += model->pass_seconds(slot);
    return sum;
  }
  std::int32_t slots;
  std::vector<Model*> all;
  specula::BatchSpeculator<Make, Models...> batch;
};

TextBatch::TextBatch(ModelPack& models, const std::string& name, const specula::SamplingParams& params,
                     std::int32_t texts) {
  const specula::PipelineFactory factory = specula::prepare_pipeline(name);
  if (!factory.exits.empty() || factory.measures || name.find("layer-skip") != std::string::npos)
    throw UsageError("pipeline '" + name +
                     "': a draft that runs a part of its layers is run text by text, without --batch");
  const Make make = [&](std::int32_t slot) { return factory.build(models.text(slot), params); };
  Model& target = models.target_model();
  const std::vector<Model*> drafts = models.draft_models(factory.drafts);
  const bool shares = specula::PipelineSpec(name).cost_aware();
  const auto use = [&](auto&... all) {
    auto batch = std::make_unique<Of<std::remove_reference_t<decltype(all)>...>>(texts, make, all...);
    if (shares) batch->batch.share(specula::BatchBudget());
    batch_ = std::move(batch);
  };
  if (drafts.empty())
    use(target);
  else if (drafts.size() == 1)
    use(*drafts[0], target);
  else if (drafts.size() == 2)
    use(*drafts[1], *drafts[0], target);  // the cheapest first: others wait for it more often
  else
    throw UsageError("pipeline '" + name + "': --batch takes two draft models at most");
}

TextBatch::~TextBatch() = default;

specula::TextId TextBatch::join(specula::TextRequest request) { return batch_->join(std::move(request)); }
const std::vector<specula::TextResult>& TextBatch::step() { return batch_->step(); }
bool TextBatch::empty() const { return batch_->empty(); }
std::int32_t TextBatch::waiting() const { return batch_->waiting(); }
double TextBatch::pass_seconds() const { return batch_->pass_seconds(); }

}  // namespace specula_examples
