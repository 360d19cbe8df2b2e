// SPDX-License-Identifier: MIT
#include "token_store.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include <specula/files/json_fields.hpp>

#include "files.hpp"
#include "gguf_vocabulary.hpp"

namespace specula_tools {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little endian");

constexpr char kNoTokens[] =
    ": cannot be opened; run `specula-train-text tokenizer`, or for prompts `specula-train-text prompts`";

fs::path train_file(const fs::path& directory, std::string name) {
  return directory / name.append(".train.tokens");
}

fs::path heldout_file(const fs::path& directory, std::string name) {
  return directory / name.append(".heldout.tokens");
}

fs::path given_file(const fs::path& directory, std::string name) {
  return directory / name.append(".train.given");
}

void write_integers(const fs::path& file, const std::vector<std::int32_t>& integers) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(integers.data()),
            static_cast<std::streamsize>(integers.size() * sizeof(std::int32_t)));
  out.flush();
  if (!out) throw std::runtime_error(file.string() + ": cannot be written");
}

/// Empty if there is no such file.
std::vector<std::int32_t> read_integers(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<std::int32_t> integers;
  for (std::int32_t integer = 0; in.read(reinterpret_cast<char*>(&integer), sizeof integer);)
    integers.push_back(integer);
  return integers;
}

fs::path lengths_file(fs::path tokens) { return tokens.replace_extension(".documents"); }

void write_documents(const fs::path& file, const std::vector<Document>& documents) {
  std::vector<std::int32_t> all, lengths;
  for (const auto& document : documents) {
    all.insert(all.end(), document.begin(), document.end());
    lengths.push_back(static_cast<std::int32_t>(document.size()));
  }
  write_integers(file, all);
  write_integers(lengths_file(file), lengths);
}

std::vector<Document> read_documents(const fs::path& file, std::int32_t vocab_size, Token end) {
  if (!fs::exists(file)) throw std::runtime_error(file.string() + kNoTokens);
  const auto all = read_integers(file);
  for (const Token token : all) {
    if (token < 0 || token >= vocab_size) {
      throw std::runtime_error(file.string() + ": token " + std::to_string(token) +
                               " is outside the vocabulary of " + std::to_string(vocab_size));
    }
  }
  std::vector<Document> documents;
  auto at = all.begin();
  if (const auto by = lengths_file(file); fs::exists(by)) {
    for (const auto length : read_integers(by)) {
      if (length < 1 || length > all.end() - at)
        throw std::runtime_error(by.string() + ": a document of " + std::to_string(length) + " tokens, of " +
                                 std::to_string(all.end() - at) + " that " + file.string() + " has left");
      documents.emplace_back(at, at + length);
      at += length;
    }
    if (at != all.end())
      throw std::runtime_error(by.string() + ": leaves out the last " + std::to_string(all.end() - at) +
                               " tokens of " + file.string());
    return documents;
  }
  while (at != all.end()) {
    const auto last = std::find(at, all.end(), end);
    if (last == all.end()) throw std::runtime_error(file.string() + ": the last document has no end");
    documents.emplace_back(at, last + 1);
    at = last + 1;
  }
  return documents;
}

void write_given(const fs::path& file, const std::vector<std::int32_t>& given) {
  fs::remove(file);
  if (!given.empty()) write_integers(file, given);
}

std::vector<std::int32_t> read_given(const fs::path& file, const std::vector<Document>& documents) {
  auto given = read_integers(file);
  if (given.empty()) return given;
  if (given.size() != documents.size()) {
    throw std::runtime_error(file.string() + ": " + std::to_string(given.size()) + " lengths for " +
                             std::to_string(documents.size()) + " documents");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0 || static_cast<std::size_t>(given[i]) > documents[i].size()) {
      throw std::runtime_error(file.string() + ": " + std::to_string(given[i]) + " given tokens of " +
                               std::to_string(documents[i].size()));
    }
  }
  return given;
}

}  // namespace

