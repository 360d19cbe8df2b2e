// specula-train-text: a text corpus, its tokenizer, and the corpus as tokens.
//
// A program of its own, because Debian's SentencePiece carries a protobuf whose symbols clash with the
// one that libtorch links to: both in one process crash before main.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include "corpus.hpp"
#include "token_store.hpp"
#include "tokenizer.hpp"

namespace {

namespace fs = std::filesystem;
namespace st = specula_train;

struct CorpusCommand {
  fs::path gsm8k, python, output;

  void add_to(CLI::App& app) {
    auto* command = app.add_subcommand("corpus", "Build the text corpus");
    command->add_option("--gsm8k", gsm8k, "GSM8K's train.jsonl")->required();
    command->add_option("--python", python, "Folder of Python's standard library")->required();
    command->add_option("--output", output, "Folder to write")->required();
    command->callback([this] { run(); });
  }

  void run() const {
    for (const auto& style : {st::split_style("gsm8k", st::read_gsm8k(gsm8k)),
                              st::split_style("python", st::read_python(python))}) {
      std::size_t bytes = 0;
      for (const auto& text : style.train) bytes += text.size();
      std::printf("%s: %zu documents (%.1f MB) to train on, %zu held out\n", style.name.c_str(),
                  style.train.size(), static_cast<double>(bytes) / 1e6, style.heldout.size());
      st::write_style(style, output);
    }
  }
};

struct TokenizerCommand {
  fs::path data, output, given;
  st::TokenizerOptions options;

  void add_to(CLI::App& app) {
    auto* command =
        app.add_subcommand("tokenizer", "Train the tokenizer on the corpus, and encode the corpus");
    command->add_option("--data", data, "Folder written by `corpus`")->required();
    command->add_option("--output", output, "Folder to write: tokenizer.model and the corpus as tokens")
        ->required();
    auto* size =
        command->add_option("--vocab-size", options.vocab_size, "Number of tokens")->capture_default_str();
    auto* type = command->add_option("--type", options.model_type, "bpe or unigram")->capture_default_str();
    command->add_option("--tokenizer", given, "Encode with this tokenizer.model instead of training one")
        ->excludes(size, type);
    command->callback([this] { run(); });
  }

  void run() const {
    const auto styles = st::read_corpus(data);
    if (given.empty()) {
      st::train_tokenizer(styles, options, output / "tokenizer.model");
    } else {
      fs::create_directories(output);
      fs::copy_file(given, output / "tokenizer.model", fs::copy_options::overwrite_existing);
    }
    const st::Tokenizer tokenizer(output / "tokenizer.model");
    for (const auto& style : styles) {
      std::size_t bytes = 0, tokens = 0;
      for (const auto& text : style.heldout) {
        const auto ids = tokenizer.encode(text);
        if (tokenizer.decode(ids) != text) {
          throw std::runtime_error(output.string() + ": does not reproduce a held-out text of style " +
                                   style.name);
        }
        bytes += text.size();
        tokens += ids.size();
      }
      std::printf("%s, held out: %zu tokens, %.2f bytes each\n", style.name.c_str(), tokens,
                  static_cast<double>(bytes) / static_cast<double>(tokens));
    }
    st::write_tokens(st::encode_corpus(styles, tokenizer), output);
  }
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Prepares text for training language models"};
  app.require_subcommand(1);
  CorpusCommand corpus;
  TokenizerCommand tokenizer;
  corpus.add_to(app);
  tokenizer.add_to(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "specula-train-text: %s\n", error.what());
    return 1;
  }
  return 0;
}
