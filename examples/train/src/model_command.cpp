// `model`: a decoder, trained on text; `export`: its directory, from a checkpoint.
#include <memory>
#include <string>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "export.hpp"
#include "session.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

struct ModelOptions {
  std::string name = "target";
  SizeOptions sizes;
  TrainingOptions training;

  void add_to(CLI::App& command) {
    command.add_option("--name", name, "target, base or small: the sizes, and the name on the model card")
        ->capture_default_str();
    sizes.add_to(command, "Instead of the named size");
    training.add_to(command);
  }

  LlamaConfig config(std::int32_t vocab_size) const {
    auto config = sizes.any() ? sizes.explicit_sizes : named_config(name);
    config.vocab_size = vocab_size;
    config.validate();
    return config;
  }
};

/// A decoder with its data.
struct ModelSession {
  explicit ModelSession(const ModelOptions& model_options)
      : options(model_options), session(options.training), model(options.config(session.vocab_size())) {
    session.place(options.name, *model);
  }

  torch::Tensor loss(const torch::Tensor& rows) { return next_token_loss(model, rows, session.dtype()); }

  Losses evaluate() {
    Figures losses;
    session.for_heldout([&](const std::string& style, const torch::Tensor& rows) {
      losses.add(style, loss(rows).item<double>(), static_cast<double>(rows.size(0)));
    });
    return losses.means();
  }

  void export_to(const fs::path& directory, const Progress& progress) {
    export_model(
        model, session.tokenizer_file(),
        {options.name, options.training.recipe("Next-token cross entropy"), session.has_given(), progress},
        directory);
  }

  const ModelOptions& options;
  Session session;
  Llama model;
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
  exporter->callback([export_options, directory] { export_checkpoint(*export_options, *directory); });
}

}  // namespace specula_train
