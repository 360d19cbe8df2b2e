// SPDX-License-Identifier: MIT
// A text with a speculation below it, which goes on at random, for tests of drafters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/base/rows.hpp>

#include "random.hpp"

namespace specula_test {

inline std::vector<specula::Token> joined(const std::vector<specula::Token>& a,
                                          const std::vector<specula::Token>& b) {
  std::vector<specula::Token> out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

/// The nodes of one speculation, kept apart.
struct DraftNodes {
  std::vector<specula::Token> token;
  std::vector<specula::NodeId> parent;

  std::int32_t size() const { return static_cast<std::int32_t>(token.size()); }
  std::vector<specula::Token> path(specula::NodeId node) const {
    std::vector<specula::Token> out;
    for (; node != specula::kNoParent; node = parent[static_cast<std::size_t>(node)])
      out.push_back(token[static_cast<std::size_t>(node)]);
    return {out.rbegin(), out.rend()};
  }
  /// Adds one or two nodes, below any of those that were there, and returns them.
  DraftNodes grow(Random& random, std::int32_t vocab) {
    DraftNodes more;
    const std::int32_t n = size();
    for (int i = 1 + random.below(2); i > 0; --i) {
      more.token.push_back(random.below(vocab));
      more.parent.push_back(n == 0 || random.bernoulli(0.1) ? specula::kNoParent : random.below(n));
    }
    token.insert(token.end(), more.token.begin(), more.token.end());
    parent.insert(parent.end(), more.parent.begin(), more.parent.end());
    return more;
  }
};

/// The text is cut at a rate of `cuts`, as the drafter is told. Else it goes on with some of the draft
/// tokens, then, if all were accepted, with a path of nodes, then with other tokens.
template <class D>
void go_on(std::vector<specula::Token>& context, const std::vector<specula::Token>& draft_tokens,
           const DraftNodes& nodes, D& drafter, Random& random, std::int32_t vocab, double cuts) {
  if (random.bernoulli(cuts)) {
    const std::int32_t n = random.below(static_cast<std::int32_t>(context.size()) + 3);
    drafter.truncate(n);
    context.resize(std::min(context.size(), static_cast<std::size_t>(n)));
  } else if (random.bernoulli(0.8)) {
    const auto drafted = static_cast<std::int32_t>(draft_tokens.size());
    const std::int32_t keep = random.bernoulli(0.6) ? drafted : random.below(drafted + 1);
    context.insert(context.end(), draft_tokens.begin(), draft_tokens.begin() + keep);
    if (keep == drafted && nodes.size() > 0)
      context = joined(context, nodes.path(random.below(nodes.size())));
    for (int i = random.below(3); i > 0; --i) context.push_back(random.below(vocab));
  }
}

}  // namespace specula_test
