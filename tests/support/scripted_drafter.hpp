// SPDX-License-Identifier: MIT
// A drafter whose rows are a given function of the text, which checks the calls of a
// shape. For tests of shapes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/policy/concepts.hpp>

#include "random.hpp"
#include "structured_rows.hpp"

namespace specula_test {

using Text = std::vector<specula::Token>;
using RowOf = std::function<std::vector<float>(const Text&)>;

/// Random rows; `ties` and `empty` as Random::row has them.
inline RowOf random_rows(std::int32_t vocab, std::uint64_t seed, double spread, double ties = 0,
                         double empty = 0) {
  return [=](const Text& text) {
    std::uint64_t h = seed;
    for (const specula::Token x : text) h = (h ^ static_cast<std::uint64_t>(x + 1)) * 0x9E3779B97F4A7C15ull;
    return Random(h).row(vocab, spread, ties, empty);
  };
}

/// The same, some of them rows with structure.
inline RowOf mixed_rows(std::int32_t vocab, std::uint64_t seed, double spread, double ties = 0,
                        double empty = 0) {
  return [=](const Text& text) {
    std::uint64_t h = seed;
    for (const specula::Token x : text) h = (h ^ static_cast<std::uint64_t>(x + 1)) * 0x9E3779B97F4A7C15ull;
    Random random(h);
    return mixed_row(random, vocab, spread, ties, empty, false);
  };
}

/// Rows of a few equal finite logits: most draft tokens tie, within a row and across rows.
inline RowOf flat_rows(std::int32_t vocab, std::uint64_t seed) {
  return [=](const Text& text) {
    std::vector<float> row = random_rows(vocab, seed, 1)(text);
    for (float& l : row) l = l > 0 ? 0.0f : -std::numeric_limits<float>::infinity();
    row[static_cast<std::size_t>(text.back())] = 0.0f;
    return row;
  };
}

/// Counts calls and nodes, and checks the preconditions of a Drafter.
class ScriptedDrafter {
 public:
  ScriptedDrafter(std::int32_t vocab, RowOf row_of, std::int32_t capacity = 1 << 20)
      : row_of_(std::move(row_of)), vocab_(vocab), capacity_(capacity) {}
  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t capacity() const { return capacity_; }
  void truncate(std::int32_t) {}
  void sync(specula::Tokens context, specula::Tokens draft_tokens) {
    base_.assign(context.begin(), context.end());
    base_.insert(base_.end(), draft_tokens.begin(), draft_tokens.end());
    nodes_.clear();
    widths.clear();
  }
  specula::LogitsView extend(specula::Tokens tokens, specula::Nodes parents) {
    require(!tokens.empty() && tokens.size() == parents.size(), "one parent per token, at least one token");
    require(base_.size() + nodes_.size() + tokens.size() <= static_cast<std::size_t>(capacity_), "no room");
    rows_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const specula::NodeId parent = parents[i];
      require(parent < static_cast<specula::NodeId>(nodes_.size()), "a parent that is not there");
      require((parent == specula::kNoParent) == nodes_.empty(), "one root, node 0");
      Text text = parent == specula::kNoParent ? base_ : nodes_[static_cast<std::size_t>(parent)];
      text.push_back(tokens[i]);
      const std::vector<float> row = row_of_(text);
      rows_.insert(rows_.end(), row.begin(), row.end());
      nodes_.push_back(std::move(text));
    }
    widths.push_back(static_cast<int>(tokens.size()));
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), vocab_, vocab_};
  }

  std::vector<int> widths;  // nodes of each call since the last sync

 private:
  static void require(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("ScriptedDrafter: ") + what);
  }
  RowOf row_of_;
  std::int32_t vocab_, capacity_;
  Text base_;
  std::vector<Text> nodes_;
  std::vector<float> rows_;
};

/// For deterministic shapes: throws on any draw.
struct NoUniforms {
  bool accept(double, const specula::RandomKey&) {
    throw std::logic_error("a deterministic shape asked for a uniform draw");
  }
  template <class Weights>
  specula::Token draw(const Weights&, const specula::RandomKey&) {
    throw std::logic_error("a deterministic shape asked for a uniform draw");
  }
};

/// A draft token of a naive transcription: its token, its parent among the draft tokens (-1: the root), and
/// the probability of its path.
struct DraftToken {
  specula::Token token = 0;
  int parent = -1;
  double prob = 0, reach = 0;
};

/// All tokens of a row, best first, ties to the lower token, with the library's softmax probabilities. The
/// same bits are needed for the same ties of paths.
inline std::vector<specula::Top> ranked(const std::vector<float>& row) {
  const auto vocab = static_cast<std::int32_t>(row.size());
  std::vector<specula::Top> all(row.size());
  specula::detail::RowScan scan(vocab);
  all.resize(static_cast<std::size_t>(scan.top_k(row, all)));
  std::vector<specula::Top> out;
  for (specula::Token x = 0; x < vocab; ++x)
    for (const specula::Top& top : all)
      if (top.token == x) out.push_back(top);
  std::sort(out.begin(), out.end(), [&](const specula::Top& a, const specula::Top& b) {
    const float x = row[static_cast<std::size_t>(a.token)], y = row[static_cast<std::size_t>(b.token)];
    return x != y ? x > y : a.token < b.token;
  });
  return out;
}

/// The text that ends with draft token `i` (-1: with the root).
inline Text text_of(const Text& context_and_root, const std::vector<DraftToken>& draft_tokens, int i) {
  if (i < 0) return context_and_root;
  Text out = text_of(context_and_root, draft_tokens, draft_tokens[static_cast<std::size_t>(i)].parent);
  out.push_back(draft_tokens[static_cast<std::size_t>(i)].token);
  return out;
}

/// The `most` draft tokens with the largest reach, ties to the lower index, sorted by index.
inline std::vector<int> likeliest(const std::vector<DraftToken>& draft_tokens, std::vector<int> among,
                                  int most) {
  std::sort(among.begin(), among.end(), [&](int a, int b) {
    const double x = draft_tokens[static_cast<std::size_t>(a)].reach,
                 y = draft_tokens[static_cast<std::size_t>(b)].reach;
    return x != y ? x > y : a < b;
  });
  if (among.size() > static_cast<std::size_t>(std::max(0, most)))
    among.resize(static_cast<std::size_t>(std::max(0, most)));
  std::sort(among.begin(), among.end());
  return among;
}

/// Whether `tree` holds exactly the draft tokens of `chosen`, in that order.
inline bool holds(const specula::TokenTree& tree, const std::vector<DraftToken>& draft_tokens,
                  const std::vector<int>& chosen) {
  if (static_cast<std::size_t>(tree.size()) != chosen.size() + 1) return false;
  std::vector<specula::NodeId> node(draft_tokens.size(), specula::kNoParent);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const DraftToken& draft_token = draft_tokens[static_cast<std::size_t>(chosen[i])];
    const auto n = static_cast<specula::NodeId>(i) + 1;
    const specula::NodeId parent =
        draft_token.parent < 0 ? 0 : node[static_cast<std::size_t>(draft_token.parent)];
    if (tree.token(n) != draft_token.token || tree.parent(n) != parent ||
        tree.confidence(n) != static_cast<float>(draft_token.prob))
      return false;
    node[static_cast<std::size_t>(chosen[i])] = n;
  }
  return true;
}

}  // namespace specula_test
