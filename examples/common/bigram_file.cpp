#include "bigram_file.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "files.hpp"

namespace specula_examples {
namespace {

std::int64_t integer(const nlohmann::json& value, const char* what) {
  if (!value.is_number_integer()) throw std::runtime_error(std::string(what).append(" is no integer"));
  return value.get<std::int64_t>();
}

specula::BigramTable table_of(const nlohmann::json& object) {
  if (!object.is_object() || !object.contains("vocab_size") || !object.contains("next"))
    throw std::runtime_error("must be an object with vocab_size and next");
  const auto& list = object.at("next");
  if (!list.is_array()) throw std::runtime_error("next is no array");
  if (const auto vocab = integer(object.at("vocab_size"), "vocab_size");
      vocab != static_cast<std::int64_t>(list.size()))
    throw std::runtime_error("vocab_size is " + std::to_string(vocab) + ", but next has " +
                             std::to_string(list.size()) + " entries");
  std::vector<specula::Token> next;
  for (const auto& entry : list) {
    const auto token = integer(entry, "an entry of next");
    if (!std::in_range<specula::Token>(token))
      throw std::runtime_error("next holds " + std::to_string(token) + ", which is no token");
    next.push_back(static_cast<specula::Token>(token));
  }
  return specula::BigramTable(std::move(next));
}

}  // namespace

specula::BigramTable parse_bigram(std::string_view text, const std::string& source) {
  try {
    return table_of(nlohmann::json::parse(text));
  } catch (const std::exception& error) {
    throw std::runtime_error(source + ": " + error.what());
  }
}

specula::BigramTable load_bigram(const std::filesystem::path& file) {
  return parse_bigram(read_file(file), file.string());
}

void save_bigram(const specula::BigramTable& table, const std::filesystem::path& file) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::string text = "{\"vocab_size\":" + std::to_string(table.vocab_size()) + ",\"next\":[";
  const char* comma = "";
  for (const specula::Token token : table.next())
    text.append(std::exchange(comma, ",")).append(std::to_string(token));
  write_file(file, text + "]}\n");
}

}  // namespace specula_examples
