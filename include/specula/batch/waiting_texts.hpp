// SPDX-License-Identifier: MIT
// The texts of a batch that have no slot: those that wait for one, and those that are paused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/batch/text_request.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/run/limits.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula::detail {

/// The random source of a text that has this number.
inline PhiloxRandom random_of(const TextRequest& request, TextId id) {
  if (request.seed) return PhiloxRandom(*request.seed, request.sequence.value_or(0));
  if (request.sequence) return PhiloxRandom(0, *request.sequence);
  return PhiloxRandom(id >> 32, static_cast<std::uint32_t>(id));
}

/// A text that has not begun, or that goes on after a pause.
struct WaitingText {
  TextId id = 0;
  TextRequest request = {};
  std::vector<Token> text = {};  // prompt and tokens; empty: it has not begun
  Generated out = {};            // what was emitted
  Stats stats = {};
  LogprobList logprobs = {};
  bool drafts = true;          // whether its draft has not failed
  bool waits_for_end = false;  // of another text, to which it has made room

  Tokens tokens() const { return text.empty() ? Tokens(request.prompt) : Tokens(text); }
};

/// A queue in the order of joining. Texts that have made room to others go before it, and come back one for
/// each end of another text; until then nothing overtakes them. Resumed ones go before all.
class WaitingTexts {
 public:
  void join(WaitingText text) { queue_.push_back(std::move(text)); }
  std::size_t queued() const { return queue_.size(); }
  std::size_t paused() const { return paused_.size(); }

  /// A place for a text that has made room.
  WaitingText& add_first() {
    WaitingText& text = queue_.emplace_front();
    text.waits_for_end = true;
    ended_ = false;
    return text;
  }
  WaitingText& add_paused() { return paused_.emplace_back(); }

  /// Moves a queued text to the paused ones. False if there is none; true if it is paused already.
  bool pause(TextId id) {
    if (find(paused_, id) != paused_.end()) return true;
    const auto found = find(queue_, id);
    if (found == queue_.end()) return false;
    found->waits_for_end = false;
    move(queue_, found, paused_, paused_.end());
    return true;
  }
  bool resume(TextId id) {
    const auto found = find(paused_, id);
    if (found == paused_.end()) return false;
    move(paused_, found, queue_, queue_.begin());
    return true;
  }
  std::optional<WaitingText> remove(TextId id) {
    for (Queue* queue : {&queue_, &paused_})
      if (const auto found = find(*queue, id); found != queue->end()) return take(*queue, found);
    return std::nullopt;
  }
  Tokens text(TextId id) const {
    for (const Queue* queue : {&queue_, &paused_})
      for (const WaitingText& waiting : *queue)
        if (waiting.id == id) return waiting.text;
    return {};
  }

  /// A text with a slot has ended.
  void ended() { ended_ = true; }
  /// The text that begins next, if any does; `waits(tokens)`: not yet, another one may.
  template <class Waits>
  const WaitingText* next(bool none_runs, Waits waits) {
    next_ = queue_.begin();
    while (next_ != queue_.end() && !next_->waits_for_end && waits(next_->tokens())) ++next_;
    if (next_ == queue_.end() || (next_->waits_for_end && !ended_ && !none_runs)) return nullptr;
    return &*next_;
  }
  /// Takes the text that next() returned.
  WaitingText take() {
    if (next_->waits_for_end) ended_ = false;
    return take(queue_, next_);
  }

 private:
  using Queue = std::deque<WaitingText>;
  static Queue::iterator find(Queue& queue, TextId id) {
    return std::find_if(queue.begin(), queue.end(), [&](const WaitingText& text) { return text.id == id; });
  }
  static void move(Queue& from, Queue::iterator text, Queue& to, Queue::iterator before) {
    *to.emplace(before) = std::move(*text);
    from.erase(text);
  }
  static WaitingText take(Queue& queue, Queue::iterator text) {
    WaitingText taken = std::move(*text);
    queue.erase(text);
    return taken;
  }

  Queue queue_, paused_;
  Queue::iterator next_;
  bool ended_ = false;  // a text, since one last made room or came back
};

}  // namespace specula::detail
