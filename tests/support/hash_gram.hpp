// SPDX-License-Identifier: MIT
// A drafter without rows: at most one draft token after each text.
#pragma once

#include <cstdint>
#include <vector>

#include <specula/base/rows.hpp>

#include "toy_model.hpp"

namespace specula_test {

/// For texts of a ToyModel. The draft token is a hash of the last two tokens. After a share `silent` of these
/// pairs there is none.
class HashGram {
 public:
  HashGram(std::int32_t tokens, std::uint64_t seed, double silent = 0)
      : tokens_(tokens), apart_(ThreeTiles::apart(tokens)), seed_(seed), silent_(silent) {}
  std::int32_t vocab_size() const { return (tokens_ - 1) * apart_ + 1; }
  std::int32_t capacity() const { return 1 << 20; }
  void truncate(std::int32_t) {}
  void sync(specula::Tokens context, specula::Tokens draft_tokens) {
    ++syncs;
    text_.assign(context.begin(), context.end());
    text_.insert(text_.end(), draft_tokens.begin(), draft_tokens.end());
    nodes_.clear();
  }
  specula::PointMasses extend(specula::Tokens tokens, specula::Nodes parents) {
    out_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const specula::Token before = parents[i] != specula::kNoParent
                                        ? nodes_[static_cast<std::size_t>(parents[i])]
                                        : (text_.empty() ? -1 : text_.back());
      nodes_.push_back(tokens[i]);
      const specula::Token first = before < 0 ? before : before / apart_, second = tokens[i] / apart_;
      std::uint64_t h = seed_ + static_cast<std::uint64_t>(first + 1) * 1000003ull +
                        static_cast<std::uint64_t>(second + 1) * 7919ull;
      h ^= h >> 31, h *= 0xBF58476D1CE4E5B9ull, h ^= h >> 27, h *= 0x94D049BB133111EBull, h ^= h >> 31;
      const bool quiet = static_cast<double>(h >> 40) / 0x1p24 < silent_;
      out_.push_back(quiet ? specula::kNoToken
                           : apart_ * static_cast<specula::Token>(h % static_cast<std::uint64_t>(tokens_)));
    }
    return {out_};
  }
  std::int64_t syncs = 0;

 private:
  std::int32_t tokens_, apart_;
  std::uint64_t seed_;
  double silent_;
  std::vector<specula::Token> text_, nodes_, out_;
};

}  // namespace specula_test
