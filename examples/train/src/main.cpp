// specula-train: trains the models of the pack on the tokens that specula-train-text wrote.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "data_loader.hpp"
#include "export.hpp"
#include "llama.hpp"
#include "machine.hpp"
#include "optimizer.hpp"
#include "safetensors.hpp"
#include "token_store.hpp"
#include "training_loop.hpp"

namespace {

namespace fs = std::filesystem;
namespace st = specula_train;

/// What training and exporting have in common: which model, on which data.
struct ModelOptions {
  std::string name = "target", precision = "auto";
  fs::path data, tokenizer_file, output, init;
  st::LlamaConfig explicit_sizes{.hidden = 0, .layers = 0, .heads = 0, .kv_heads = 0, .intermediate = 0};
  st::OptimizerOptions optimizer;
  st::LoopOptions loop;
  std::uint64_t seed = 1;

  void add_to(CLI::App& command) {
    command.add_option("--name", name, "target, base or small: the sizes, and the name on the model card")
        ->capture_default_str();
    command.add_option("--layers", explicit_sizes.layers, "Instead of the named size");
    command.add_option("--hidden", explicit_sizes.hidden, "Instead of the named size");
    command.add_option("--heads", explicit_sizes.heads, "Instead of the named size");
    command.add_option("--kv-heads", explicit_sizes.kv_heads, "Instead of the named size");
    command.add_option("--intermediate", explicit_sizes.intermediate, "Instead of the named size");
    command.add_option("--data", data, "Folder of tokens written by `specula-train-text tokenizer`")
        ->required();
    command.add_option("--tokenizer", tokenizer_file, "tokenizer.model, if not the one beside the tokens");
    command.add_option("--output", output, "Folder for checkpoint.pt and export/")->required();
    command.add_option("--lr", loop.peak_learning_rate, "Peak learning rate")->capture_default_str();
    command.add_option("--batch", loop.batch, "Rows a step")->capture_default_str();
    command.add_option("--context", loop.context, "Tokens a row")->capture_default_str();
    command.add_option("--optimizer", optimizer.kind, "muon or adamw")->capture_default_str();
    command.add_option("--precision", precision, "auto, f32 or bf16")->capture_default_str();
    command.add_option("--seed", seed, "Of the weights and of the order of the data")->capture_default_str();
  }

  st::LlamaConfig sizes(std::int32_t vocab_size) const {
    const auto& own = explicit_sizes;
    const bool named = own.layers + own.hidden + own.heads + own.kv_heads + own.intermediate == 0;
    auto config = named ? st::named_config(name) : own;
    config.vocab_size = vocab_size;
    config.validate();
    return config;
  }

  fs::path checkpoint_file() const { return output / "checkpoint.pt"; }

  /// For the model card.
  std::string recipe() const {
    char text[320];
    std::snprintf(
        text, sizeof text,
        "Next-token cross entropy; %s, peak learning rate %g, cosine to a tenth of it; %lld rows of %lld\n"
        "tokens a step, and half as many rows of twice the length at the end; seed %llu.%s",
        optimizer.kind == "muon" ? "Muon (matrices) and AdamW (the rest)" : "AdamW", loop.peak_learning_rate,
        static_cast<long long>(loop.batch), static_cast<long long>(loop.context),
        static_cast<unsigned long long>(seed), init.empty() ? "" : " Started from trained weights.");
    return text;
  }
};

/// A model on its device, with its data.
class Session {
 public:
  explicit Session(const ModelOptions& options)
      : options_(options),
        device_(st::best_device()),
        dtype_(st::choose_dtype(options.precision, device_)),
        corpus_(st::read_tokens(options.data)) {
    tokenizer_file_ =
        options.tokenizer_file.empty() ? options.data / "tokenizer.model" : options.tokenizer_file;
    if (!fs::exists(tokenizer_file_)) {
      throw std::invalid_argument(tokenizer_file_.string() + ": no such file");
    }

    std::printf("device %s, %d threads, products in %s, BLAS: %s\n", device_.str().c_str(),
                torch::get_num_threads(), c10::toString(dtype_), st::blas_name().c_str());
    if (const auto warning = st::blas_warning(); !warning.empty()) {
      std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    for (const auto& style : corpus_.styles) {
      std::printf("%s: %zu tokens\n", style.name.c_str(), st::count_tokens(style.train));
    }

    for (auto& style : corpus_.styles) st::mark_given(style);

    torch::manual_seed(options.seed);
    model_ = st::Llama(options.sizes(corpus_.vocab_size));
    model_->to(device_);
    std::int64_t count = 0;
    for (const auto& parameter : model_->parameters()) count += parameter.numel();
    std::printf("%s: %lld parameters\n", options.name.c_str(), static_cast<long long>(count));
    std::fflush(stdout);
  }

  st::Llama& model() { return model_; }
  torch::Device device() const { return device_; }
  const std::vector<st::TokenizedStyle>& styles() const { return corpus_.styles; }

  torch::Tensor loss(const torch::Tensor& rows) { return st::next_token_loss(model_, rows, dtype_); }

  /// Held-out loss of each style, over at most 96 rows.
  st::Losses evaluate() {
    st::Losses losses;
    for (const auto& style : corpus_.styles) {
      const auto rows = st::heldout_rows(style, options_.loop.context, 96);
      double sum = 0;
      for (const auto& part : rows.split(16)) {
        sum += loss(part.to(device_)).item<double>() * static_cast<double>(part.size(0));
      }
      losses[style.name] = sum / static_cast<double>(rows.size(0));
    }
    return losses;
  }

  void export_to(const fs::path& directory, const st::Progress& progress) {
    st::export_model(model_, tokenizer_file_, {options_.name, options_.recipe(), progress}, directory);
  }

 private:
  const ModelOptions& options_;
  torch::Device device_;
  torch::ScalarType dtype_;
  st::TokenizedCorpus corpus_;
  fs::path tokenizer_file_;
  st::Llama model_{nullptr};
};

struct ModelCommand {
  ModelOptions options;

