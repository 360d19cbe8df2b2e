// SPDX-License-Identifier: MIT
#include "sampler.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <span>
#include <specula/distribution/random_source.hpp>
#include <specula/distribution/row_scan.hpp>
#include <stdexcept>
#include <string>

namespace specula_train {
namespace {

using torch::Tensor;

/// A text in progress.
struct Growing {
  TextPlan plan;
  Document text;
  std::size_t read = 0;    // tokens that the model has seen
  std::size_t parts = 0;   // that the model has ended
  std::int64_t fresh = 0;  // tokens of the present part

  /// Of the next draw.
  float temperature(const SamplerOptions& options) const {
    return plan.asks && parts % 2 == 0 ? 1 : options.temperatures[plan.number % options.temperatures.size()];
  }

  /// Adds what the model wrote; whether the text goes on.
  bool add(Token token, const SamplerOptions& options) {
    text.push_back(token);
    const bool ended = std::find(options.ends.begin(), options.ends.end(), token) != options.ends.end();
    if (ended && parts < plan.then.size()) {
      const auto& more = plan.then[parts++];
      text.insert(text.end(), more.begin(), more.end());
      fresh = 0;
      return static_cast<std::int64_t>(text.size()) < options.longest;
    }
    return !ended && ++fresh < options.part && static_cast<std::int64_t>(text.size()) < options.longest;
  }
};

/// Draws the next token of each text whose row this is. logits (n, V), float32, on the CPU.
void draw(const Tensor& logits, std::span<Growing* const> texts, const SamplerOptions& options,
          std::vector<Token>& drawn) {
  const auto vocab = static_cast<std::int32_t>(logits.size(1));
  drawn.resize(texts.size());
  at::parallel_for(0, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    specula::detail::RowScan scan(vocab);
    for (auto i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto& plan = texts[at]->plan;
      const std::span<const float> row(logits.data_ptr<float>() + i * vocab, static_cast<std::size_t>(vocab));
      const specula::SamplingParams params{.temperature = texts[at]->temperature(options)};
      const specula::RandomKey key{.position = static_cast<std::int32_t>(texts[at]->text.size())};
      drawn[at] = params.greedy()
                      ? scan.argmax(row)
                      : specula::PhiloxRandom(options.seed, plan.number).draw(scan.weights(row, params), key);
    }
  });
}

}  // namespace

void sample_texts(Llama& model, torch::ScalarType dtype, const SamplerOptions& options,
                  const std::function<std::optional<TextPlan>()>& plans,
                  const std::function<void(const TextPlan& plan, Document text)>& done,
                  const std::function<bool(std::int64_t passes)>& stopped) {
  if (options.temperatures.empty()) throw std::invalid_argument("no temperature to sample at");
  const auto device = model->embedding().device();
  auto cache = model->text_cache(options.texts, options.longest, dtype);
  std::vector<std::unique_ptr<Growing>> places(static_cast<std::size_t>(options.texts));
  auto tokens = torch::zeros({options.texts}, torch::kInt64);
  std::vector<Growing*> drawing;
  std::vector<std::int64_t> rows;
  std::vector<Token> drawn;
  bool more = true;
  for (std::int64_t passes = 0; !stopped(passes); ++passes) {
    bool any = false;
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto& place = places[i];
      if (!place && more) {
        if (auto plan = plans()) {
          if (plan->begin.empty() || static_cast<std::int64_t>(plan->begin.size()) >= options.longest)
            throw std::invalid_argument("a text that begins with " + std::to_string(plan->begin.size()) +
                                        " tokens: expected 1 to " + std::to_string(options.longest - 1));
          place = std::make_unique<Growing>();
          place->plan = std::move(*plan);
          place->text = place->plan.begin;
          if (const auto before = place->text.size() - 1; before > 0) {
            std::vector<std::int64_t> begin(place->text.begin(), place->text.end() - 1);
            model->begin_text(torch::tensor(begin).to(device), static_cast<std::int64_t>(i), cache, dtype);
            place->read = before;
          }
        } else {
          more = false;
        }
      }
      // A place without a text reads some token at the beginning, time and again.
      if (!place || place->read == 0) cache.lengths.data_ptr<std::int64_t>()[i] = 0;
      tokens.data_ptr<std::int64_t>()[i] = place ? place->text[place->read] : 0;
      any = any || place;
    }
    if (!any) return;
    const auto features = model->go_on(tokens.to(device), cache, dtype);
    drawing.clear();
    rows.clear();
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto* const text = places[i].get();
      if (text == nullptr || ++text->read < text->text.size()) continue;
      drawing.push_back(text);
      rows.push_back(static_cast<std::int64_t>(i));
    }
    if (rows.empty()) continue;
    torch::NoGradGuard no_grad;
    const auto wanted = features.index_select(0, torch::tensor(rows).to(device));
    const auto logits =
        model->head(wanted).to(torch::kCPU).to(torch::kFloat32).contiguous();  // half the bytes travel
    draw(logits, drawing, options, drawn);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (drawing[i]->add(drawn[i], options)) continue;
      auto& place = places[static_cast<std::size_t>(rows[i])];
      done(place->plan, std::move(place->text));
      place.reset();
    }
  }
}

}  // namespace specula_train
