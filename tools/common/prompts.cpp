// SPDX-License-Identifier: MIT
#include "prompts.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include <specula/files/json_fields.hpp>
#include <specula/files/lfs_pointer.hpp>

#include "errors.hpp"
#include "files.hpp"

namespace specula_tools {
namespace {

using specula::files::Json;
using specula::files::JsonFields;

constexpr std::string_view kBlank = " \t\r\n\f\v";

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_blank(const std::string& line) { return line.find_first_not_of(kBlank) == std::string::npos; }

Prompt from_json(const JsonFields& object) {
  const std::string category = object.text("category", "");
  if (object.find("prompt")) return {object.text("prompt"), Style::raw, category};
  if (object.find("question")) return {object.text("question"), Style::question, category};
  if (object.find("turns")) {
    const Json& turns = object.array("turns", "strings");
    if (turns.empty() ||
        !std::all_of(turns.begin(), turns.end(), [](const Json& turn) { return turn.is_string(); }))
      object.fail("turns", "expected strings, at least one", turns);
    Prompt prompt{turns[0].get<std::string>(), Style::question, category};
    for (std::size_t i = 1; i < turns.size(); ++i) prompt.later.push_back(turns[i].get<std::string>());
    return prompt;
  }
  throw std::runtime_error(object.source() + ": has none of the fields prompt, question, turns");
}

std::vector<Prompt> parse_json_lines(const std::vector<std::string>& lines, const std::string& source) {
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    const std::string place = source + ":" + std::to_string(i + 1);
    const Json line = specula::files::parse_json(lines[i], place);
    prompts.push_back(from_json(JsonFields(line, place)));
  }
  return prompts;
}

/// Throws std::runtime_error for what was hardly meant as plain text: its lines would be the prompts.
void check_plain(std::string_view text, const std::vector<std::string>& lines, const std::string& source) {
  constexpr const char* kRemedy =
      ", which is not read as plain text: write JSON Lines, an object {\"prompt\": ...} on each line and "
      "nothing else";
  std::string_view begin = text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
  if (begin.starts_with('[')) {
    begin.remove_prefix(1);
    begin.remove_prefix(std::min(begin.find_first_not_of(kBlank), begin.size()));
    if (begin.starts_with('{') || begin.starts_with('"') || begin.starts_with('[') || Json::accept(text))
      throw std::runtime_error(source + ": is a JSON array" + kRemedy);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto first = lines[i].find_first_not_of(kBlank);
    if (first == std::string::npos || lines[i][first] != '{') continue;
    std::string_view object = std::string_view(lines[i]).substr(first);
    object = object.substr(0, object.find_last_not_of(" \t,") + 1);
    if (object.size() > 2 && Json::accept(object))
      throw std::runtime_error(source + ":" + std::to_string(i + 1) + ": is a JSON object" + kRemedy);
  }
}

std::vector<Prompt> parse_plain(const std::vector<std::string>& lines) {
  bool rules = false, gaps = false, text_seen = false, gap_open = false;
  for (const std::string& line : lines) {
    rules = rules || line == "---";
    gaps = gaps || (gap_open && !is_blank(line));
    gap_open = is_blank(line) && text_seen;
    text_seen = text_seen || !is_blank(line);
  }
  std::vector<Prompt> prompts;
  std::string block;
  const auto finish = [&] {
    if (!is_blank(block)) prompts.push_back({block.substr(0, block.find_last_not_of('\n') + 1), Style::raw});
    block.clear();
  };
  for (const std::string& line : lines) {
    const bool ends = rules ? line == "---" : gaps ? is_blank(line) : false;
    if (!ends) block.append(line).append("\n");
    if (ends || (!rules && !gaps)) finish();
  }
  finish();
  return prompts;
}

/// folder/name, without the name's ending.
std::string category_of(const std::filesystem::path& file) {
  return (file.parent_path().filename() / file.stem()).generic_string();
}

}  // namespace

