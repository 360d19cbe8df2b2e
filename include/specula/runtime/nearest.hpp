// SPDX-License-Identifier: MIT
// Levenshtein distance: suggests names for a misspelt one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Minimum number of insertions, deletions and replacements of a byte that turn `b` into `a`. O(a * b) time.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // from the first i bytes of a to the first j of b
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

/// At most `most` of `names`, those nearest to the word `asked` first; of equal distance in their own order.
/// Names that begin with the word, or contain it, come before the others. The word's capitals count as small
/// letters.
inline std::vector<std::string> nearest(std::string_view asked, const std::vector<std::string>& names,
                                        std::size_t most) {
  std::string word(asked.substr(0, 64));  // longer words are near no name
  for (char& c : word)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  std::vector<std::pair<std::size_t, std::size_t>> ranked;  // distance, index
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool part = word.size() > 2 && names[i].find(word) != std::string::npos;
    ranked.emplace_back(part ? 0 : edit_distance(word, names[i]), i);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), most));
  std::vector<std::string> out;
  for (const auto& [distance, i] : ranked) out.push_back(names[i]);
  return out;
}

}  // namespace specula
