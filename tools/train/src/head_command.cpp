// `specula-train head`: trains a head that drafts from its target's features.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "commands.hpp"
#include "export.hpp"
#include "feature_head.hpp"
#include "frozen_target.hpp"
#include "session.hpp"

namespace specula_train {
namespace {

struct HeadOptions {
  std::string name = "head";
  std::filesystem::path target;
  HeadLossOptions loss;
  std::vector<std::int64_t> feature_layers;
  std::filesystem::path states;
  SizeOptions sizes;
  TrainingOptions training;
};

/// By draft step, the rate at which the head's likeliest token is the target's; for step 1 the parts of the
/// loss, too. All steps are aligned, as in drafting, even if the training had fewer.
Losses evaluate(FeatureHead& head, Llama& target, const Session& session, const HeadLossOptions& options) {
  const auto steps = std::max<std::int64_t>(options.forwards, 4);
  Figures figures;
  session.for_heldout([&](const std::string& style, const torch::Tensor& rows) {
    const auto length = rows.size(1) - 1;
    const auto tokens = rows.narrow(1, 0, length);
    const auto states = target->states(tokens, head->config().feature_layers, session.dtype());
    const auto& features = states.features;
    const auto predicted =
        head->predict(torch::embedding(target->embedding(), tokens), states.all, steps, session.dtype());
    const auto wanted = target->head(features);
    const auto at = torch::arange(length, tokens.options()).expand_as(tokens);
    for (std::int64_t step = 1; step <= steps; ++step) {
      const auto& prediction = predicted[static_cast<std::size_t>(step) - 1];
      const auto logits = target->head(prediction.to(session.dtype()));
      figures.add(style + " step " + std::to_string(step) + " agrees", agreement(logits, wanted),
                  at >= step - 1);
      if (step > 1) continue;
      const auto count = static_cast<double>(tokens.numel());
      const auto distance = torch::smooth_l1_loss(prediction, features.to(torch::kFloat32));
      figures.add(style + " feature distance", distance.item<double>(), count);
      const auto cross_entropy = distillation(logits.flatten(0, 1), wanted.flatten(0, 1),
                                              {.k = 0, .weight = 0, .cross_entropy_weight = 1});
      figures.add(style + " cross entropy", cross_entropy.mean().item<double>(), count);
    }
  });
  return figures.means();
}

std::string describe(const HeadLossOptions& loss) {
  char text[240];
  std::snprintf(text, sizeof text,
                "%g smooth L1 distance of the features + %g cross entropy with the target's distribution + "
                "%g of it over the\n"
                "target's %d likeliest tokens; context alignment over %lld forwards; noise %g",
                loss.distance_weight, loss.distillation.cross_entropy_weight, loss.distillation.weight,
                loss.distillation.k, static_cast<long long>(loss.forwards), loss.noise);
  return text;
}

void train_head(const HeadOptions& options) {
  options.loss.distillation.validate();
  const Session session(options.training);
  auto target = load_target(options.target, session);
  auto config = options.sizes.apply_to(head_config(target->config(), options.feature_layers));
  session.set_vocabulary(config);
  FeatureHead head(config);
  session.place(options.name, *head);
  std::optional<StatesCache> cache;
  if (!options.states.empty()) cache.emplace(options.states, target, config.feature_layers);
  session.train(*head, {.loss =
                            [&](const torch::Tensor& rows) {
                              return head_loss(head, target, rows, options.loss, session.dtype(),
                                               cache ? &*cache : nullptr);
                            },
                        .evaluate = [&] { return evaluate(head, target, session, options.loss); },
                        .save =
                            [&](const Progress& progress) {
                              export_feature_head(
                                  head, session.tokenizer(),
                                  session.card(options.name, describe(options.loss), progress),
                                  options.training.output / "export");
                            }});
}

}  // namespace

void add_head_command(CLI::App& app) {
  auto* command = app.add_subcommand("head",
                                     "Train a head on its target's features (HASS; EAGLE with --alignment 1 "
                                     "--top-k-weight 0)");
  const auto options = std::make_shared<HeadOptions>();
  auto& loss = options->loss;
  options->training.optimizer.clip_norm = 0.5;
  command->add_option("--name", options->name, "On the model card")->capture_default_str();
  command->add_option("--target", options->target, "The target's Hugging Face directory")->required();
  command
      ->add_option("--alignment", loss.forwards,
                   "Forward passes of context alignment: draft steps to train for")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--top-k", loss.distillation.k,
                   "K of the top-K loss: the number of the target's likeliest tokens in it")
      ->capture_default_str();
  command->add_option("--top-k-weight", loss.distillation.weight, "Weight of the top-K loss")
      ->capture_default_str();
  command
      ->add_option("--distance-weight", loss.distance_weight,
                   "Weight of the distance of the features; 0: the predicted vectors need not resemble them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--cross-entropy-weight", loss.distillation.cross_entropy_weight,
                   "Weight of the cross entropy over all tokens")
      ->capture_default_str();
  command->add_option("--noise", loss.noise, "Noise on the target's features, for rows of 512 tokens")
      ->capture_default_str();
  command
      ->add_option("--feature-layers", options->feature_layers,
                   "Numbers of the target's layers after which it reads hidden states besides the feature")
      ->delimiter(',');
  command->add_option(
      "--states", options->states,
      "Store the target's states in this file, for other heads on the same rows (2.3 KB per token for "
      "two layers and the feature, 384 wide)");
  options->training.init_may_lack = {kFeatureFusion};
  options->sizes.add_inner_to(*command, "Instead of the target's");
  options->training.add_to(*command);
  options->training.add_budget_to(*command);
  command->callback([options] { train_head(*options); });
}

}  // namespace specula_train
