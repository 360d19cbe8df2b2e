// SPDX-License-Identifier: MIT
// Pre-tokenizers of tokenizer.json: how a text is cut into words, across whose ends no tokens merge.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/files/json_fields.hpp>

namespace specula_tools {

/// A text and where its words end, ascending; the last one with the text.
struct Words {
  std::string text;
  std::vector<std::size_t> ends;

  /// Calls `use` with each word, in order.
  template <class Use>
  void for_each(Use use) const {
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      use(std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
  }
};

/// Any number of steps. Without any, a text is one word.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// Of the types Sequence, Split, Digits, ByteLevel (not before another) and Metaspace. Throws
  /// std::runtime_error naming file and type for another.
  explicit PreTokenizer(const specula::files::JsonFields& part) { add(part); }

  /// The words of a part of a text, which must be UTF-8; `first`: the text begins with it. O(n) a step,
  /// unless an expression backtracks.
  Words operator()(std::string text, bool first) const;

  /// Whether words are to be taken as bytes, and the vocabulary spells bytes: ByteLevel.
  bool byte_level() const { return byte_level_; }
  /// Whether spaces are written as U+2581: Metaspace.
  bool marks_spaces() const { return marks_spaces_; }

 private:
  void add(const specula::files::JsonFields& part);
  std::vector<std::function<void(Words& words, bool first)>> steps_;
  bool byte_level_ = false, marks_spaces_ = false;
};

}  // namespace specula_tools
