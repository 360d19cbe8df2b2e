// SPDX-License-Identifier: MIT
// generate(): the loop of a text, over anything that runs rounds.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "specula/base/rows.hpp"
#include "specula/run/limits.hpp"

namespace specula {

/// What generate() needs of a run, which draws from a random source of type C: start() and step() as
/// Speculator has them, and of the last round's tokens the number that count, as RunRecord has it. A
/// Speculator is one, and so is a Pipeline.
template <class R, class C>
concept TextRun = requires(R& run, const R& c, Tokens prompt, C& rng, Tokens stop, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  run.start(prompt);
  { c.room() } -> std::same_as<std::int32_t>;       // no round is possible below 1
  { run.step(rng, stop) } -> std::same_as<Tokens>;  // at least one
  run.count_emitted(n);
  { c.emitted() } -> std::same_as<std::int32_t>;
  run.enter_sink();  // a guard: while it lives, start() and step() throw
};

namespace detail {

/// Gives the sink what counts of a round's tokens, and adds their number to `out`. Returns whether the text
/// ends, and puts down why.
template <class R, class Sink>
bool emit(R& run, Tokens fresh, const Limits& limits, Sink& sink, Generated& out) {
  fresh = fresh.first(std::min(fresh.size(), static_cast<std::size_t>(limits.max_new_tokens - out.tokens)));
  const auto stop = std::find_first_of(fresh.begin(), fresh.end(), limits.stop.begin(), limits.stop.end());
  const bool stopped = stop != fresh.end();
  if (stopped) fresh = fresh.first(static_cast<std::size_t>(stop - fresh.begin()) + 1);
  const auto given = static_cast<std::int32_t>(fresh.size());
  run.count_emitted(given);
  bool goes_on = true;
  {
    [[maybe_unused]] const auto inside = run.enter_sink();
    if constexpr (std::is_void_v<std::invoke_result_t<Sink&, Tokens>>)
      sink(fresh);
    else
      goes_on = sink(fresh);
  }
  out.tokens += run.emitted();
  if (run.emitted() < given)
    out.reason = FinishReason::cancelled;
  else if (stopped)
    out.reason = FinishReason::stop_token;
  else if (out.tokens >= limits.max_new_tokens)
    out.reason = FinishReason::limit;
  else if (!goes_on)
    out.reason = FinishReason::cancelled;
  else
    return false;
  return true;
}

}  // namespace detail

/// start(), then rounds until a limit is reached, the KV cache is full or the sink ends the text; each
/// round's tokens are passed to sink(Tokens). Returns the number of emitted tokens and the finish reason.
/// text() may hold a few more than were emitted: those that the last round accepted beyond the end; stats()
/// do not count them.
///
/// The same random source, passed again, writes the same text again: samples of one prompt need a `sequence`
/// each, PhiloxRandom{seed, sequence}.
///
/// A sink that returns false cancels. One that finds the text's end within the tokens that it is given, as
/// that of a stop string, keeps the first n of them by run.count_emitted(n), which cancels, too. A sink must
/// not call step(), start(), generate() or forget() of the run: they throw std::logic_error and change
/// nothing. Its exceptions propagate: text() then holds the tokens that it was given, and those few more if
/// that round was the last; step() and start() can continue.
///
/// Throws std::invalid_argument, before anything changes, for limits out of range, and what start() and
/// step() throw. Cost: theirs.
template <class C, TextRun<std::remove_reference_t<C>> R, class Sink>
Generated generate(R& run, Tokens prompt, const Limits& limits, C&& rng, Sink sink) {
  static_assert(TokenSink<Sink>,
                "a sink is called with specula::Tokens and returns nothing, or a bool: false cancels");
  validate(limits, run.vocab_size());
  run.start(prompt);
  Generated out;
  while (out.tokens < limits.max_new_tokens) {
    if (run.room() < 1) return {out.tokens, FinishReason::context_full};
    if (detail::emit(run, run.step(rng, limits.stop), limits, sink, out)) return out;
  }
  return out;
}

}  // namespace specula
