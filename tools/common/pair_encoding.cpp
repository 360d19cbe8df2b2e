// SPDX-License-Identifier: MIT
#include "pair_encoding.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <tuple>
#include <utility>

namespace specula_tools {

using specula::kNoToken;
using specula::Token;

PairEncoding::PairEncoding(Vocabulary vocabulary, const Options& options)
    : options_(options), vocabulary_(std::move(vocabulary)) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (std::size_t b = 0; b < byte_tokens_.size(); ++b) {
    const char byte = static_cast<char>(b);
    byte_tokens_[b] = options_.bytes ? find({&byte, 1})
                      : options_.byte_fallback
                          ? find(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">")
                          : kNoToken;
  }
}

Token PairEncoding::find(std::string_view text) const {
  const auto found = vocabulary_.find(text);
  return found == vocabulary_.end() ? kNoToken : found->second;
}

void PairEncoding::merge(Token left, Token right, Token result, std::uint32_t rank) {
  merges_.insert_or_assign(pair(left, right), Merge{rank, result});
}

bool PairEncoding::knows_all_bytes() const {
  return std::find(byte_tokens_.begin(), byte_tokens_.end(), kNoToken) == byte_tokens_.end();
}

/// A character of the vocabulary, its bytes, or the unknown token.
void PairEncoding::append_character(std::string_view character, std::vector<Symbol>& out,
                                    bool& after_unknown) const {
  const auto put = [&](Token token) {
    const auto at = std::ssize(out);
    out.push_back({token, at - 1, at + 1});
  };
  const auto byte_token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  const bool unknown_before = std::exchange(after_unknown, false);
  if (const Token token = options_.bytes ? byte_token(character.front()) : find(character);
      token != kNoToken) {
    put(token);
  } else if (std::all_of(character.begin(), character.end(),
                         [&](char byte) { return byte_token(byte) != kNoToken; })) {
    for (const char byte : character) put(byte_token(byte));
  } else {
    after_unknown = true;
    if (options_.unknown != kNoToken && !(unknown_before && options_.fuses_unknown)) put(options_.unknown);
  }
}

std::vector<PairEncoding::Symbol> PairEncoding::symbols_of(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  bool after_unknown = false;
  while (!word.empty()) {
    std::size_t size = 1;
    while (!options_.bytes && size < word.size() && (static_cast<unsigned char>(word[size]) & 0xC0) == 0x80)
      ++size;
    append_character(word.substr(0, size), symbols, after_unknown);
    word.remove_prefix(size);
  }
  if (!symbols.empty()) symbols.back().after = -1;
  return symbols;
}

void PairEncoding::encode(std::string_view word, std::vector<Token>& out) const {
  if (options_.whole_words)
    if (const Token token = find(word); token != kNoToken) return out.push_back(token);
  std::vector<Symbol> symbols = symbols_of(word);
  using Candidate = std::tuple<std::uint32_t, std::ptrdiff_t, Token>;  // rank, place of the left one, result
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto at = [&](std::ptrdiff_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto merge_at = [&](std::ptrdiff_t i) {
    return at(i).after < 0 ? merges_.end() : merges_.find(pair(at(i).token, at(at(i).after).token));
  };
  const auto offer = [&](std::ptrdiff_t i) {
    if (const auto merge = merge_at(i); merge != merges_.end())
      queue.emplace(merge->second.rank, i, merge->second.result);
  };
  for (std::ptrdiff_t i = 0; i < std::ssize(symbols); ++i) offer(i);
  while (!queue.empty()) {
    const auto [rank, i, result] = queue.top();
    queue.pop();
    if (at(i).token == kNoToken) continue;
    if (const auto merge = merge_at(i); merge == merges_.end() || merge->second.result != result) continue;
    const std::ptrdiff_t gone = at(i).after;
    at(i).token = result;
    at(i).after = at(gone).after;
    at(gone).token = kNoToken;
    if (at(i).after >= 0) at(at(i).after).before = i;
    if (at(i).before >= 0) offer(at(i).before);
    offer(i);
  }
  for (std::ptrdiff_t i = symbols.empty() ? -1 : 0; i >= 0; i = at(i).after) out.push_back(at(i).token);
}

}  // namespace specula_tools
