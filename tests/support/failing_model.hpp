// SPDX-License-Identifier: MIT
// A draft model that fails for some tokens: by an exception of extend() or of append(), or by a row with NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "toy_model.hpp"

namespace specula_test {

/// As ToyModel, but about one pair of tokens in `one_in` makes it fail when it runs the second of them.
class FailingModel : public ToyModel {
 public:
  enum class By : std::uint8_t { extend, append, row };

  FailingModel(std::int32_t vocab, std::uint64_t seed, By by, std::uint64_t one_in = 3)
      : ToyModel(vocab, seed), by_(by), one_in_(one_in), salt_(seed) {}

  void append(Tokens tokens) {
    if (by_ == By::append && fragile)
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (fails(i > 0 ? tokens[i - 1] : end(), tokens[i])) throw std::runtime_error("append failed");
    ToyModel::append(tokens);
    tokens_.clear();
  }
  LogitsView extend(Tokens tokens, Nodes parents) {
    const LogitsView rows = ToyModel::extend(tokens, parents);
    copy_.assign(rows.data, rows.data + rows.rows * rows.vocab);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Token before = parents[i] == kNoParent ? end() : tokens_[static_cast<std::size_t>(parents[i])];
      tokens_.push_back(tokens[i]);
      if (by_ == By::append || !fragile || !fails(before, tokens[i])) continue;
      if (by_ == By::extend) throw std::runtime_error("extend failed");
      copy_[i * static_cast<std::size_t>(rows.vocab)] = std::numeric_limits<float>::quiet_NaN();
    }
    return {copy_.data(), rows.rows, rows.vocab, rows.vocab};
  }
  void commit(Nodes path) {
    ToyModel::commit(path);
    tokens_.clear();
  }
  void truncate(std::int32_t n) {
    ToyModel::truncate(n);
    tokens_.clear();
  }

  bool fails(Token before, Token last) const {
    std::uint64_t h =
        (salt_ * 31 + static_cast<std::uint64_t>(before + 1)) * 131 + static_cast<std::uint64_t>(last + 1);
    h *= 0x9E3779B97F4A7C15ull;
    return (h >> 33) % one_in_ == 0;
  }
  bool fragile = true;  // whether it fails at all

 private:
  Token end() const { return cache().empty() ? -1 : cache().back(); }
  By by_;
  std::uint64_t one_in_, salt_;
  std::vector<Token> tokens_;  // of the nodes
  std::vector<float> copy_;
};

}  // namespace specula_test
