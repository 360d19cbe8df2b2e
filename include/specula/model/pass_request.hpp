// SPDX-License-Identifier: MIT
// A pass in two halves, so that the caller can merge it with the passes of other texts: MergesPasses.
#pragma once

#include <concepts>
#include <cstdint>

#include "specula/base/has_member.hpp"
#include "specula/base/rows.hpp"

namespace specula {

/// A pass that a round waits for: these nodes in a slot of a model of many texts, merged with those of other
/// texts or alone. Valid until the round is given the rows.
struct PassRequest {
  const void* batch = nullptr;  ///< the address of the model of many texts; null: there is none to run
  std::int32_t slot = 0;        ///< the text's place in it
  Tokens tokens;                ///< (nodes)
  Nodes parents;                ///< (nodes) in the slot's numbers, as in LanguageModel::extend()
};

/// A model or a drafter whose extend() has two halves, between which the caller runs the pass:
///
///   PassRequest begin_pass(Tokens tokens, Nodes parents)  what the model of many texts is to run
///   LogitsView end_pass(const LogitsView& rows)           given its rows, what extend() would return
///
/// begin_pass() throws as extend(). If its `batch` is null, the model is no text of a batch: nothing has
/// changed, and extend() has to be called. Else the tokens, the parents and the rows must be valid until
/// end_pass() returns. A failed pass has no end_pass(): the next call of any other member finds all as it was
/// before begin_pass(). Without tokens it begins nothing, and only says what the batch is. If a pass has run
/// and its rows are dropped, its nodes stay in the model of many texts until the next truncate(), append() or
/// commit(). SlotOf is such a model; what wraps a model passes it on.
template <class M>
concept MergesPasses = requires(M& m, Tokens tokens, Nodes parents, const LogitsView& rows) {
  { m.begin_pass(tokens, parents) } -> std::same_as<PassRequest>;
  { m.end_pass(rows) } -> std::same_as<LogitsView>;
};

namespace detail {

SPECULA_HAS_MEMBER(begin_pass)
SPECULA_HAS_MEMBER(end_pass)

/// Compiles unless `M` has one of the two members, but is not MergesPasses.
template <class M>
consteval bool check_pass_halves() {
  static_assert((!has_begin_pass<M>() && !has_end_pass<M>()) || MergesPasses<M>,
                "a model or a drafter with begin_pass or end_pass must be MergesPasses: PassRequest "
                "begin_pass(Tokens, Nodes), LogitsView end_pass(const LogitsView&)");
  return true;
}

}  // namespace detail

}  // namespace specula
