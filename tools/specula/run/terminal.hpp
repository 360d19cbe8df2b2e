// SPDX-License-Identifier: MIT
// Colours, where they are wanted.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "errors.hpp"

namespace specula_tools {

/// Whether `descriptor` is a terminal that understands escape codes.
inline bool takes_escapes(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) && !(term && std::string_view(term) == "dumb");
}

/// `when` is always, never or auto: on a terminal, unless $NO_COLOR is set or $TERM is dumb. Throws
/// UsageError otherwise.
inline bool wants_color(std::string_view when, int descriptor) {
  if (when == "always") return true;
  if (when == "never") return false;
  if (when != "auto") throw UsageError("--color " + std::string(when) + ": expected always, never or auto");
  const char* none = std::getenv("NO_COLOR");
  return takes_escapes(descriptor) && !(none && *none);
}

/// Wraps text in a colour; without colours it is left as it is.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  bool on() const { return on_; }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const {
    if (!on_ || text.empty()) return std::string(text);
    return std::string("\x1b[").append(code).append("m").append(text).append("\x1b[0m");
  }
  bool on_;
};

}  // namespace specula_tools
