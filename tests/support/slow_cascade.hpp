// SPDX-License-Identifier: MIT
// Reference cascades: the paper's recursion over whole texts, without a KV cache, to compare the shapes
// with. Drafters whose draft token or row is a function of the whole text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plain_distribution.hpp"
#include "proposed.hpp"
#include "scripted_drafter.hpp"

namespace specula_test {

/// Rows of drafters that share `common` mostly have the same largest logit, the less so the larger `apart`.
inline RowOf related_rows(std::int32_t vocab, std::uint64_t common, std::uint64_t seed, double apart) {
  return
      [shared = random_rows(vocab, common, 2), mine = random_rows(vocab, seed, 2 * apart)](const Text& text) {
        std::vector<float> row = shared(text);
        const std::vector<float> more = mine(text);
        for (std::size_t x = 0; x < row.size(); ++x) row[x] += more[x];
        return row;
      };
}

using DraftTokenOf = std::function<specula::Token(const Text&)>;

/// The argmax of such a row, or nothing after a share `silent` of the texts.
inline DraftTokenOf related_draft_tokens(std::int32_t vocab, std::uint64_t common, std::uint64_t seed,
                                         double apart, double silent) {
  return [=, row_of = related_rows(vocab, common, seed, apart)](const Text& text) {
    std::uint64_t h = seed + 77;
    for (const specula::Token x : text) h = (h ^ static_cast<std::uint64_t>(x + 1)) * 0x9E3779B97F4A7C15ull;
    if (Random(h).bernoulli(silent)) return specula::kNoToken;
    const std::vector<float> row = row_of(text);
    return static_cast<specula::Token>(std::max_element(row.begin(), row.end()) - row.begin());
  };
}

/// A drafter without rows. Throws after so many calls and syncs that the shape must be in an endless loop.
class ScriptedPoints {
 public:
  ScriptedPoints(std::int32_t vocab, DraftTokenOf draft_token_of, std::int64_t patience = 1000)
      : draft_token_of_(std::move(draft_token_of)), vocab_(vocab), patience_(patience) {}
  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t capacity() const { return 1 << 20; }
  void truncate(std::int32_t) {}
  void sync(specula::Tokens context, specula::Tokens draft_tokens) {
    lose_patience();
    base_.assign(context.begin(), context.end());
    base_.insert(base_.end(), draft_tokens.begin(), draft_tokens.end());
    nodes_.clear();
  }
  specula::PointMasses extend(specula::Tokens tokens, specula::Nodes parents) {
    lose_patience();
    ++calls;
    out_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if ((parents[i] == specula::kNoParent) != nodes_.empty())
        throw std::invalid_argument("ScriptedPoints: one root, node 0");
      Text text = nodes_.empty() ? base_ : nodes_.at(static_cast<std::size_t>(parents[i]));
      text.push_back(tokens[i]);
      out_.push_back(draft_token_of_(text));
      nodes_.push_back(std::move(text));
    }
    return {out_};
  }

  std::int64_t calls = 0;

 private:
  void lose_patience() {
    if (++steps_ > patience_) throw std::logic_error("ScriptedPoints: asked without end");
  }
  DraftTokenOf draft_token_of_;
  std::int32_t vocab_;
  std::int64_t patience_, steps_ = 0;
  Text base_;
  std::vector<Text> nodes_;
  std::vector<specula::Token> out_;
};

/// A token of the text; for a draft token also the confidence of its last reviewer.
struct SlowToken {
  specula::Token token = 0;
  float prob = 1;
  bool copied = false;
};
using SlowText = std::vector<SlowToken>;

/// Exactly one of them is set.
struct SlowDrafter {
  RowOf row_of = {};
  DraftTokenOf draft_token_of = {};
  std::vector<std::int64_t> offered = std::vector<std::int64_t>(64), accepted = offered;  // as a reviewer
  std::int64_t calls = 0;

