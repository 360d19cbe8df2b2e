// SPDX-License-Identifier: MIT
#include "bigram_file.hpp"

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <specula/files/json_fields.hpp>

#include "files.hpp"

namespace specula_tools {
namespace {

using specula::files::Json;
using specula::files::JsonFields;

BigramFile table_of(const JsonFields& file) {
  const std::int32_t vocab = file.integer("vocab_size");
  if (!file.find("next")) file.fail("next", "missing, expected an array of tokens");
  std::vector<specula::Token> next;
  for (const Json& entry : file.array("next", "tokens")) {
    const auto token = specula::files::detail::integer(entry);
    if (!token || !std::in_range<specula::Token>(*token)) file.fail("next", "expected tokens or -1", entry);
    next.push_back(static_cast<specula::Token>(*token));
  }
  if (std::cmp_not_equal(vocab, next.size()))
    throw std::runtime_error(file.source() + ": vocab_size is " + std::to_string(vocab) + ", but next has " +
                             std::to_string(next.size()) + " entries");
  try {
    return {specula::BigramTable(std::move(next)), file.text("vocabulary", "")};
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(file.source() + ": " + error.what());
  }
}

}  // namespace

BigramFile parse_bigram(std::string_view text, const std::string& source) {
  const Json json = specula::files::parse_json(text, source);
  return table_of(JsonFields(json, source));
}

BigramFile load_bigram(const std::filesystem::path& file) {
  return parse_bigram(read_file(file), file.string());
}

void save_bigram(const BigramFile& bigram, const std::filesystem::path& file) {
  const auto& [table, vocabulary] = bigram;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::string text = "{\"vocab_size\":" + std::to_string(table.vocab_size());
  if (!vocabulary.empty()) text.append(",\"vocabulary\":\"").append(vocabulary).append("\"");
  text.append(",\"next\":[");
  const char* comma = "";
  for (const specula::Token token : table.next())
    text.append(std::exchange(comma, ",")).append(std::to_string(token));
  write_file(file, text + "]}\n");
}

}  // namespace specula_tools
