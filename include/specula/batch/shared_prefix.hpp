// SPDX-License-Identifier: MIT
// What texts of a batch begin alike with: computed once, and copied between their slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/model/batched_language_model.hpp"

namespace specula::detail {

// `texts` are those of all slots: `slot`; `id`, 0 if the slot is free; `last`, the id that it had; `run`,
// whose text() is what the slot's models hold; `request`.

/// Tokens that two texts begin with.
inline std::int32_t shared_prefix(Tokens a, Tokens b) {
  return static_cast<std::int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}
/// Tokens of a slot that have run.
template <class M>
std::int32_t computed(const M& model, std::int32_t slot) {
  return model.size(slot) - model.queued(slot);
}

/// The free slot whose last text these tokens share the least with, of equal ones the one that ended first:
/// the others may yet be gone on with. There must be a free one.
template <class Text>
Text& free_slot(const std::vector<std::unique_ptr<Text>>& texts, Tokens tokens) {
  Text* best = nullptr;
  std::pair<std::int32_t, decltype(Text::last)> least;
  for (const auto& text : texts) {
    if (text->id) continue;
    const std::pair key(shared_prefix(tokens, text->run->text()), text->last);
    if (!best || key < least) best = text.get(), least = key;
  }
  return *best;
}

/// Whether more than a chunk of the prompt is about to be read for another text, from which it can be copied
/// then.
template <class M, class Text>
bool is_being_read(const M& target, const std::vector<std::unique_ptr<Text>>& texts, Tokens prompt) {
  if constexpr (ForksTexts<M>)
    for (const auto& other : texts)
      if (other->id && target.queued(other->slot) > target.chunk() &&
          shared_prefix(prompt, other->run->text()) > computed(target, other->slot) + target.chunk())
        return true;
  return false;
}

/// Copies what the model has computed for another text that begins alike; where there is no room for that, it
/// is read. A draft may hold tokens that it drafted where that text has others by now, but not in its prompt.
template <class M, class Text>
void copy_prefix([[maybe_unused]] M& model, [[maybe_unused]] bool drafts, [[maybe_unused]] const Text& text,
                 [[maybe_unused]] const std::vector<std::unique_ptr<Text>>& texts) {
  if constexpr (ForksTexts<M>) {
    std::int32_t most = computed(model, text.slot), from = -1;
    for (const auto& other : texts) {
      if (other.get() == &text) continue;
      std::int32_t tokens = std::min({shared_prefix(text.run->text(), other->run->text()),
                                      computed(model, other->slot), model.size(text.slot)});
      if (drafts) tokens = std::min(tokens, static_cast<std::int32_t>(other->request.prompt.size()) - 1);
      if (tokens > most) most = tokens, from = other->slot;
    }
    if (from < 0) return;
    try {
      model.fork(from, text.slot, most);
    } catch (const NoRoom&) {
    }
  }
}

}  // namespace specula::detail
