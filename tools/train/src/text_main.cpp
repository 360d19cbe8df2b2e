// SPDX-License-Identifier: MIT
// specula-train-text: a text corpus, its tokenizer, and the corpus as tokens.
// A separate program, because Debian's SentencePiece exports a protobuf whose symbols clash with the one that
// libtorch links to: a process with both crashes before main.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "corpus.hpp"
#include "text_commands.hpp"
#include "tokens.hpp"
#include "train_tokenizer.hpp"

namespace {

namespace fs = std::filesystem;
namespace st = specula_train;

struct CorpusCommand {
  fs::path gsm8k, python, output;
  std::vector<std::string> styles, descriptions, licences;
  st::TextOptions text;
  std::size_t heldout_every = 50;

  void add_to(CLI::App& app) {
    auto* command = app.add_subcommand(
        "corpus", "Build the text corpus: any number of styles of text, in one call or in several");
    command->add_option(
        "--style", styles,
        "NAME=FOLDER_OR_FILE, may be repeated: the text files below a folder, a document "
        "each; a FILE.jsonl, a document a line; or any other file, whose documents begin with "
        "lines <|endoftext|> or are pieces of 8,000 bytes");
    command->add_option("--ending", text.endings, "Endings of a folder's text files; may be repeated")
        ->capture_default_str();
    command->add_option("--key", text.key, "Key of the text in a line of a .jsonl file")
        ->capture_default_str();
    command->add_option("--gsm8k", gsm8k, "Style gsm8k: GSM8K's train.jsonl, questions and answers");
    command->add_option("--python", python,
                        "Style python: a folder of Python's standard library, without tests and tables");
    command->add_option("--describe", descriptions,
                        "NAME=TEXT, may be repeated: description of a style, for the model cards");
    command->add_option("--licence", licences, "NAME=TEXT, may be repeated: licence of a style");
    command
        ->add_option("--heldout-every", heldout_every,
                     "Every n-th document of a style is held out, at least one")
        ->capture_default_str();
    command->add_option("--output", output, "Folder to write")->required();
    command->callback([this] { run(); });
  }

  void run() const {
    std::vector<st::Style> all;
    const auto add = [&](const std::string& name, std::vector<std::string> documents, const char* description,
                         const char* licence) {
      for (const auto& other : all)
        if (other.name == name) throw std::invalid_argument("style '" + name + "' is given twice");
      all.push_back(st::split_style(name, std::move(documents), heldout_every));
      all.back().info.description = description;
      all.back().info.licence = licence;
    };
    if (!gsm8k.empty()) {
      add("gsm8k", st::read_gsm8k(gsm8k),
          "GSM8K, the training split, without its calculator annotations; prompts look like `Question: "
          "...\\nAnswer:`",
          "Copyright (c) 2021 OpenAI, MIT License");
    }
    if (!python.empty()) {
      add("python", st::read_python(python), "the sources of Python's standard library",
          "Copyright (c) Python Software Foundation, PSF License Version 2");
    }
    for (const auto& style : styles) {
      const auto [name, path] = st::parse_assignment("--style", style);
      add(name, st::read_text(path, text), "", "");
    }
    if (all.empty()) throw std::invalid_argument("no text: give --style NAME=FOLDER_OR_FILE");
    state(all, "--describe", descriptions, &st::StyleInfo::description);
    state(all, "--licence", licences, &st::StyleInfo::licence);
    for (const auto& style : all) {
      std::size_t bytes = 0;
      for (const auto& document : style.train) bytes += document.size();
      std::printf("%s: %zu documents (%.1f MB) to train on, %zu held out\n", style.name.c_str(),
                  style.train.size(), static_cast<double>(bytes) / 1e6, style.heldout.size());
      st::write_style(style, output);
    }
  }

  static void state(std::vector<st::Style>& all, const char* option, const std::vector<std::string>& given,
                    std::string st::StyleInfo::*member) {
    for (const auto& text : given) {
      const auto [name, value] = st::parse_assignment(option, text);
      const auto style = std::find_if(all.begin(), all.end(),
                                      [&, &wanted = name](const st::Style& s) { return s.name == wanted; });
      if (style == all.end())
        throw std::invalid_argument(std::string(option) + " " + text + ": no style of this name is given");
      style->info.*member = value;
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
    command
        ->add_option(
            "--tokenizer", given,
            "Encode with this tokenizer.model, tokenizer.json (byte-pair encoding) or folder of one, instead "
            "of training one")
        ->excludes(size, type);
    command->callback([this] { run(); });
  }

  void run() const {
    const auto styles = st::read_corpus(data);
    if (given.empty()) {
      st::train_tokenizer(styles, options, output / "tokenizer.model");
    } else {
      st::copy_tokenizer(given, output);
    }
    // Not from the folder, which may hold the tokenizer of an earlier run.
    const st::Tokenizer tokenizer(given.empty() ? output / "tokenizer.model" : given);
    for (const auto& style : styles) {
      std::size_t bytes = 0, tokens = 0, changed = 0;
      for (const auto& text : style.heldout) {
        changed += st::reproduces(tokenizer, text) ? 0 : 1;
        bytes += text.size();
        tokens += tokenizer.encode(text).size() - (tokenizer.adds_begin() ? 1 : 0);
      }
      if (changed > 0 && given.empty()) {
        throw std::runtime_error(output.string() + ": does not reproduce a held-out text of style " +
                                 style.name);
      }
      std::printf("%s, held out: %zu tokens, %.2f bytes each\n", style.name.c_str(), tokens,
                  static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(tokens, 1)));
      if (changed > 0) {
        std::fprintf(stderr, "warning: %s: %zu of %zu held-out texts are not reproduced exactly\n",
                     style.name.c_str(), changed, style.heldout.size());
      }
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
  st::add_prompts_command(app);
  st::add_unlike_command(app);
  st::add_heldout_command(app);
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
