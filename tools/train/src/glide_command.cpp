// SPDX-License-Identifier: MIT
// `specula-train glide`: trains a draft that reads its target's keys and values.
#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "draft_options.hpp"
#include "export.hpp"
#include "frozen_target.hpp"
#include "glide.hpp"
#include "session.hpp"

namespace specula_train {
namespace {

using specula::Conditioning;

struct GlideOptions {
  std::string name = "glide";
  DraftOptions draft;
  std::int64_t block = 5;
  std::vector<std::int64_t> target_layers;
  SizeOptions sizes;
  TrainingOptions training;

  /// Sizes and layers of the target that are not given are those of what it starts from; else those of
  /// `small`, with one layer, and the last ones.
  DecoderConfig draft_config(const Session& session) const {
    auto config = named_config("small");
    config.layers = 1;
    if (!training.init.empty()) {
      config = read_config(training.init, {Conditioning::nothing, Conditioning::key_values});
      session.check_vocabulary(config, training.init);
      config.exits.clear();
      if (config.qkv_bias || config.query_key_norms)
        throw std::invalid_argument(
            training.init.string() +
            ": a GLIDE draft has no biases, nor norms of queries and keys: expected a "
            "Llama or Mistral without attention_bias");
    }
    session.set_vocabulary(config);
    return sizes.apply_to(config);
  }
  std::vector<std::int64_t> layers_to_read() const {
    if (!target_layers.empty() || training.init.empty()) return target_layers;
    const auto read = read_inference_config(training.init).target.reads;
    return {read.begin(), read.end()};
  }
  /// A plain decoder that initialises it has no cross attention.
  bool begins_as_decoder() const {
    return !training.init.empty() &&
           read_inference_config(training.init).conditioned_on == Conditioning::nothing;
  }
  TrainingOptions training_from() const {
    auto from = training;
    if (begins_as_decoder())
      for (std::int64_t l = 0; l < read_config(training.init).layers; ++l)
        from.init_may_lack.insert("model.layers." + std::to_string(l) + ".cross_attn.");
    return from;
  }
};

/// The loss, and by draft step the rate at which the draft's likeliest token is the target's.
Losses evaluate(Glide& draft, Llama& target, const Session& session) {
  Figures figures;
  session.for_heldout([&](const std::string& style, const torch::Tensor& rows) {
    const auto tokens = rows.narrow(1, 0, rows.size(1) - 1);
    const auto view = target->target_view(tokens, draft->config().layers_read(), true, session.dtype());
    const auto features = draft->features(tokens, view.layers, session.dtype());
    const auto loss = next_token_loss(features, rows, draft->lm_head());
    figures.add(style + " loss", loss.item<double>(), static_cast<double>(tokens.numel()));
    const auto agrees = agreement(likeliest_tokens(features, draft->lm_head()),
                                  likeliest_tokens(view.features, target->lm_head()));
    const auto block = draft->config().block;
    const auto steps = draft_steps(tokens.size(1), block, tokens.device()).expand_as(agrees);
    for (std::int64_t step = 1; step <= block; ++step) {
      figures.add(style + " step " + std::to_string(step) + " agrees", agrees, steps == step);
    }
  });
  return figures.means();
}

void train_glide(const GlideOptions& options) {
  const auto training = options.training_from();
  const Session session(training);
  auto target = load_target(options.draft.target, session);
  auto config = options.draft_config(session);
  const auto borrowed = options.draft.borrow(config, target, training, session);
  Glide draft(GlideConfig{.draft = config,
                          .target = target->config(),
                          .block = options.block,
                          .target_layers = options.layers_to_read()},
              borrowed.embedding, borrowed.vocabulary.tokens);
  if (options.begins_as_decoder()) draft->silence_cross_attention();
  session.place("glide", *draft);
  const auto loss = options.draft.describe_loss() +
                    "; cross attention sees the target's keys before a token's block of " +
                    std::to_string(options.block) + describe(borrowed);
  const auto target_head = options.draft.learns_target()
                               ? rows_of_target_head(target->lm_head(), draft->lm_head(), session.dtype())
                               : torch::Tensor();
  session.train(*draft, {.loss =
                             [&](const torch::Tensor& rows) {
                               return glide_loss(draft, target, rows, session.dtype(), target_head);
                             },
                         .evaluate = [&] { return evaluate(draft, target, session); },
                         .save =
                             [&](const Progress& progress) {
                               export_glide(draft, session.tokenizer(),
                                            session.card(options.name, loss, progress),
                                            training.output / "export");
                             }});
}

}  // namespace

void add_glide_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("glide", "Train a GLIDE draft, which reads its target's keys and values");
  const auto options = std::make_shared<GlideOptions>();
  command->add_option("--name", options->name, "On the model card")->capture_default_str();
  command->add_option("--target", options->draft.target, "The target's Hugging Face directory")->required();
  command->add_option("--block", options->block, "Draft steps to train for: tokens a block of the mask")
      ->capture_default_str();
  command
      ->add_option(
          "--target-layer", options->target_layers,
          "The target's layer that each layer of the draft reads, from 0, as in 7 or 3,7; by default "
          "the last ones")
      ->delimiter(',');
  options->sizes.add_to(
      *command, "Instead of that of --init, else of `small` (1 layer, hidden 128, heads 4 and 2, 352)");
  options->draft.add_to(*command, options->training);
  options->training.add_to(*command);
  options->training.add_budget_to(*command);
  command->callback([options] { train_glide(*options); });
}

}  // namespace specula_train
