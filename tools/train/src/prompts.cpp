// SPDX-License-Identifier: MIT
#include "prompts.hpp"

#include <algorithm>
#include <stdexcept>

namespace specula_train {

void PromptSizes::check() const {
  if (shortest < 1 || longest < shortest || continuation < 1) {
    throw std::invalid_argument("prompts of " + std::to_string(shortest) + " to " + std::to_string(longest) +
                                " tokens, " + std::to_string(continuation) +
                                " new ones: expected at least 1 each, and no range that is empty");
  }
}

std::optional<std::string> question_of(std::string_view document) {
  constexpr std::string_view kAnswer = "\nAnswer:";
  const auto at = document.find(kAnswer);
  if (at == document.npos || !document.starts_with("Question:")) return std::nullopt;
  return std::string(document.substr(0, at + kAnswer.size()));
}

std::string with_other_numbers(std::string prompt, std::mt19937_64& random) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (!is_digit(prompt[i])) continue;
    const bool leads = i == 0 || !is_digit(prompt[i - 1]);
    prompt[i] = (leads ? "123456789" : "0123456789")[random() % (leads ? 9 : 10)];
  }
  return prompt;
}

std::vector<Piece> cut_prompts(const std::vector<bool>& line_starts, const PromptSizes& sizes,
                               bool begins_anywhere, std::mt19937_64& random) {
  const auto size = line_starts.size();
  const auto next_start = [&](std::size_t from) {
    for (std::size_t at = from; at < std::min(size, from + sizes.longest); ++at)
      if (line_starts[at]) return at;
    return from;
  };
  std::vector<Piece> pieces;
  for (std::size_t begin = begins_anywhere ? next_start(random() % std::min(sizes.longest, size / 2 + 1)) : 0;
       begin < size;) {
    const auto drawn = sizes.shortest + random() % (sizes.longest - sizes.shortest + 1);
    const auto length = std::min(drawn, (size - begin) / (sizes.whole ? 1 : 2));
    if (length < sizes.shortest) break;
    pieces.push_back({begin, begin + length});
    begin = next_start(begin + length + sizes.continuation);
  }
  return pieces;
}

}  // namespace specula_train
