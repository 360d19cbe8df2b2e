// SPDX-License-Identifier: MIT
// `specula-train model`: trains a decoder on text; `specula-train export`: writes its directory from a
// checkpoint.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "draft_options.hpp"
#include "export.hpp"
#include "frozen_target.hpp"
#include "session.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

struct ModelOptions {
  std::string name = "target";
  SizeOptions sizes;
  std::vector<std::int64_t> exits;
  fs::path cut_from;
  DraftOptions draft;
  TrainingOptions training;

  bool drafts() const { return !draft.target.empty(); }
  std::string name_of_model() const { return drafts() && name == "target" ? "draft" : name; }

  void add_to(CLI::App& command) {
    command
        .add_option(
            "--name", name,
            "target, deep, base or small: the sizes, unless --init or sizes are given; then any name for the "
            "model card. With --target: small, deep, or any other name, `draft` by default, with the sizes "
            "of base")
        ->capture_default_str();
    sizes.add_to(command, "Instead of the named size");
    auto* target =
        command.add_option("--target", draft.target,
                           "The Hugging Face directory of a target to draft for, which lends its embedding "
                           "and is what --loss target "
                           "learns; held-out figures then say how often the draft's likeliest token is its");
    draft.add_to(command, training);
    for (const char* option : {"--draft-vocabulary", "--target-embedding", "--loss"})
      command.get_option(option)->needs(target);
    command
        .add_option("--exits", exits,
                    "Early exits: numbers of layers, as in 1,2,3; the model learns to predict at each")
        ->delimiter(',');
    command.add_option(
        "--cut-from", cut_from,
        "Initialise from the first layers, up to the last exit, of this Hugging Face directory");
    training.add_to(command);
  }

  /// The sizes of the model that it starts from; else those given; else the named ones, which those given
  /// change where it is a draft.
  DecoderConfig config(const Session& session) const {
    if (!cut_from.empty() && (exits.empty() || sizes.any()))
      throw std::invalid_argument("--cut-from takes its sizes from there, and --exits for its layers");
    const auto& from = cut_from.empty() ? training.init : cut_from;
    const bool reads = !from.empty() && !sizes.any();
    auto config = reads         ? read_config(from)
                  : drafts()    ? sizes.apply_to(draft_sizes(from))
                  : sizes.any() ? sizes.explicit_sizes
                                : named_config(name);
    if (reads) session.check_vocabulary(config, from);
    if (config.target_hidden_size != 0 && !drafts())
      throw std::invalid_argument(from.string() + ": a draft over its target's embedding: give --target");
    if (!cut_from.empty()) {
      if (exits.back() > config.layers)
        throw std::invalid_argument(cut_from.string() + ": has " + std::to_string(config.layers) +
                                    " layers, cannot be cut after " + std::to_string(exits.back()));
      config.layers = exits.back();
    }
    if (!exits.empty()) config.exits = exits;
    if (sizes.untied) config.tied_head = false;
    session.set_vocabulary(config);
    config.validate();
    return config;
  }
  /// Those of the draft that it starts from, else of the name.
  DecoderConfig draft_sizes(const fs::path& from) const {
    const bool named = name == "small" || name == "deep";
    auto config = from.empty() ? named_config(named ? name : "base") : read_config(from);
    if (sizes.explicit_sizes.layers != 0) config.exits.clear();  // they end with the layers
    return config;
  }
  /// A decoder's training, from the weights that it is cut from, if any. Initial weights may have fewer
  /// layers.
  TrainingOptions training_from() const {
    auto from = training;
    if (!training.init.empty())
      for (auto l = read_config(training.init).layers; l < sizes.explicit_sizes.layers; ++l)
        from.init_may_lack.insert("model.layers." + std::to_string(l) + ".");
    if (cut_from.empty()) return from;
    if (!from.init.empty()) throw std::invalid_argument("--init and --cut-from: expected one of them");
    from.init = cut_from;
    from.init_is_larger = true;
    return from;
  }
};

