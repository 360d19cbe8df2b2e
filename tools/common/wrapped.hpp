// SPDX-License-Identifier: MIT
// Help texts in lines that a terminal shows whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace specula_tools {

/// A line in lines of at most `width` bytes, cut at blanks, those after the first with `indent` blanks before
/// them. A longer word is cut in front of a [, or left whole.
inline std::string wrapped_line(std::string line, std::size_t width, std::size_t indent) {
  std::string out;
  while (line.size() > width) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos) break;
    std::size_t cut = line.rfind(' ', width);
    if (cut == line.npos || cut <= std::max(begin, indent)) cut = line.rfind('[', width);
    if (cut == line.npos || cut <= std::max(begin, indent)) cut = line.find(' ', std::max(width, begin));
    if (cut == line.npos) break;
    out.append(line, 0, cut).append("\n");
    const std::size_t next = line.find_first_not_of(' ', cut);
    line = next == line.npos ? std::string() : std::string(indent, ' ').append(line, next);
  }
  return out + line;
}

/// wrapped_line() of each line. What follows a cut begins below the description of an option (column 30, as
/// CLI11 puts it), else below the beginning of its line.
inline std::string wrapped(std::string_view text, std::size_t width) {
  constexpr std::size_t kDescription = 30;
  std::string out;
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    out += wrapped_line(line, width, line.compare(begin, 1, "-") == 0 ? kDescription : begin);
    if (line.size() < text.size()) out += '\n';
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return out;
}

}  // namespace specula_tools
