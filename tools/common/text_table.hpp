// SPDX-License-Identifier: MIT
// Columns that line up.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <specula/base/fields.hpp>

namespace specula_tools {

using specula::detail::fixed;

inline constexpr std::size_t kTableWidth = 100;

/// The first row is the head. The first column is flush left, the others flush right. Cells are ASCII. What
/// does not fit into kTableWidth columns follows as another table with the same first column, below an empty
/// line; each has at least one more column.
inline std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  std::size_t from = 1;
  do {
    std::size_t to = from, width = widths.empty() ? 0 : widths[0];
    while (to < widths.size() && (to == from || width + 2 + widths[to] <= kTableWidth))
      width += 2 + widths[to++];
    if (!text.empty()) text += "\n";
    for (const auto& row : rows) {
      std::string line = row.empty() ? "" : row[0] + std::string(widths[0] - row[0].size(), ' ');
      for (std::size_t c = from; c < std::min(to, row.size()); ++c)
        line += "  " + std::string(widths[c] - row[c].size(), ' ') + row[c];
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    from = to;
  } while (from < widths.size());
  return text;
}

}  // namespace specula_tools
