// SPDX-License-Identifier: MIT
// `specula-train head`: trains a head that drafts from its target's features.
#include <algorithm>
#include <cstdio>
#include <memory>
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
  double states_memory = -1;  // GiB; negative: what is free
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
    const auto wanted = likeliest_tokens(features, target->lm_head());
    const auto at = torch::arange(length, tokens.options()).expand_as(tokens);
    for (std::int64_t step = 1; step <= steps; ++step) {
      const auto& prediction = predicted[static_cast<std::size_t>(step) - 1];
      const auto likeliest = likeliest_tokens(prediction.to(session.dtype()), head->lm_head());
      figures.add(style + " step " + std::to_string(step) + " agrees",
                  (likeliest == wanted).to(torch::kFloat32), at >= step - 1);
      if (step > 1) continue;
      const auto count = static_cast<double>(tokens.numel());
      const auto distance = torch::smooth_l1_loss(prediction / options.feature_scale,
                                                  features.to(torch::kFloat32) / options.feature_scale);
      figures.add(style + " feature distance", distance.item<double>(), count);
      const auto cross_entropy = distillation_loss({prediction.to(session.dtype())}, head->lm_head(),
                                                   features, head->lm_head().weight);
      figures.add(style + " cross entropy", cross_entropy.item<double>(), count);
    }
  });
  return figures.means();
}

/// The rate that was best for heads of a target of 135 million parameters.
double default_rate(const HeadOptions& options) {
  if (options.training.optimizer.kind == "adamw") return 6e-4;
  return options.loss.forwards == 1 ? 6e-3 : 3.5e-3;
}

/// Where the target's states are kept: in a file, in memory, or nowhere.
std::unique_ptr<StatesCache> make_cache(const HeadOptions& options, const Llama& target,
                                        const Session& session) {
  const double gib = 1024.0 * 1024 * 1024;
  const auto needed = session.epoch_tokens() * state_bytes(target->config(), options.feature_layers.size());
  const auto say = [&](const char* where) {
    std::printf("the target's states of all %lld tokens: %.2f GiB, %s\n",
                static_cast<long long>(session.epoch_tokens()), static_cast<double>(needed) / gib, where);
  };
  if (!options.states.empty()) {
    say(("kept in " + options.states.string()).c_str());
    return std::make_unique<StatesCache>(options.states, target, options.feature_layers);
  }
  const bool chosen = options.states_memory >= 0;
  const auto most = chosen ? static_cast<std::int64_t>(options.states_memory * gib) : free_memory();
  if (most == 0 || (!chosen && (needed > most || !session.device().is_cpu()))) {
    say("not kept, so that the target runs in every step; --states FILE or --states-memory GIB keeps them");
    return nullptr;
  }
  say(needed <= most ? "kept in memory" : "kept in memory as far as --states-memory allows");
  return std::make_unique<StatesCache>(most, target, options.feature_layers);
}

std::string describe(const HeadLossOptions& loss) {
  char text[360];
  std::snprintf(text, sizeof text,
                "%g smooth L1 distance of the features divided by their root mean square, %.4g, + %g cross "
                "entropy with the target's distribution + "
                "%g of it over the\n"
                "target's %d likeliest tokens; context alignment over %lld forwards; noise %g",
                loss.distance_weight, loss.feature_scale, loss.distillation.cross_entropy_weight,
                loss.distillation.weight, loss.distillation.k, static_cast<long long>(loss.forwards),
                loss.noise);
  return text;
}

void train_head(HeadOptions options) {
  options.loss.distillation.validate();
  if (options.training.loop.peak_learning_rate == 0)
    options.training.loop.peak_learning_rate = default_rate(options);
  const Session session(options.training);
  auto target = load_target(options.target, session);
  auto config = options.sizes.apply_to(head_config(target->config(), options.feature_layers));
  session.set_vocabulary(config);
  const auto& from = options.training.init;
  const auto vocabulary =
      from.empty() ? session.draft_vocabulary(config.ends) : session.draft_vocabulary_of(from);
  config.draft_vocab_size = static_cast<std::int64_t>(vocabulary.tokens.size());
  FeatureHead head(config, vocabulary.tokens);
  session.place(options.name, *head);
  head->borrow(target->lm_head(), session.dtype());
  options.loss.feature_scale = feature_scale(target, session.first_rows(), session.dtype());
  const auto loss = describe(options.loss) + "; " + describe(vocabulary);
  const auto cache = make_cache(options, target, session);
  session.train(
      *head, {.loss =
                  [&](const torch::Tensor& rows) {
                    return head_loss(head, target, rows, options.loss, session.dtype(), cache.get());
                  },
              .evaluate = [&] { return evaluate(head, target, session, options.loss); },
              .save =
                  [&](const Progress& progress) {
                    export_feature_head(head, session.tokenizer(), session.card(options.name, loss, progress),
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
  options->training.loop.peak_learning_rate = 0;  // default_rate()
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
  auto* file = command->add_option("--states", options->states,
                                   "Keep the target's states in this file, so that it runs once for each "
                                   "row, also for other heads (2.3 KB a "
                                   "token for two layers and the feature, 384 wide)");
  command
      ->add_option(
          "--states-memory", options->states_memory,
          "Keep as many GiB of them in memory; 0: none; by default all on a CPU, if half of the free "
          "memory suffices")
      ->check(CLI::NonNegativeNumber)
      ->excludes(file);
  options->training.init_may_lack = {kFeatureFusion};
  options->sizes.add_inner_to(*command, "Instead of the target's");
  options->training.add_to(*command);
  command->get_option("--lr")->description(
      "Peak learning rate; by default 6e-3 with --alignment 1, else 3.5e-3; with "
      "adamw 6e-4");
  options->training.add_draft_vocabulary_to(*command);
  options->training.add_budget_to(*command);
  command->callback([options] { train_head(*options); });
}

}  // namespace specula_train
