#include "added_tokens.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace specula_examples {
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

bool before(const AddedToken& a, const AddedToken& b) {
  if (a.text.front() != b.text.front()) return a.text.front() < b.text.front();
  return a.text.size() > b.text.size();
}

}  // namespace

AddedToken read_added_token(const specula::cpu::JsonFields& entry, specula::Token token) {
  AddedToken out{.token = token, .text = entry.text("content")};
  out.special = entry.flag("special");
  out.normalized = entry.flag("normalized", !out.special);
  out.lstrip = entry.flag("lstrip");
  out.rstrip = entry.flag("rstrip");
  if (entry.flag("single_word") && !out.special)
    entry.fail("single_word", "true is not read for '" + out.text + "', expected false");
  return out;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& added) { return added.special || added.text.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(), before);
}

const AddedToken* AddedTokens::at(std::string_view rest) const {
  const auto first = std::partition_point(tokens_.begin(), tokens_.end(), [&](const AddedToken& added) {
    return added.text.front() < rest.front();
  });
  for (auto added = first; added != tokens_.end() && added->text.front() == rest.front(); ++added)
    if (rest.starts_with(added->text)) return &*added;
  return nullptr;
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& on_text,
                        const std::function<void(specula::Token)>& on_token) const {
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* const added = at(text.substr(i));
    if (!added) {
      ++i;
      continue;
    }
    std::string_view left = text.substr(0, i), right = text.substr(i + added->text.size());
    if (added->lstrip) left = without_trailing_white(left);
    if (added->rstrip) right = without_leading_white(right);
    if (!left.empty()) on_text(left);
    on_token(added->token);
    text = right;
    i = 0;
  }
  if (!text.empty()) on_text(text);
}

}  // namespace specula_examples
