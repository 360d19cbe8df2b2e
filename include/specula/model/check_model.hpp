// SPDX-License-Identifier: MIT
// Tries out whether a model does what LanguageModel says: check_model(), and check_batched_model() for one of
// many texts. For the author of an adapter, whose program or test calls it in one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/batched_language_model.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/detail/model_checker.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/model_finding.hpp"

namespace specula::detail {

/// Whether slot 0, which `checker` checks, and slot `other` are to each other as if they were alone.
template <class M>
void check_slots(M& model, ModelChecker<SlotOf<M>>& checker, std::int32_t other, bool trees) {
  using Text = typename ModelChecker<SlotOf<M>>::Text;
  CheckedCalls<SlotOf<M>>& one = checker.calls();
  const auto with = [&](Text text, std::initializer_list<std::size_t> probes) {
    for (const std::size_t i : probes) text.push_back(checker.probe(i));
    return text;
  };
  const auto pass = [&](std::initializer_list<SlotNodes> nodes, std::initializer_list<Text> expected) {
    std::string slots = "a pass of slots";
    for (const SlotNodes& some : nodes) slots.append(" ").append(number(some.slot));
    one.attempt(slots,
                [&] { one.take(model.extend(std::span(nodes.begin(), nodes.size())), expected.size()); });
    std::size_t i = 0;
    for (const Text& text : expected) one.expect_row("slots", i++, text);
  };
  const auto call = [&](std::int32_t slot, const char* text, const auto& run) {
    one.attempt("slot " + number(slot) + ": " + text, [&] { run(slot); });
  };
  // Slot 0 has a chain of two nodes, the other slot two roots.
  const Text here = checker.context(3), there = checker.context(2);
  const Text first = with(here, {0}), second = with(here, {0, 1}), left = with(there, {2}),
             right = trees ? with(there, {3}) : with(there, {2, 3}),
             below = trees ? with(there, {3, 4}) : with(there, {2, 3, 4}), after = with(here, {0, 2});
  for (const Text& text : {first, second, left, right, below, after}) one.know(text);
  const Text a = with({}, {0, 1}), b = with({}, {2, 3}), c = with({}, {4});
  const std::vector<NodeId> chain{kNoParent, 0}, roots{kNoParent, trees ? kNoParent : 0}, child{1};
  const Tokens one_token(b.data(), 1);
  const Nodes root(chain.data(), 1), node_0(chain.data() + 1, 1);

  one.begin(here);
  call(other, "truncate(0), append(2 tokens)",
       [&](std::int32_t s) { model.truncate(s, 0), model.append(s, there); });
  pass({{0, a, chain}, {other, b, roots}}, {first, second, left, right});
  call(0, "commit({0})", [&](std::int32_t s) { model.commit(s, node_0); });
  pass({{other, c, child}, {0, one_token, root}}, {below, after});
  call(0, "truncate(0), append(3 tokens)",
       [&](std::int32_t s) { model.truncate(s, 0), model.append(s, here); });
  call(other, "commit({})", [&](std::int32_t s) { model.commit(s, {}); });
  pass({{0, {}, {}}, {other, one_token, root}}, {left});  // a part of a prompt beside another text's node
  pass({{0, Tokens(a).first(1), root}}, {first});
  for (const auto& [slot, size] : {std::pair{0, 3}, std::pair{int(other), 2}})
    if (model.size(slot) != size)
      one.end("slots",
              "size(" + number(slot) + ") is " + number(model.size(slot)) + ", expected " + number(size));
}

}  // namespace specula::detail

namespace specula {

/// Runs `model` on small trees of random tokens, and compares each row with plain decoding: one node per
/// pass, each committed. One finding for each duty that it does not do, with the fewest calls that show it;
/// none if it does all. A model whose rows depend on less than their whole context shows less. Its context is
/// lost: it is empty afterwards. What the model throws is a finding, too.
///
/// Throws std::invalid_argument for fields of `how` out of range. Cost: some 700 passes, most of fewer than 5
/// nodes, over at most 32 tokens; memory for some 300 rows.
template <LanguageModel M>
std::vector<ModelFinding> check_model(M& model, const ModelCheck& how = {}) {
  static_assert(detail::check_model_members<M>());
  std::vector<ModelFinding> findings;
  detail::ModelChecker<M> checker(model, how, findings);
  try {
    checker.run();
    checker.calls().begin({});
  } catch (const detail::CheckIsOver&) {
    try {
      model.truncate(0);
    } catch (...) {  // there is a finding already
    }
  }
  return findings;
}

/// check_model() of the first and the last slot of a model of many texts, and whether slots mix: passes over
/// both, of which each row must be what it is alone. Uses these two slots, which are empty afterwards.
template <BatchedLanguageModel M>
std::vector<ModelFinding> check_batched_model(M& model, const ModelCheck& how = {}) {
  using Slot = SlotOf<M>;
  std::vector<ModelFinding> findings;
  const std::int32_t last = model.slots() - 1;
  Slot slot(model, 0);
  detail::ModelChecker<Slot> checker(slot, how, findings, "slot 0: ");
  try {
    checker.run();
    if (last > 0 && findings.empty()) {
      Slot end(model, last);
      detail::ModelChecker<Slot>(end, how, findings, "slot " + detail::number(last) + ": ").run();
    }
    if (last > 0 && findings.empty()) detail::check_slots(model, checker, last, how.trees);
  } catch (const detail::CheckIsOver&) {
  }
  for (const std::int32_t s : {0, last}) {
    try {
      model.truncate(s, 0);
    } catch (...) {  // there is a finding already
    }
  }
  return findings;
}

}  // namespace specula