  void add_to(CLI::App& app) {
    auto* command = app.add_subcommand("model", "Train a decoder; exports it at every checkpoint");
    options.add_to(*command);
    auto& loop = options.loop;
    command->add_option("--steps", loop.budget.steps, "Budget in steps");
    command->add_option("--minutes", loop.budget.minutes, "Budget in minutes of training, over all resumes");
    command->add_option("--long-from", loop.long_rows_from, "Part of the budget after which rows are longer")
        ->capture_default_str();
    command->add_option("--checkpoint-minutes", loop.checkpoint_minutes, "Time between checkpoints")
        ->capture_default_str();
    command->add_option("--init", options.init,
                        "Start from the weights of this Hugging Face directory; a checkpoint wins over it");
    command->add_flag("--resume", loop.resume, "Go on from the checkpoint in the output folder, if any");
    command->callback([this] { run(); });
  }

  void run() {
    Session session(options);
    if (!options.init.empty()) st::load_safetensors(options.init / "model.safetensors", *session.model());
    st::BatchLoader loader(session.styles(), options.seed);
    st::Optimizer optimizer(*session.model(), options.optimizer);
    options.loop.checkpoint_file = options.checkpoint_file();
    for (const int signal : {SIGINT, SIGTERM}) {
      std::signal(signal, [](int) { st::request_stop(); });
    }
    st::train(*session.model(), loader, optimizer, session.device(), options.loop,
              {.loss = [&](const torch::Tensor& rows) { return session.loss(rows); },
               .evaluate = [&] { return session.evaluate(); },
               .save = [&](const st::Progress& p) { session.export_to(options.output / "export", p); }});
  }
};

struct ExportCommand {
  ModelOptions options;
  fs::path directory;

  void add_to(CLI::App& app) {
    auto* command = app.add_subcommand("export", "Write a Hugging Face directory from a checkpoint");
    options.add_to(*command);
    command->add_option("--export", directory, "Folder to write; by default OUTPUT/export");
    command->callback([this] { run(); });
  }

  void run() {
    Session session(options);
    const auto saved = st::load_checkpoint(options.checkpoint_file());
    st::copy_parameters(saved.parameters, *session.model());
    torch::NoGradGuard no_grad;
    session.export_to(directory.empty() ? options.output / "export" : directory,
                      {.steps = saved.steps,
                       .tokens = saved.tokens,
                       .seconds = saved.seconds,
                       .finished = saved.finished,
                       .heldout = session.evaluate()});
  }
};

}  // namespace

int main(int argc, char** argv) {
  st::prepare_process(argv);
  CLI::App app{"Trains small language models for speculative decoding"};
  app.require_subcommand(1);
  ModelCommand model;
  ExportCommand exporter;
  model.add_to(app);
  exporter.add_to(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "specula-train: %s\n", error.what());
    return 1;
  }
  return 0;
}
