// SPDX-License-Identifier: MIT
// How far a long run has come, on stderr.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>

namespace specula_tools {

/// A bar with the time left on a terminal, a line now and then elsewhere.
class ProgressBar {
 public:
  void operator()(std::size_t done, std::size_t total) {
    const auto now = Clock::now();
    const bool last = done == total;
    if (!last && std::chrono::duration<double>(now - shown_).count() < (terminal_ ? 0.2 : 15.0)) return;
    shown_ = now;
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const double left = elapsed / static_cast<double>(done ? done : 1) * static_cast<double>(total - done);
    const auto percent = static_cast<int>(100 * done / total);
    if (terminal_) {
      constexpr std::size_t kWidth = 30;
      const std::size_t full = kWidth * done / total;
      std::fprintf(stderr, "\r[%s%s] %3d%%  %s left \x1b[K", std::string(full, '#').c_str(),
                   std::string(kWidth - full, '.').c_str(), percent, clock(left).c_str());
      if (last) std::fprintf(stderr, "\r\x1b[K");
    } else {
      std::fprintf(stderr, "%3d%%  %zu of %zu runs, %s left\n", percent, done, total, clock(left).c_str());
    }
    std::fflush(stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static std::string clock(double seconds) {
    const auto s = static_cast<long>(seconds + 0.5);
    char text[32];
    s < 3600 ? std::snprintf(text, sizeof text, "%ld:%02ld", s / 60, s % 60)
             : std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return text;
  }

  bool terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

/// DecodeSettings::prefill for a terminal: a bar while a prompt is read in several parts.
inline void show_prefill(std::size_t done, std::size_t total) {
  static std::optional<ProgressBar> bar;
  if (!bar && done < total) bar.emplace();
  if (bar) (*bar)(done, total);
  if (done == total) bar.reset();
}

}  // namespace specula_tools
