// SPDX-License-Identifier: MIT
#include "train_tokenizer.hpp"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <unordered_map>

#include "vocabulary.hpp"

namespace specula_train {
namespace {

/// Hands the documents to the trainer line by line. Newline is a separate symbol, so no piece contains it,
/// and training sentences need not.
class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

/// About `budget` bytes of lines from each style, taken evenly from all its documents.
std::vector<std::string> sample_lines(const std::vector<Style>& styles, std::size_t budget) {
  std::vector<std::string> lines;
  for (const auto& style : styles) {
    std::size_t bytes = 0;
    for (const auto& text : style.train) bytes += text.size();
    const auto stride = std::max<std::size_t>(1, bytes / budget);
    for (std::size_t i = 0; i < style.train.size(); i += stride) {
      const std::string& text = style.train[i];
      for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find('\n', start), text.size());
        if (end > start) lines.push_back(text.substr(start, end - start));
        start = end + 1;
      }
    }
  }
  return lines;
}

/// A run of `count` spaces in SentencePiece's spelling (U+2581 is a space).
std::string spaces(int count) {
  std::string run;
  for (int i = 0; i < count; ++i) run += "\xe2\x96\x81";
  return run;
}

void check(const sentencepiece::util::Status& status, const std::string& what) {
  if (!status.ok()) throw std::runtime_error(what + ": " + status.ToString());
}

}  // namespace

void train_tokenizer(const std::vector<Style>& styles, const TokenizerOptions& options,
                     const std::filesystem::path& model_file) {
  if (options.model_type != "bpe" && options.model_type != "unigram") {
    throw std::invalid_argument("tokenizer type '" + options.model_type + "': expected bpe or unigram");
  }
  if (model_file.has_parent_path()) std::filesystem::create_directories(model_file.parent_path());

  // One token for each usual depth of Python's indentation.
  std::string symbols = "\n";
  for (const int count : {2, 3, 4, 8, 12, 16}) symbols.append(",").append(spaces(count));

  const std::unordered_map<std::string, std::string> arguments{
      {"model_type", options.model_type},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"user_defined_symbols", symbols},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"normalization_rule_name", "identity"},
      {"character_coverage", "0.9999"},
      {"num_threads", "2"},
      {"minloglevel", "1"},
  };
  LineIterator lines(sample_lines(styles, std::size_t{6} << 20));
  // To memory first, since the trainer would write a file name into the model.
  std::string model;
  check(sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model), "training the tokenizer");
  std::ofstream out(model_file, std::ios::binary);
  out << model;
  out.close();
  if (!out) throw std::runtime_error(model_file.string() + ": cannot be written");
}

bool reproduces(const Tokenizer& tokenizer, const std::string& text) {
  const auto back = tokenizer.decode(tokenizer.encode(text));
  return back == text || back == " " + text;
}

TokenizedCorpus no_documents(const Tokenizer& tokenizer) {
  return {.vocab_size = tokenizer.vocab_size(),
          .vocabulary = specula_tools::fingerprint(tokenizer.pieces()),
          .begin = tokenizer.begin() == specula::kNoToken ? tokenizer.end() : tokenizer.begin(),
          .end = tokenizer.end(),
          .styles = {}};
}

TokenizedCorpus encode_corpus(const std::vector<Style>& styles, const Tokenizer& tokenizer) {
  const auto encode_all = [&](const std::vector<std::string>& texts) {
    std::vector<Document> documents;
    documents.reserve(texts.size());
    for (const auto& text : texts) {
      auto document = tokenizer.encode(text);
      document.push_back(tokenizer.end());
      documents.push_back(std::move(document));
    }
    return documents;
  };
  auto corpus = no_documents(tokenizer);
  for (const auto& style : styles) {
    corpus.styles.push_back({.name = style.name,
                             .train = encode_all(style.train),
                             .heldout = encode_all(style.heldout),
                             .info = style.info});
  }
  return corpus;
}

}  // namespace specula_train
