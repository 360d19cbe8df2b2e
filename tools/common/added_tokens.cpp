// SPDX-License-Identifier: MIT
#include "added_tokens.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "text_pattern.hpp"

namespace specula_tools {
namespace {

constexpr std::array<std::string_view, 25> kWhite{" ",
                                                  "\t",
                                                  "\n",
                                                  "\v",
                                                  "\f",
                                                  "\r",
                                                  "\xc2\x85",
                                                  "\xc2\xa0",
                                                  "\xe1\x9a\x80",
                                                  "\xe2\x80\x80",
                                                  "\xe2\x80\x81",
                                                  "\xe2\x80\x82",
                                                  "\xe2\x80\x83",
                                                  "\xe2\x80\x84",
                                                  "\xe2\x80\x85",
                                                  "\xe2\x80\x86",
                                                  "\xe2\x80\x87",
                                                  "\xe2\x80\x88",
                                                  "\xe2\x80\x89",
                                                  "\xe2\x80\x8a",
                                                  "\xe2\x80\xa8",
                                                  "\xe2\x80\xa9",
                                                  "\xe2\x80\xaf",
                                                  "\xe2\x81\x9f",
                                                  "\xe3\x80\x80"};

std::string_view without_leading_white(std::string_view text) {
  const auto next = [&] {
    return std::find_if(kWhite.begin(), kWhite.end(), [&](auto white) { return text.starts_with(white); });
  };
  for (auto white = next(); white != kWhite.end(); white = next()) text.remove_prefix(white->size());
  return text;
}

std::string_view without_trailing_white(std::string_view text) {
  const auto last = [&] {
    return std::find_if(kWhite.begin(), kWhite.end(), [&](auto white) { return text.ends_with(white); });
  };
  for (auto white = last(); white != kWhite.end(); white = last()) text.remove_suffix(white->size());
  return text;
}

std::size_t size_of_character(unsigned char lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// Whether the character belongs to words: letters, marks, digits, connectors, joiners.
bool is_of_word(std::string_view character) {
  static const TextPattern pattern =
      TextPattern::regular_expression("[\\w\\x{200C}\\x{200D}]", "characters of words");
  bool found = false;
  pattern.for_each_match(character, [&](std::size_t, std::size_t) { found = true; });
  return found;
}

bool begins_with_word(std::string_view text) {
  if (text.empty()) return false;
  return is_of_word(text.substr(0, size_of_character(static_cast<unsigned char>(text.front()))));
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return is_of_word(text.substr(at));
}

}  // namespace

AddedToken read_added_token(const specula::files::JsonFields& entry, specula::Token token) {
  AddedToken out{.token = token, .text = entry.text("content")};
  out.special = entry.flag("special");
  out.normalized = entry.flag("normalized", !out.special);
  out.lstrip = entry.flag("lstrip");
  out.rstrip = entry.flag("rstrip");
  out.single_word = entry.flag("single_word");
  if (out.single_word && !TextPattern::has_regular_expressions())
    entry.fail("single_word", "true for '" + out.text +
                                  "' needs Oniguruma, which these programs are built without: install it "
                                  "(Debian: libonig-dev) and configure them again");
  return out;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, bool special) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_,
                [&](const AddedToken& added) { return (added.special && !special) || added.text.empty(); });
  std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.text, a.token) < std::tie(b.text, b.token);
  });
}

const AddedToken* AddedTokens::at(std::string_view rest) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();  // that begin with the first `size` bytes of the rest
  for (std::size_t size = 0; first != last; ++size) {
    if (first->text.size() == size) longest = &*first;
    if (size == rest.size()) break;
    const auto byte = static_cast<unsigned char>(rest[size]);
    const auto byte_of = [&](const AddedToken& added) {
      return added.text.size() == size ? -1 : static_cast<int>(static_cast<unsigned char>(added.text[size]));
    };
    first = std::partition_point(first, last, [&](const auto& added) { return byte_of(added) < byte; });
    last = std::partition_point(first, last, [&](const auto& added) { return byte_of(added) == byte; });
  }
  return longest;
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& on_text,
                        const std::function<void(specula::Token)>& on_token) const {
  std::size_t from = 0;  // of the text that is not passed on yet
  for (std::size_t i = 0; i < text.size() && !tokens_.empty();) {
    const AddedToken* const added = at(text.substr(i));
    const std::size_t after = i + (added ? added->text.size() : 1);
    if (!added ||
        (added->single_word && (ends_with_word(text.substr(0, i)) || begins_with_word(text.substr(after))))) {
      i = after;
      continue;
    }
    std::string_view left = text.substr(from, i - from), right = text.substr(after);
    if (added->lstrip) left = without_trailing_white(left);
    if (added->rstrip) right = without_leading_white(right);
    if (!left.empty()) on_text(left);
    on_token(added->token);
    i = from = text.size() - right.size();
  }
  if (from < text.size()) on_text(text.substr(from));
}

}  // namespace specula_tools
