// SPDX-License-Identifier: MIT
// Checks that a model returned one row of logits per node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"

namespace specula::detail {

/// Throws std::invalid_argument unless `rows` has one row per node of `nodes` nodes, over `vocab` tokens,
/// without overlap. For the message: `whose` names the model ("the draft"), and `what`, a text or a
/// function that returns one, precedes the number of nodes. Reading a row is unchecked, so every reader of
/// a model's rows calls this first.
template <class What = const char*>
void expect_rows(const char* whose, const LogitsView& rows, std::size_t nodes, std::int32_t vocab,
                 const What& what = "for") {
  if (rows.rows < 0 || static_cast<std::size_t>(rows.rows) != nodes || rows.vocab != vocab) {
    std::string before;
    if constexpr (std::is_invocable_v<const What&>)
      before = what();
    else
      before = what;
    throw std::invalid_argument(std::string(whose) + " gave " + number(rows.rows) + " rows of " +
                                number(rows.vocab) + " logits " + before + ' ' + number(nodes) +
                                " nodes over " + number(vocab) + " tokens");
  }
  if (rows.rows > 1 && std::abs(rows.stride) < rows.vocab)
    throw std::invalid_argument(std::string(whose) + "'s rows of " + number(rows.vocab) + " logits are " +
                                number(rows.stride) + " floats apart: they overlap");
}

}  // namespace specula::detail
