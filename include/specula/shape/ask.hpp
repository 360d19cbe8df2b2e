// Asks a drafter for rows, or for point masses, and looks whether they are all there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../detail/fields.hpp"
#include "../rows.hpp"
#include "../token_tree.hpp"

namespace specula {

/// Throws std::invalid_argument unless a drafter gave a row over the vocabulary of `tree` for each of `nodes`
/// nodes.
inline void expect_rows(const RowsView& rows, std::size_t nodes, const TokenTree& tree) {
  if (rows.rows < 0 || static_cast<std::size_t>(rows.rows) != nodes || rows.vocab != tree.vocab())
    throw std::invalid_argument("the draft gave " + detail::number(rows.rows) + " rows of " +
                                detail::number(rows.vocab) + " logits for " + detail::number(nodes) +
                                " nodes over " + detail::number(tree.vocab()) + " tokens");
  if (rows.rows > 1 && std::abs(rows.stride) < rows.vocab)
    throw std::invalid_argument("the draft's rows of " + detail::number(rows.vocab) + " logits are " +
                                detail::number(rows.stride) + " floats apart: they overlap");
}
/// The same for a drafter without rows: a token for each node, and as many confidences or none.
inline void expect_rows(const PointMasses& points, std::size_t nodes, const TokenTree&) {
  if (points.tokens.size() != nodes || (!points.confidences.empty() && points.confidences.size() != nodes))
    throw std::invalid_argument("the draft gave " + detail::number(points.tokens.size()) + " tokens and " +
                                detail::number(points.confidences.size()) + " confidences for " +
                                detail::number(nodes) + " nodes");
}

/// drafter.extend(tokens, parents), for a proposal that grows in `tree`: what a shape calls, since rows are
/// not looked at when they are read. Throws std::invalid_argument, with the numbers, unless there is a row
/// (or a token) for each node. Cost: the drafter's, and a few comparisons.
template <class D>
auto ask(D& drafter, const TokenTree& tree, Tokens tokens, Nodes parents) {
  const auto said = drafter.extend(tokens, parents);
  expect_rows(said, tokens.size(), tree);
  return said;
}

}  // namespace specula