/// A decoder with its data, and its target if it drafts for one.
struct ModelSession {
  explicit ModelSession(const ModelOptions& model_options)
      : options(model_options), training(options.training_from()), session(training) {
    auto config = options.config(session);
    if (options.drafts()) {
      target = load_target(options.draft.target, session);
      borrowed = options.draft.borrow(config, target, training, session);
    }
    model = Llama(config, borrowed.embedding, borrowed.vocabulary.tokens);
    if (!training.init_may_lack.empty()) model->silence(read_config(training.init).layers);
    session.place(options.name_of_model(), *model);
    if (options.draft.learns_target())
      target_head = rows_of_target_head(target->lm_head(), model->lm_head(), session.dtype());
  }

  torch::Tensor loss(const torch::Tensor& rows) {
    if (!target_head.defined()) return next_token_loss(model, rows, session.dtype());
    const auto tokens = unmark(rows).narrow(1, 0, rows.size(1) - 1);
    return distillation_loss(model->exit_features(tokens, session.dtype()), model->lm_head(),
                             target->features(tokens, session.dtype()), target_head);
  }

  Losses evaluate() {
    Figures figures;
    session.for_heldout([&](const std::string& style, const torch::Tensor& rows) {
      const auto tokens = rows.narrow(1, 0, rows.size(1) - 1);
      const auto wanted = target
                              ? likeliest_tokens(target->features(tokens, session.dtype()), target->lm_head())
                              : torch::Tensor();
      const auto exits = model->exit_features(tokens, session.dtype());
      for (std::size_t e = 0; e < exits.size(); ++e) {
        const auto name = exits.size() > 1 ? style + " exit " + std::to_string(e + 1) : style;
        figures.add(name, next_token_loss(exits[e], rows, model->lm_head()).item<double>(),
                    static_cast<double>(rows.size(0)));
        if (!target) continue;
        const auto agrees = agreement(likeliest_tokens(exits[e], model->lm_head()), wanted);
        figures.add(name + " agrees", agrees.mean().item<double>(), static_cast<double>(agrees.numel()));
      }
    });
    return figures.means();
  }

  void export_to(const fs::path& directory, const Progress& progress) {
    const auto loss =
        options.draft.describe_loss() +
        (model->config().exits.size() < 2 ? "" : ", the mean over the exits (sorted fine-tuning)") +
        describe(borrowed);
    export_model(model, session.tokenizer(), session.card(options.name_of_model(), loss, progress),
                 directory);
  }

  const ModelOptions& options;
  const TrainingOptions training;
  Session session;
  Llama target{nullptr};
  Borrowed borrowed;
  Llama model{nullptr};
  torch::Tensor target_head;  // if its distribution is learned
};

void train_model(const ModelOptions& options) {
  ModelSession session(options);
  session.session.train(*session.model,
                        {.loss = [&](const torch::Tensor& rows) { return session.loss(rows); },
                         .evaluate = [&] { return session.evaluate(); },
                         .save =
                             [&](const Progress& progress) {
                               session.export_to(options.training.output / "export", progress);
                             }});
}

void export_checkpoint(const ModelOptions& options, const fs::path& directory) {
  ModelSession session(options);
  const auto saved = load_checkpoint(options.training.checkpoint_file());
  copy_parameters(saved.parameters, *session.model);
  torch::NoGradGuard no_grad;
  session.export_to(directory.empty() ? options.training.output / "export" : directory,
                    {.steps = saved.steps,
                     .tokens = saved.tokens,
                     .seconds = saved.seconds,
                     .finished = saved.finished,
                     .heldout = session.evaluate()});
}

}  // namespace

void add_model_commands(CLI::App& app) {
  auto* train = app.add_subcommand("model", "Train a decoder; exports it at every checkpoint");
  const auto options = std::make_shared<ModelOptions>();
  options->add_to(*train);
  options->training.add_budget_to(*train);
  train->callback([options] { train_model(*options); });

  auto* exporter = app.add_subcommand("export", "Write a decoder's Hugging Face directory from a checkpoint");
  const auto export_options = std::make_shared<ModelOptions>();
  const auto directory = std::make_shared<fs::path>();
  export_options->add_to(*exporter);
  exporter->add_option("--export", *directory, "Folder to write; by default OUTPUT/export");
  export_options->training.loop.resume = true;  // the checkpoint's draft vocabulary
  exporter->callback([export_options, directory] { export_checkpoint(*export_options, *directory); });
}

}  // namespace specula_train
