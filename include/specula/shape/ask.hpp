// Asks a drafter for rows, or for point masses, and looks whether they are all there.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "specula/base/fields.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rows.hpp"

namespace specula {

/// Throws std::invalid_argument unless a drafter gave a row over the vocabulary of `tree` for each of `nodes`
/// nodes.
inline void expect_rows(const LogitsView& rows, std::size_t nodes, const TokenTree& tree) {
  detail::expect_rows("the draft", rows, nodes, tree.vocab());
}
/// The same for a drafter without rows: a token for each node, and as many confidences or none.
inline void expect_rows(const PointMasses& points, std::size_t nodes, const TokenTree&) {
  if (points.tokens.size() != nodes || (!points.confidences.empty() && points.confidences.size() != nodes))
    throw std::invalid_argument("the draft gave " + detail::number(points.tokens.size()) + " tokens and " +
                                detail::number(points.confidences.size()) + " confidences for " +
                                detail::number(nodes) + " nodes");
}

/// drafter.extend(tokens, parents), for a proposal that grows in `tree`: what a shape calls, since rows are
/// not looked at when they are read. Throws std::invalid_argument, with the numbers, unless there is a parent
/// for each token, and then a row (or a token) for each node. Cost: the drafter's, and a few comparisons.
template <class D>
auto ask(D& drafter, const TokenTree& tree, Tokens tokens, Nodes parents) {
  if (parents.size() != tokens.size())
    throw std::invalid_argument("ask: " + detail::number(parents.size()) + " parents for " +
                                detail::number(tokens.size()) + " tokens");
  const auto said = drafter.extend(tokens, parents);
  expect_rows(said, tokens.size(), tree);
  return said;
}

}  // namespace specula
