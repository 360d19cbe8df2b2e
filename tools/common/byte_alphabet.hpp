// SPDX-License-Identifier: MIT
// The byte alphabet of GPT-2's tokenizer: how byte-level vocabularies spell bytes as characters.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace specula_tools {
namespace detail {

/// Per byte, the code point that spells it: printable bytes of Latin-1 themselves, the others U+0100 and
/// following, in order.
constexpr std::array<char16_t, 256> byte_alphabet() {
  std::array<char16_t, 256> out{};
  char16_t other = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    out[byte] = printable ? static_cast<char16_t>(byte) : other++;
  }
  return out;
}
inline constexpr auto kByteAlphabet = byte_alphabet();

/// Per code point below 0x144, the byte that it spells, or -1.
constexpr std::array<int, 0x144> bytes_of_alphabet() {
  std::array<int, 0x144> out{};
  for (int& byte : out) byte = -1;
  for (std::size_t byte = 0; byte < 256; ++byte) out[kByteAlphabet[byte]] = static_cast<int>(byte);
  return out;
}
inline constexpr auto kBytesOfAlphabet = bytes_of_alphabet();

}  // namespace detail

/// " a" as "Ġa" (bytes_to_unicode of GPT-2's encoder.py).
inline std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const char16_t point = detail::kByteAlphabet[static_cast<unsigned char>(byte)];
    if (point >= 0x80) out += static_cast<char>(0xC0 | point >> 6);
    out += static_cast<char>(point >= 0x80 ? 0x80 | (point & 0x3F) : point);
  }
  return out;
}

/// The inverse; std::nullopt for a text with other characters than those of the alphabet.
inline std::optional<std::string> spelled_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(text[i]));
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t point = byte(i);
    if (point >= 0x80) {  // all code points of the alphabet have two bytes or one
      if ((point & 0xE0) != 0xC0 || i + 1 == text.size() || (byte(i + 1) & 0xC0) != 0x80) return {};
      point = (point & 0x1F) << 6 | (byte(++i) & 0x3F);
    }
    if (point >= detail::kBytesOfAlphabet.size() || detail::kBytesOfAlphabet[point] < 0) return {};
    out += static_cast<char>(detail::kBytesOfAlphabet[point]);
  }
  return out;
}

}  // namespace specula_tools