  static Text plain(const SlowText& ids, std::size_t size) {
    Text out;
    for (std::size_t i = 0; i < size; ++i) out.push_back(ids[i].token);
    return out;
  }
  SlowToken best(const Text& text) {
    if (draft_token_of) return {draft_token_of(text), 1, true};
    const std::vector<float> row = row_of(text);
    const std::vector<double> p = plain_distribution(row, {});
    const auto x = static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    return {static_cast<specula::Token>(x), static_cast<float>(p[x]), false};
  }
  double prob(const Text& text, specula::Token token) {
    return plain_distribution(row_of(text), {})[static_cast<std::size_t>(token)];
  }
  /// At most `count` draft tokens, as many as the drafter has.
  SlowText propose(SlowText ids, int count) {
    for (int i = 0; i < count; ++i) {
      ++calls;
      const SlowToken next = best(plain(ids, ids.size()));
      if (next.token == specula::kNoToken) break;
      ids.push_back(next);
    }
    return ids;
  }
  /// Reviews the tokens after `start`: returns accepted + 1 tokens.
  SlowText review(SlowText ids, std::size_t start, double lenience) {
    ++calls;
    for (std::size_t i = start; i < ids.size(); ++i) {
      const Text before = plain(ids, i);
      const SlowToken mine = best(before);
      const double p = prob(before, ids[i].token);
      const bool agrees = ids[i].token == mine.token || (lenience > 1 && !ids[i].copied &&
                                                         static_cast<double>(ids[i].prob) <= lenience * p);
      ++offered[i - start];
      if (!agrees) {
        ids.resize(i);
        ids.push_back(mine);
        return ids;
      }
      ++accepted[i - start];
      ids[i].prob = static_cast<float>(p);
      ids[i].copied = false;
    }
    ids.push_back(best(plain(ids, ids.size())));
    return ids;
  }
};

/// step(D, T, ids, K, l): D is drafters[at...], T the one before, K the rows and columns from `at`.
using Table = std::vector<std::vector<std::int32_t>>;
inline SlowText slow_cascade(std::vector<SlowDrafter>& drafters, std::size_t at, const SlowText& ids,
                             const Table& limits, double lenience, bool first = true) {
  if (at == drafters.size()) return drafters[at - 1].propose(ids, limits[at - 1][at - 1]);
  SlowText cur = ids;
  for (std::size_t i = at; i < drafters.size(); ++i) {
    std::int32_t limit = 0;
    for (std::size_t j = at; j <= i; ++j) limit += limits[at][j];
    while (static_cast<std::int32_t>(cur.size() - ids.size()) < limit) {
      const std::size_t before = cur.size();
      cur = slow_cascade(drafters, i + 1, cur, limits, lenience, false);
      if (cur.size() == before) break;
    }
  }
  return first ? cur : drafters[at - 1].review(cur, ids.size(), lenience);
}

/// The output of drafter `at`: the last one drafts, the others review the output of the next.
inline SlowText slow_hand_up(std::vector<SlowDrafter>& drafters, std::size_t at, const SlowText& ids,
                             int length, double lenience) {
  if (at + 1 == drafters.size()) return drafters[at].propose(ids, length);
  return drafters[at].review(slow_hand_up(drafters, at + 1, ids, length, lenience), ids.size(), lenience);
}

/// A context and a root.
inline SlowText slow_text(const Text& text) {
  SlowText out;
  for (const specula::Token x : text) out.push_back({x});
  return out;
}

/// Whether `tree` is the chain of the tokens after the first `start` of `want`, with their confidences.
inline bool is_chain_of(const specula::TokenTree& tree, const SlowText& want, std::size_t start) {
  if (static_cast<std::size_t>(tree.size()) != want.size() - start + 1) return false;
  for (specula::NodeId n = 1; n < tree.size(); ++n) {
    const SlowToken& token = want[start + static_cast<std::size_t>(n) - 1];
    if (tree.token(n) != token.token || tree.parent(n) != n - 1 ||
        std::abs(tree.confidence(n) - token.prob) > 1e-6f)
      return false;
  }
  return true;
}

}  // namespace specula_test
