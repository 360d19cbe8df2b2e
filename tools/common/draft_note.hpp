// SPDX-License-Identifier: MIT
// The line that says in how many texts of a program a draft failed.
#pragma once

#include <cstddef>
#include <string>

namespace specula_tools {

/// Counts texts. What ended drafting in the first of those of which a draft failed is told with their number.
class DraftNote {
 public:
  /// Adds a text. `draft_error`: what ended drafting in it; empty if nothing did.
  void add(const std::string& draft_error) {
    ++texts_;
    if (draft_error.empty()) return;
    ++failed_;
    if (why_.empty()) why_ = draft_error;
  }
  /// With its line break; empty if no draft failed.
  std::string line() const {
    if (failed_ == 0) return {};
    return "note: drafting ended in " + std::to_string(failed_) + " of " + std::to_string(texts_) +
           (texts_ == 1 ? " text: " : " texts: ") + why_ + '\n';
  }

 private:
  std::size_t texts_ = 0, failed_ = 0;
  std::string why_;
};

}  // namespace specula_tools
