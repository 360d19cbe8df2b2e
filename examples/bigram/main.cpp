// specula-bigram: counts the pairs of tokens of a text, for bigram drafts.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <specula/draft/bigram.hpp>

#include "bigram_file.hpp"
#include "files.hpp"
#include "options.hpp"
#include "prompts.hpp"
#include "text_table.hpp"
#include "token_store.hpp"
#include "tokenizer.hpp"

namespace {

using namespace specula_examples;
namespace fs = std::filesystem;

struct Options {
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

/// The tokens to count of a folder: of documents with a given prompt, from the prompt's last token on.
std::int32_t read_tokens(const fs::path& folder, std::vector<Document>& documents) {
  const TokenizedCorpus corpus = specula_examples::read_tokens(folder);
  for (const auto& style : corpus.styles)
    for (std::size_t i = 0; i < style.train.size(); ++i) {
      const std::int32_t given = style.given.empty() ? 0 : style.given[i];
      documents.emplace_back(style.train[i].begin() + std::max(0, given - 1), style.train[i].end());
    }
  return corpus.vocab_size;
}

std::vector<Document> read_all(const Options& options, std::int32_t& vocab) {
  std::vector<Document> documents;
  for (const std::string& folder : options.tokens) {
    const std::int32_t found = read_tokens(folder, documents);
    if (vocab != 0 && found != vocab)
      throw UsageError(folder + " has a vocabulary of " + std::to_string(found) +
                       " tokens, the one before of " + std::to_string(vocab));
    vocab = found;
  }
  if (options.texts.empty()) return documents;
  const Tokenizer tokenizer(options.tokenizer);
  if (vocab != 0 && tokenizer.vocab_size() != vocab)
    throw UsageError(options.tokenizer + " has " + std::to_string(tokenizer.vocab_size()) +
                     " tokens, the folders of " + "tokens " + std::to_string(vocab));
  vocab = tokenizer.vocab_size();
  for (const std::string& text : options.texts) read_text(text, tokenizer, documents);
  return documents;
}

int run(int argc, char** argv) {
  CLI::App app{"Counts pairs of tokens, and writes the likeliest next token of each.", "specula-bigram"};
  Options options;
  app.add_option("--text", options.texts, "Files: the prompts of JSON Lines (.jsonl), else plain text");
  app.add_option(
      "--tokens", options.tokens,
      "Folders of tokens as specula-train-text and specula-train-answers write them; of answers, only tokens "
      "of the target count");
  app.add_option("--tokenizer", options.tokenizer,
                 "Tokenizer for --text: tokenizer.model, tokenizer.json or a folder with one (default: the "
                 "model pack's)");
  app.add_option("--output", options.output, "File to write, say bigram.json")->required();
  if (parse_command_line(app, argc, argv)) return 0;
  if (options.texts.empty() && options.tokens.empty())
    throw UsageError("nothing to count: give --text or --tokens");

  for (const std::string& text : options.texts) check_distinct("--output", options.output, "--text", text);
  check_distinct("--output", options.output, "--tokenizer", options.tokenizer);

  std::int32_t vocab = 0;
  const std::vector<Document> documents = read_all(options, vocab);
  specula::BigramCounter counter(vocab);
  for (const Document& document : documents) counter.add(document);
  const specula::BigramTable table = counter.table();
  save_bigram(table, options.output);

  std::int64_t pairs = 0, right = 0;
  std::int32_t known = 0;
  for (const Document& document : documents)
    for (std::size_t i = 1; i < document.size(); ++i) ++pairs, right += table(document[i - 1]) == document[i];
  for (const specula::Token next : table.next()) known += next != specula::kNoToken;
  std::cout << documents.size() << " documents, " << pairs << " pairs; " << known << " of " << vocab
            << " tokens have a next one; it is the right one for "
            << fixed(pairs ? 100.0 * static_cast<double>(right) / static_cast<double>(pairs) : 0.0, 1)
            << "% of these pairs\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-bigram", [&] { return run(argc, argv); });
}
