// SPDX-License-Identifier: MIT
#include "corpus.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include <specula/files/json_fields.hpp>

#include "files.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;
using specula::files::JsonFields;
using specula_tools::read_file;

constexpr std::string_view kTrainSuffix = ".train.jsonl";
constexpr std::string_view kHeldoutSuffix = ".heldout.jsonl";

fs::path train_file(const fs::path& directory, std::string name) {
  return directory / name.append(kTrainSuffix);
}

fs::path heldout_file(const fs::path& directory, std::string name) {
  return directory / name.append(kHeldoutSuffix);
}

/// Calls `use(fields)` for every line of a JSON Lines file.
template <class Use>
void for_each_json_line(const fs::path& file, Use use) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file.string() + ": cannot be opened for reading");
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::string place = file.string() + ":" + std::to_string(number);
    const auto json = specula::files::parse_json(line, place);
    use(JsonFields(json, place));
  }
}

void write_lines(const fs::path& file, const std::vector<std::string>& documents) {
  std::ofstream out(file, std::ios::binary);
  for (const auto& text : documents) out << nlohmann::json{{"text", text}}.dump() << '\n';
  out.flush();
  if (!out) throw std::runtime_error(file.string() + ": cannot be written");
}

std::vector<std::string> read_lines(const fs::path& file) {
  std::vector<std::string> documents;
  for_each_json_line(file, [&](const JsonFields& line) { documents.push_back(line.text("text")); });
  return documents;
}

/// Folders with tests, tables or vendored bytes, which are left out.
bool is_skipped_folder(const std::string& name) {
  static constexpr std::string_view kSkipped[] = {"test",          "tests",         "idle_test",
                                                  "encodings",     "pydoc_data",    "__pycache__",
                                                  "dist-packages", "site-packages", "lib2to3"};
  return std::find(std::begin(kSkipped), std::end(kSkipped), name) != std::end(kSkipped);
}

/// UTF-8, and not blank.
bool is_text(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == text.npos) return false;
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

/// The texts below a folder, in the order of paths: that of directories differs between machines. `skips`
/// decides by the name of a folder or file whether it is left out.
std::vector<std::string> read_folder(const fs::path& directory, const std::vector<std::string>& endings,
                                     bool (*skips)(const std::string& name)) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory); entry != fs::recursive_directory_iterator();
       ++entry) {
    const auto name = entry->path().filename().string();
    const bool skipped = skips(name);
    if (entry->is_directory()) {
      if (skipped) entry.disable_recursion_pending();
    } else if (!skipped && entry->is_regular_file() &&
               std::any_of(endings.begin(), endings.end(),
                           [&](const std::string& ending) { return name.ends_with(ending); })) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const auto& file : files) {
    if (auto text = read_file(file); is_text(text)) texts.push_back(std::move(text));
  }
  return texts;
}

/// A file that holds many documents, or one that is too long to be held out as a whole.
std::vector<std::string> cut_text(std::string_view text) {
  constexpr std::string_view kBorder = "<|endoftext|>", kBorderLine = "\n<|endoftext|>";
  constexpr std::size_t kPiece = 8000;
  const bool has_borders = text.starts_with(kBorder) || text.find(kBorderLine) != text.npos;
  std::vector<std::string> pieces(1);
  while (!text.empty()) {
    const bool is_border = text.starts_with(kBorder);
    if (is_border) text.remove_prefix(kBorder.size());
    if (is_border || (!has_borders && pieces.back().size() >= kPiece)) pieces.emplace_back();
    const auto line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    if (!is_border || line != "\n") pieces.back() += line;
    text.remove_prefix(line.size());
  }
  return pieces;
}

}  // namespace

std::string strip_calculator_annotations(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto open = text.find("<<");
    const auto close = open == text.npos ? text.npos : text.find(">>", open);
    if (close == text.npos) break;
    out.append(text.substr(0, open));
    text.remove_prefix(close + 2);
  }
  return out.append(text);
}

std::vector<std::string> read_gsm8k(const fs::path& file) {
  std::vector<std::string> documents;
  for_each_json_line(file, [&](const JsonFields& line) {
    auto text = std::string("Question: ").append(line.text("question"));
    text.append("\nAnswer: ").append(strip_calculator_annotations(line.text("answer")));
    documents.push_back(std::move(text));
  });
  if (documents.empty()) throw std::runtime_error(file.string() + ": holds no question");
  return documents;
}

std::vector<std::string> read_python(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    throw std::invalid_argument(directory.string() + ": expected a folder of Python sources");
  }
  std::vector<std::string> documents;
  for (auto& text : read_folder(directory, {".py"}, is_skipped_folder)) {
    if (text.size() >= 100) documents.push_back(std::move(text));  // empty packages have no text
  }
  if (documents.empty()) throw std::runtime_error(directory.string() + ": holds no Python source");
  return documents;
}

std::vector<std::string> read_text(const fs::path& folder_or_file, const TextOptions& options) {
  std::vector<std::string> documents;
  const auto add = [&](std::string text) {
    if (is_text(text)) documents.push_back(std::move(text));
  };
  std::string wanted = "text";
  if (fs::is_directory(folder_or_file)) {
    wanted = "text in files that end in";
    for (const auto& ending : options.endings) wanted += " " + ending;
    const auto is_hidden = [](const std::string& name) { return name.starts_with('.'); };
    documents = read_folder(folder_or_file, options.endings, is_hidden);
  } else if (!fs::exists(folder_or_file)) {
    throw std::invalid_argument(folder_or_file.string() + ": no such file or folder");
  } else if (folder_or_file.extension() == ".jsonl") {
    for_each_json_line(folder_or_file, [&](const JsonFields& line) { add(line.text(options.key)); });
  } else {
    for (auto& text : cut_text(read_file(folder_or_file))) add(std::move(text));
  }
  if (documents.empty()) throw std::runtime_error(folder_or_file.string() + ": holds no " + wanted);
  return documents;
}

Style split_style(std::string name, std::vector<std::string> documents, std::size_t every) {
  if (every < 2) throw std::invalid_argument("style " + name + ": holding out every document leaves none");
  if (documents.size() < 2) {
    throw std::invalid_argument("style " + name + ": " + std::to_string(documents.size()) +
                                " documents, expected at least 2: one of them is held out");
  }
  Style style{.name = std::move(name), .train = {}, .heldout = {}, .info = {}};
  const auto at = std::min(every, documents.size());
  style.info.heldout_every = at;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    auto& part = i % at == at - 1 ? style.heldout : style.train;
    part.push_back(std::move(documents[i]));
  }
  return style;
}

void write_style(const Style& style, const fs::path& directory) {
  fs::create_directories(directory);
  write_lines(train_file(directory, style.name), style.train);
  write_lines(heldout_file(directory, style.name), style.heldout);
  auto infos = read_style_infos(directory);
  infos[style.name] = style.info;
  write_style_infos(infos, directory);
}

std::vector<Style> read_corpus(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    throw std::invalid_argument(directory.string() + ": expected the folder written by `corpus`");
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const auto name = entry.path().filename().string();
    if (name.ends_with(kTrainSuffix)) names.push_back(name.substr(0, name.size() - kTrainSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    throw std::runtime_error(directory.string() +
                             ": holds no NAME.train.jsonl; run `specula-train-text corpus`");
  }
  std::vector<Style> styles;
  auto infos = read_style_infos(directory);
  for (const auto& name : names) {
    styles.push_back({.name = name,
                      .train = read_lines(train_file(directory, name)),
                      .heldout = read_lines(heldout_file(directory, name)),
                      .info = infos[name]});
  }
  return styles;
}

}  // namespace specula_train
