// SPDX-License-Identifier: MIT
// Lets bytes through as soon as they are whole characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace specula_tools {

/// Tokens may end in the middle of a UTF-8 sequence. What push() returns is always whole characters; the rest
/// waits for the tokens to come. Bytes that can belong to no character become U+FFFD.
class Utf8Gate {
 public:
  std::string push(std::string_view bytes) {
    waiting_ += bytes;
    std::string out;
    std::size_t at = 0;
    while (at < waiting_.size()) {
      const Sequence next = scan(std::string_view(waiting_).substr(at));
      if (next.length == 0) break;
      next.valid ? out.append(waiting_, at, next.length) : out.append(kReplacement);
      at += next.length;
    }
    waiting_.erase(0, at);
    return out;
  }

  /// What can no longer be completed, as U+FFFD; the gate is empty afterwards.
  std::string flush() {
    const bool broken = !waiting_.empty();
    waiting_.clear();
    return broken ? std::string(kReplacement) : std::string();
  }

 private:
  static constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  struct Sequence {
    std::size_t length;  // 0: incomplete, more bytes are needed
    bool valid;
  };

  /// The first character of `bytes`, by the table of well-formed sequences of the Unicode standard (3.9,
  /// D92).
  static Sequence scan(std::string_view bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {1, true};
    const std::size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0) return {1, false};
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;   // shorter forms exist
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;  // surrogates; beyond U+10FFFF
    for (std::size_t i = 1; i < std::min(length, bytes.size()); ++i)
      if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {i, false};
    return bytes.size() < length ? Sequence{0, false} : Sequence{length, true};
  }

  std::string waiting_;
};

}  // namespace specula_tools
