// SPDX-License-Identifier: MIT
// Stop strings: ends a text that comes in pieces before the first of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace specula_tools {

/// Bytes go through until one of the stop strings is complete; the text before it goes out, nothing after it.
/// What could be the beginning of a stop string waits. However the text is cut into pieces, the same goes
/// through: the first stop string to end wins, of those that end together the longest.
class StopStrings {
 public:
  StopStrings() = default;
  /// Empty strings count for nothing.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase(stops_, std::string());
    std::sort(stops_.begin(), stops_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }

  bool stopped() const { return stopped_; }

  /// The bytes that may go out now.
  std::string push(std::string_view bytes) {
    std::string out;
    for (const char byte : bytes) {
      if (stopped_) break;
      waiting_ += byte;
      for (const std::string& stop : stops_)
        if (waiting_.ends_with(stop)) {
          waiting_.resize(waiting_.size() - stop.size());
          stopped_ = true;
          break;
        }
      const std::size_t free = stopped_ ? waiting_.size() : waiting_.size() - held();
      out.append(waiting_, 0, free);
      waiting_.erase(0, free);
    }
    return out;
  }

  /// What waits for a stop string that never came: the text has ended otherwise.
  std::string flush() { return std::exchange(waiting_, {}); }

 private:
  /// Length of the longest end of what waits that begins a stop string.
  std::size_t held() const {
    std::size_t longest = 0;
    for (const std::string& stop : stops_)
      for (std::size_t n = std::min(stop.size() - 1, waiting_.size()); n > longest; --n)
        if (std::string_view(waiting_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
    return longest;
  }

  std::vector<std::string> stops_;  // longest first
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace specula_tools