void mark_given(TokenizedStyle& style) {
  for (std::size_t i = 0; i < style.given.size(); ++i) {
    const auto end = style.train[i].begin() + style.given[i];
    std::transform(style.train[i].begin(), end, style.train[i].begin(),
                   [](Token t) { return mark_given(t); });
  }
}

std::size_t count_tokens(const std::vector<Document>& documents) {
  std::size_t count = 0;
  for (const auto& document : documents) count += document.size();
  return count;
}

void copy_tokenizer(const fs::path& folder_or_file, const fs::path& directory) {
  auto from = folder_or_file;
  if (fs::is_directory(from)) {
    from /= fs::exists(from / "tokenizer.model") ? "tokenizer.model" : "tokenizer.json";
  }
  if (begins_as_gguf(from))
    throw std::runtime_error(
        from.string() +
        ": is a GGUF file, which no tokenizer is copied from: specula convert makes a folder of it");
  if (!fs::is_regular_file(from)) throw std::runtime_error(from.string() + ": no such file");
  fs::create_directories(directory);
  const auto copy = [&](const fs::path& file, const char* name) {
    if (file.lexically_normal() == (directory / name).lexically_normal()) return;
    fs::copy_file(file, directory / name, fs::copy_options::overwrite_existing);
    fs::permissions(directory / name, fs::perms::owner_write, fs::perm_options::add);  // to be replaced
  };
  copy(from, from.filename() == "tokenizer.json" ? "tokenizer.json" : "tokenizer.model");
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    if (fs::exists(from.parent_path() / name)) copy(from.parent_path() / name, name);
  }
}

void write_tokens(const TokenizedCorpus& corpus, const fs::path& directory) {
  fs::create_directories(directory);
  nlohmann::ordered_json index{{"vocab_size", corpus.vocab_size},
                               {"begin", corpus.begin},
                               {"end", corpus.end},
                               {"vocabulary", corpus.vocabulary},
                               {"styles", nlohmann::ordered_json::array()}};
  StyleInfos infos;
  for (const auto& style : corpus.styles) {
    write_documents(train_file(directory, style.name), style.train);
    write_documents(heldout_file(directory, style.name), style.heldout);
    write_given(given_file(directory, style.name), style.given);
    index["styles"].push_back(style.name);
    infos[style.name] = style.info;
  }
  write_style_infos(infos, directory);
  std::ofstream(directory / "tokens.json") << index.dump(2) << '\n';
}

TokenizedCorpus read_tokens(const fs::path& directory) {
  const auto file = directory / "tokens.json";
  if (!fs::exists(file)) throw std::runtime_error(file.string() + kNoTokens);
  TokenizedCorpus corpus;
  auto infos = read_style_infos(directory);
  const auto json = specula::files::parse_json(read_file(file), file.string());
  const specula::files::JsonFields index(json, file.string());
  corpus.vocab_size = index.integer("vocab_size");
  corpus.vocabulary = index.text("vocabulary", "");
  corpus.begin = index.integer("begin", kBegin);
  corpus.end = index.integer("end", kEnd);
  for (const Token token : {corpus.begin, corpus.end}) {
    if (token >= corpus.vocab_size) {
      throw std::runtime_error(file.string() + ": begin or end is " + std::to_string(token) +
                               ", outside the vocabulary of " + std::to_string(corpus.vocab_size));
    }
  }
  for (const auto& entry : index.array("styles", "names")) {
    if (!entry.is_string()) index.fail("styles", "expected names", entry);
    const auto name = entry.get<std::string>();
    const auto read = [&](const fs::path& tokens) {
      return read_documents(tokens, corpus.vocab_size, corpus.end);
    };
    corpus.styles.push_back({.name = name,
                             .train = read(train_file(directory, name)),
                             .heldout = read(heldout_file(directory, name)),
                             .info = infos[name]});
    corpus.styles.back().given = read_given(given_file(directory, name), corpus.styles.back().train);
  }
  return corpus;
}

}  // namespace specula_tools