Style parse_style(std::string_view name) {
  if (name == "auto") return Style::automatic;
  if (name == "question") return Style::question;
  if (name == "code") return Style::code;
  if (name == "raw") return Style::raw;
  throw UsageError("--style " + std::string(name) + ": expected auto, question, code or raw");
}

std::string Prompt::put(Style style) const {
  const std::string_view stripped = std::string_view(text).substr(0, text.find_last_not_of(kBlank) + 1);
  switch (style == Style::automatic ? kind : style) {
    case Style::question:
      return "Question: " + std::string(stripped) + "\nAnswer:";
    case Style::code:
      return std::string(stripped) + "\n";
    default:
      return text;
  }
}

std::vector<Prompt> parse_prompts(std::string_view text, const std::string& source) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of UTF-8, as some editors write it
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") || text.find('\0') != text.npos)
    throw std::runtime_error(source +
                             ": is in UTF-16, or is no text; expected UTF-8 (iconv -f UTF-16 -t UTF-8)");
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  if (specula::is_lfs_pointer(text)) throw std::runtime_error(source + ": " + specula::kLfsPointer);
  const auto first = text.find_first_not_of(kBlank);
  const bool json = first != std::string_view::npos && text[first] == '{';
  const auto lines = split_lines(text);
  if (!json) check_plain(text, lines, source);
  auto prompts = json ? parse_json_lines(lines, source) : parse_plain(lines);
  if (prompts.empty()) throw std::runtime_error(source + ": holds no prompt");
  for (Prompt& prompt : prompts)
    if (prompt.category.empty()) prompt.category = category_of(source);
  return prompts;
}

std::vector<Prompt> load_prompts(const std::filesystem::path& file) {
  return parse_prompts(read_file(file), file.string());
}

PromptSplit split_prompts(const std::vector<std::string>& files, const SplitSizes& sizes) {
  PromptSplit split;
  std::set<std::string> known;  // texts to develop on
  struct Group {
    std::string name;
    std::size_t seen = 0;
    std::vector<Prompt> rest;  // behind `skip` and `dev`
  };
  std::vector<Group> groups;
  std::set<std::string> missing(sizes.categories.begin(), sizes.categories.end());
  for (const auto& file : files) {
    std::map<std::string, std::size_t> places;
    for (Prompt& prompt : load_prompts(file)) {
      missing.erase(prompt.category);
      if (!sizes.categories.empty() && std::find(sizes.categories.begin(), sizes.categories.end(),
                                                 prompt.category) == sizes.categories.end())
        continue;
      const std::string name = sizes.by_category ? prompt.category : "";
      const auto [place, fresh] = places.try_emplace(name, groups.size());
      if (fresh) groups.push_back({.name = file + (name.empty() ? "" : ", category " + name), .rest = {}});
      Group& group = groups[place->second];
      const std::size_t number = group.seen++;
      if (number < sizes.skip) continue;
      if (number < sizes.skip + sizes.dev) {
        known.insert(prompt.text);
        split.dev.push_back(std::move(prompt));
      } else {
        group.rest.push_back(std::move(prompt));
      }
    }
  }
  if (!missing.empty()) throw UsageError("no prompt is of the category '" + *missing.begin() + "'");
  for (Group& group : groups) {
    std::size_t taken = 0;
    for (Prompt& prompt : group.rest) {
      if (sizes.limit && taken == sizes.limit) break;
      if (known.contains(prompt.text)) continue;
      split.test.push_back(std::move(prompt));
      ++taken;
    }
    if (taken == 0)
      throw UsageError(group.name + ": of " + std::to_string(group.seen) +
                       (group.seen == 1 ? " prompt" : " prompts") + ", --skip " + std::to_string(sizes.skip) +
                       " and --dev " + std::to_string(sizes.dev) + " leave no prompt to report on");
  }
  return split;
}

}  // namespace specula_tools
