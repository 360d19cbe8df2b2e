// SPDX-License-Identifier: MIT
// specula bigram: counts the pairs of tokens of a text, for bigram drafts.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <specula/draft/bigram.hpp>

#include "bigram_file.hpp"
#include "command.hpp"
#include "files.hpp"
#include "options.hpp"
#include "prompts.hpp"
#include "text_table.hpp"
#include "token_store.hpp"
#include "tokenizer.hpp"
#include "vocabulary.hpp"

namespace specula_tools {
namespace {

namespace fs = std::filesystem;

struct BigramOptions {
  std::vector<std::string> texts, tokens;
  std::string tokenizer = SPECULA_EXAMPLE_TOKENIZER, output;
};

/// The prompts of a file of JSON Lines; any other file is one document.
void read_text(const fs::path& file, const Tokenizer& tokenizer, std::vector<Document>& documents) {
  if (fs::is_directory(file)) throw UsageError("--text " + file.string() + " is a folder, must be a file");
  std::vector<std::string> texts;
  if (file.extension() == ".jsonl") {
    for (const Prompt& prompt : load_prompts(file)) texts.push_back(prompt.put(Style::automatic));
  } else {
    texts.push_back(read_file(file));
  }
  for (const std::string& text : texts) {
    documents.push_back(tokenizer.encode(text));
    documents.back().push_back(tokenizer.end());
  }
}

/// What the numbers of all documents are of.
struct Vocabulary {
  std::int32_t size = 0;
  std::string fingerprint = {};  // empty: unknown
};

/// The tokens to count of a folder: of documents with a given prompt, from the prompt's last token on.
Vocabulary read_tokens(const fs::path& folder, std::vector<Document>& documents) {
  const TokenizedCorpus corpus = specula_tools::read_tokens(folder);
  for (const auto& style : corpus.styles)
    for (std::size_t i = 0; i < style.train.size(); ++i) {
      const std::int32_t given = style.given.empty() ? 0 : style.given[i];
      documents.emplace_back(style.train[i].begin() + std::max(0, given - 1), style.train[i].end());
    }
  return {corpus.vocab_size, corpus.vocabulary};
}

/// Throws UsageError if what is counted together is of two vocabularies.
void join(Vocabulary& all, const Vocabulary& found, const std::string& source) {
  if (all.size != 0 && found.size != all.size)
    throw UsageError(source + " has a vocabulary of " + std::to_string(found.size) +
                     " tokens, the one before of " + std::to_string(all.size));
  if (!all.fingerprint.empty() && !found.fingerprint.empty() && found.fingerprint != all.fingerprint)
    throw UsageError(source + " has another vocabulary than the one before, of as many tokens");
  all.size = found.size;
  if (all.fingerprint.empty()) all.fingerprint = found.fingerprint;
}

std::vector<Document> read_all(const BigramOptions& options, Vocabulary& vocabulary) {
  std::vector<Document> documents;
  for (const std::string& folder : options.tokens) join(vocabulary, read_tokens(folder, documents), folder);
  if (options.texts.empty()) return documents;
  const Tokenizer tokenizer(options.tokenizer);
  join(vocabulary, {tokenizer.vocab_size(), fingerprint(tokenizer.pieces())}, options.tokenizer);
  for (const std::string& text : options.texts) read_text(text, tokenizer, documents);
  return documents;
}

void add_options(CLI::App& app, BigramOptions& options) {
  app.add_option("--text", options.texts, "Files: the prompts of JSON Lines (.jsonl), else plain text");
  app.add_option(
      "--tokens", options.tokens,
      "Folders of tokens as specula-train-text and specula-train-answers write them; of answers, only tokens "
      "of the target count");
  app.add_option("--tokenizer", options.tokenizer,
                 "Tokenizer for --text: tokenizer.model, tokenizer.json or a folder with one (default: the "
                 "model pack's)");
  app.add_option("--output", options.output, "File to write, say bigram.json")->required();
  app.footer("Writes the likeliest next token of each token, which --bigram of the other commands takes.");
}

int count_pairs(const BigramOptions& options) {
  if (options.texts.empty() && options.tokens.empty())
    throw UsageError("nothing to count: give --text or --tokens");
  for (const std::string& text : options.texts) check_distinct("--output", options.output, "--text", text);
  check_distinct("--output", options.output, "--tokenizer", options.tokenizer);

  if (only_parses()) return 0;
  Vocabulary vocabulary;
  const std::vector<Document> documents = read_all(options, vocabulary);
  specula::BigramCounter counter(vocabulary.size);
  for (const Document& document : documents) counter.add(document);
  const specula::BigramTable table = counter.table();
  save_bigram({table, vocabulary.fingerprint}, options.output);

  std::int64_t pairs = 0, right = 0;
  std::int32_t known = 0;
  for (const Document& document : documents)
    for (std::size_t i = 1; i < document.size(); ++i) {
      ++pairs;
      right += table(document[i - 1]) == document[i];
    }
  for (const specula::Token next : table.next()) known += next != specula::kNoToken;
  std::cout << documents.size() << " documents, " << pairs << " pairs; " << known << " of " << vocabulary.size
            << " tokens have a next one; it is the right one for "
            << fixed(pairs ? 100.0 * static_cast<double>(right) / static_cast<double>(pairs) : 0.0, 1)
            << "% of these pairs\n";
  return 0;
}

}  // namespace

Body add_bigram(CLI::App& app) {
  const auto options = std::make_shared<BigramOptions>();
  add_options(app, *options);
  return [options] { return count_pairs(*options); };
}

}  // namespace specula_tools
