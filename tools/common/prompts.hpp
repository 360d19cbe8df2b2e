// SPDX-License-Identifier: MIT
// Files of prompts, and how a prompt is put to the model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace specula_tools {

/// `question`: "Question: ...\nAnswer:", which the models saw in training. `code`: as it is, ended by one
/// line break. `raw`: as it is. `automatic`: by the field it came from, see load_prompts().
enum class Style { automatic, question, code, raw };

/// Throws UsageError unless `name` is auto, question, code or raw.
Style parse_style(std::string_view name);

struct Prompt {
  std::string text;                     // as it stands in the file
  Style kind = Style::raw;              // what `automatic` means for it
  std::string category = {};            // the field `category`, else the file: folder/name without its ending
  std::vector<std::string> later = {};  // further turns, which only chats ask
  std::string put(Style) const;         // as the model gets it
};

/// Two kinds of files in UTF-8, with or without a byte order mark:
/// - JSON Lines, where the first character that is not white space is `{`: every line is an object whose
/// prompt is the
///   field `prompt` (raw, as HumanEval's are), `question`, or the first of `turns` (both are questions; the
///   further turns of MT-bench and Spec-Bench are asked in chats only), in this order. `category`, if it is
///   there, is text. Null counts as absent;
/// - plain text. If some line is `---`, prompts are what stands between such lines; otherwise, if blank lines
/// stand
///   between lines of text, they separate prompts; otherwise every line is a prompt. All of them are raw.
/// Throws std::runtime_error naming file, line and field if it cannot be read or holds no prompt; for UTF-16;
/// and for what looks like JSON but would be plain text: a JSON array, or an object on a line of its own.
std::vector<Prompt> load_prompts(const std::filesystem::path& file);

/// The same for text in memory; `source` is what errors call it.
std::vector<Prompt> parse_prompts(std::string_view text, const std::string& source);

/// Which prompts of each file are for what: first `skip` that are not used, then `dev` for development, that
/// is for choosing between pipelines, then at most `limit` (0: all) to report on. With `by_category` the
/// three are numbers of each category of each file.
struct SplitSizes {
  std::size_t skip = 0, dev = 0, limit = 0;
  bool by_category = false;
  std::vector<std::string> categories = {};  // of these alone; empty: of all
};

struct PromptSplit {
  std::vector<Prompt> dev, test;
};

/// Every file in its own order. A prompt whose text is among the development ones is not reported on,
/// wherever else it stands. Throws UsageError naming a category that no file has, a file, or a category of
/// it, that has no prompts left to report on, and as load_prompts().
PromptSplit split_prompts(const std::vector<std::string>& files, const SplitSizes& sizes);

}  // namespace specula_tools
