#include "corpus.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace specula_train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrainSuffix = ".train.jsonl";
constexpr std::string_view kHeldoutSuffix = ".heldout.jsonl";

fs::path train_file(const fs::path& directory, std::string name) {
  return directory / name.append(kTrainSuffix);
}

fs::path heldout_file(const fs::path& directory, std::string name) {
  return directory / name.append(kHeldoutSuffix);
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file.string() + ": cannot be opened for reading");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Calls `use(object)` for every line of a JSON Lines file.
template <class Use>
void for_each_json_line(const fs::path& file, Use use) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file.string() + ": cannot be opened for reading");
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    try {
      use(nlohmann::json::parse(line));
    } catch (const nlohmann::json::exception& error) {
      throw std::runtime_error(file.string() + ":" + std::to_string(number) + ": " + error.what());
    }
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
  for_each_json_line(
      file, [&](const nlohmann::json& line) { documents.push_back(line.at("text").get<std::string>()); });
  return documents;
}

/// Folders that hold tests, tables or vendored bytes instead of code worth imitating.
bool is_skipped_folder(const std::string& name) {
  static constexpr std::string_view kSkipped[] = {"test",          "tests",         "idle_test",
                                                  "encodings",     "pydoc_data",    "__pycache__",
                                                  "dist-packages", "site-packages", "lib2to3"};
  return std::find(std::begin(kSkipped), std::end(kSkipped), name) != std::end(kSkipped);
}

bool is_utf8_json_safe(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
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
  for_each_json_line(file, [&](const nlohmann::json& line) {
    auto text = std::string("Question: ").append(line.at("question").get<std::string>());
    text.append("\nAnswer: ").append(strip_calculator_annotations(line.at("answer").get<std::string>()));
    documents.push_back(std::move(text));
  });
  if (documents.empty()) throw std::runtime_error(file.string() + ": holds no question");
  return documents;
}

std::vector<std::string> read_python(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    throw std::invalid_argument(directory.string() + ": expected a folder of Python sources");
  }
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory); entry != fs::recursive_directory_iterator();
       ++entry) {
    if (entry->is_directory()) {
      if (is_skipped_folder(entry->path().filename().string())) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && entry->path().extension() == ".py") {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());  // directory order differs between machines

  std::vector<std::string> documents;
  for (const auto& file : files) {
    auto text = read_file(file);
    // A few old sources are Latin-1. Empty packages teach nothing.
    if (text.size() >= 100 && is_utf8_json_safe(text)) documents.push_back(std::move(text));
  }
  if (documents.empty()) throw std::runtime_error(directory.string() + ": holds no Python source");
  return documents;
}

Style split_style(std::string name, std::vector<std::string> documents, std::size_t every) {
  Style style{.name = std::move(name), .train = {}, .heldout = {}};
  for (std::size_t i = 0; i < documents.size(); ++i) {
    auto& part = i % every == every - 1 ? style.heldout : style.train;
    part.push_back(std::move(documents[i]));
  }
  return style;
}

void write_style(const Style& style, const fs::path& directory) {
  fs::create_directories(directory);
  write_lines(train_file(directory, style.name), style.train);
  write_lines(heldout_file(directory, style.name), style.heldout);
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
    throw std::runtime_error(directory.string() + ": holds no NAME.train.jsonl; run `specula-train corpus`");
  }
  std::vector<Style> styles;
  for (const auto& name : names) {
    styles.push_back({.name = name,
                      .train = read_lines(train_file(directory, name)),
                      .heldout = read_lines(heldout_file(directory, name))});
  }
  return styles;
}

}  // namespace specula_train
