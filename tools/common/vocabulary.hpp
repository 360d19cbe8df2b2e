// SPDX-License-Identifier: MIT
// Whether two vocabularies mean the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace specula_tools {

/// The tokens of a vocabulary as its file spells them, by number; an empty one is no token.
using Pieces = std::span<const std::string>;

/// "token 7 is 'a' in ONE and 'b' in OTHER": the first token that both have but spell differently.
inline std::optional<std::string> vocabulary_difference(Pieces one, const std::string& one_name, Pieces other,
                                                        const std::string& other_name) {
  for (std::size_t t = 0; t < std::min(one.size(), other.size()); ++t)
    if (one[t] != other[t] && !one[t].empty() && !other[t].empty())
      return "token " + std::to_string(t) + " is '" + one[t] + "' in " + one_name + " and '" + other[t] +
             "' in " + other_name;
  return {};
}

/// What files store of the vocabulary that their numbers are of: 16 digits, FNV-1a over all pieces.
inline std::string fingerprint(Pieces pieces) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const std::string& piece : pieces) {
    for (const char byte : piece) add(static_cast<unsigned char>(byte));
    add(0);
  }
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) out[i] = "0123456789abcdef"[hash & 15];
  return out;
}

/// Whether a file of tokens' numbers with this fingerprint may be of the vocabulary `pieces`: it is, or one
/// of the two is unknown, that is empty.
inline bool may_be_of(const std::string& stored, Pieces pieces) {
  return stored.empty() || pieces.empty() || stored == fingerprint(pieces);
}

}  // namespace specula_tools
