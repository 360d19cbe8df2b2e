#include "prompts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "errors.hpp"
#include "files.hpp"

namespace specula_examples {
namespace {

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

Prompt from_json(const nlohmann::json& object) {
  const auto text = [&](const char* key) { return object.at(key).get<std::string>(); };
  if (object.contains("prompt")) return {text("prompt"), Style::raw};
  if (object.contains("question")) return {text("question"), Style::question};
  if (object.contains("turns")) return {object.at("turns").at(0).get<std::string>(), Style::question};
  throw std::runtime_error("has none of the fields prompt, question, turns");
}

std::vector<Prompt> parse_json_lines(const std::vector<std::string>& lines, const std::string& source) {
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    try {
      prompts.push_back(from_json(nlohmann::json::parse(lines[i])));
    } catch (const std::exception& error) {
      throw std::runtime_error(source + ":" + std::to_string(i + 1) + ": " + error.what());
    }
  }
  return prompts;
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
  const auto first = text.find_first_not_of(kBlank);
  const bool json = first != std::string_view::npos && text[first] == '{';
  const auto lines = split_lines(text);
  auto prompts = json ? parse_json_lines(lines, source) : parse_plain(lines);
  if (prompts.empty()) throw std::runtime_error(source + ": holds no prompt");
  return prompts;
}

std::vector<Prompt> load_prompts(const std::filesystem::path& file) {
  return parse_prompts(read_file(file), file.string());
}

std::vector<std::string> put_prompts(const std::vector<std::string>& files, std::size_t limit, Style style) {
  std::vector<std::string> texts;
  for (const auto& file : files) {
    std::size_t taken = 0;
    for (const Prompt& prompt : load_prompts(file)) {
      if (limit && taken++ == limit) break;
      texts.push_back(prompt.put(style));
    }
  }
  return texts;
}

}  // namespace specula_examples
