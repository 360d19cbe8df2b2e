// The text corpus: one JSON Lines file per style, each line {"text": "..."}.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace specula_train {

/// One style of text (say, `gsm8k`), split into what is trained on and what is held out.
struct Style {
  std::string name;
  std::vector<std::string> train;
  std::vector<std::string> heldout;
};

/// Removes GSM8K's calculator annotations: "3*4=<<3*4=12>>12" becomes "3*4=12".
std::string strip_calculator_annotations(std::string_view text);

/// The documents of a GSM8K file: "Question: ...\nAnswer: ...".
/// Throws std::runtime_error with file and line for a line that is not {"question", "answer"}.
std::vector<std::string> read_gsm8k(const std::filesystem::path& file);

/// Every Python source under `directory`, in path order, without tests and without tables of data.
std::vector<std::string> read_python(const std::filesystem::path& directory);

/// Holds out every `every`-th document. Deterministic, so that all models are judged on the same text.
Style split_style(std::string name, std::vector<std::string> documents, std::size_t every = 50);

/// Writes NAME.train.jsonl and NAME.heldout.jsonl.
void write_style(const Style& style, const std::filesystem::path& directory);

/// Reads every style in `directory`, in name order.
/// Throws std::runtime_error if there is none.
std::vector<Style> read_corpus(const std::filesystem::path& directory);

}  // namespace specula_train
