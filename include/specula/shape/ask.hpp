// ask(): a checked call of a drafter for rows or point masses.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "specula/base/fields.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rows.hpp"

namespace specula {

/// Throws std::invalid_argument unless `rows` has one row over the vocabulary of `tree` per node.
inline void expect_rows(const LogitsView& rows, std::size_t nodes, const TokenTree& tree) {
  detail::expect_rows("the draft", rows, nodes, tree.vocab());
}
/// The same for a drafter without rows: one token per node, and as many confidences or none.
inline void expect_rows(const PointMasses& points, std::size_t nodes, const TokenTree&) {
  if (points.tokens.size() != nodes || (!points.confidences.empty() && points.confidences.size() != nodes))
    throw std::invalid_argument("the draft gave " + detail::number(points.tokens.size()) + " tokens and " +
                                detail::number(points.confidences.size()) + " confidences for " +
                                detail::number(nodes) + " nodes");
}

/// drafter.extend(tokens, parents) with its result checked, since reading a row is unchecked: shapes must
/// call this. Throws std::invalid_argument, with the numbers, unless there is one parent per token and the
/// drafter returns one row (or token) per node. Cost: the drafter's, and a few comparisons.
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
