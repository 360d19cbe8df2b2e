// SPDX-License-Identifier: MIT
// The text corpus: a folder with two JSON Lines files per style, and a description of the styles.
//
// DIR/NAME.train.jsonl    a document a line: {"text": "..."}, UTF-8; other keys are left
// DIR/NAME.heldout.jsonl  the same, never trained on
// DIR/styles.json         see style_info.hpp; may be missing
//
// Any program may write such a folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokens.hpp"

namespace specula_train {

/// One style of text (say, `gsm8k`), split into a training and a held-out part.
struct Style {
  std::string name;
  std::vector<std::string> train;
  std::vector<std::string> heldout;
  StyleInfo info = {};
};

/// Which files of a folder are text, and which key of a JSON Lines file.
struct TextOptions {
  std::vector<std::string> endings = {".txt", ".md",  ".rst", ".tex", ".py", ".c",  ".h",  ".cc",
                                      ".cpp", ".hpp", ".js",  ".ts",  ".go", ".rs", ".rb", ".java"};
  std::string key = "text";
};

/// The documents of any text, in the order of paths or lines:
/// - of a folder every file below it that has one of the endings, one document each; folders and files whose
///   names begin with a dot are left;
/// - of FILE.jsonl the string under `key` of every line;
/// - of any other file what begins after <|endoftext|> at the beginning of a line, or where there is none,
///   pieces of whole lines of 8,000 bytes and the rest of a line.
/// Blank documents and those that are not UTF-8 are left out. Throws std::runtime_error naming the file or
/// folder if there is no document, std::invalid_argument if it does not exist.
std::vector<std::string> read_text(const std::filesystem::path& folder_or_file, const TextOptions& options);

/// Removes GSM8K's calculator annotations: "3*4=<<3*4=12>>12" becomes "3*4=12".
std::string strip_calculator_annotations(std::string_view text);

/// The documents of a GSM8K file: "Question: ...\nAnswer: ...".
/// Throws std::runtime_error with file and line for a line that is not {"question", "answer"}.
std::vector<std::string> read_gsm8k(const std::filesystem::path& file);

/// Every Python source under `directory`, in path order, without tests and without tables of data.
std::vector<std::string> read_python(const std::filesystem::path& directory);

/// Holds out every `every`-th document, and the last one if there are fewer: deterministic, so that all
/// models are evaluated on the same text. Throws std::invalid_argument for fewer than two documents or
/// `every` below 2.
Style split_style(std::string name, std::vector<std::string> documents, std::size_t every = 50);

/// Writes NAME.train.jsonl and NAME.heldout.jsonl, and puts what is known about the style into styles.json. A
/// style of the same name is replaced, others in the folder stay.
void write_style(const Style& style, const std::filesystem::path& directory);

/// Reads every style in `directory`, in name order.
/// Throws std::runtime_error if there is none.
std::vector<Style> read_corpus(const std::filesystem::path& directory);

}  // namespace specula_train
