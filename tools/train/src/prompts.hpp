// SPDX-License-Identifier: MIT
// Prompts for a target to continue, cut from any text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tokens.hpp"

namespace specula_train {

/// Sizes in tokens.
struct PromptSizes {
  std::size_t shortest = 32, longest = 320;
  std::size_t continuation = 160;  // tokens for the target to generate
  bool whole = false;              // a piece may be all that is left of its document

  /// Throws std::invalid_argument unless 1 <= shortest <= longest and continuation >= 1.
  void check() const;
};

/// The question of a document that is "Question: ...\nAnswer: ...", with "\nAnswer:".
std::optional<std::string> question_of(std::string_view document);

/// The prompt with random digits in place of its digits: a question of the same kind, which need not make
/// sense. This gives more of the target's text than there are questions.
std::string with_other_numbers(std::string prompt, std::mt19937_64& random);

/// Tokens [begin, end) of a document.
struct Piece {
  std::size_t begin = 0, end = 0;
};

/// Pieces of a document of `size` tokens that are prompts: the first from its beginning, each further one
/// from the line that starts after the piece before it and its continuation, or where no line starts within
/// sizes.longest tokens, right there. Lengths are drawn between the shortest and the longest, but a piece is
/// at most half of what is left of the document, so that there was something to go on with, unless it may be
/// `whole`. `line_starts`:
/// for each token, whether a line begins with it. With `begins_anywhere` the first piece begins somewhere in
/// the first half, and the first sizes.longest tokens: other prompts from the same document.
std::vector<Piece> cut_prompts(const std::vector<bool>& line_starts, const PromptSizes& sizes,
                               bool begins_anywhere, std::mt19937_64& random);

}  // namespace specula_train
