// SPDX-License-Identifier: MIT
#include "decode.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <specula/run/limits.hpp>

namespace specula_tools {
namespace {

/// Prompts are fed to the models in pieces: a longer one keeps what is there of a shorter one (see
/// Speculator::start()), so reading it bit by bit computes nothing twice. generate() reads the rest. Returns
/// false if it was interrupted.
bool read_in_parts(specula::Pipeline& pipeline, Tokens prompt, const DecodeSettings& settings) {
  constexpr std::size_t kStep = 128;  // tokens of a pass of the CPU model
  if (!settings.prefill) return true;
  Tokens text;  // that is kept: a shorter prompt than what it shares with that would drop the rest
  if (settings.keeps_prefix) text = pipeline.text();
  const auto shared = static_cast<std::size_t>(
      std::mismatch(text.begin(), text.end(), prompt.begin(), prompt.end()).first - text.begin());
  const auto stops = [&] { return settings.interrupted && settings.interrupted(); };
  const std::size_t first = (shared / kStep + 1) * kStep;
  if (first + 1 < prompt.size()) settings.prefill(0, prompt.size());
  for (std::size_t done = first; done + 1 < prompt.size(); done += kStep) {
    pipeline.start(prompt.first(done + 1));
    settings.prefill(done, prompt.size());
    if (stops()) return false;
  }
  return true;
}

/// Adds the pipeline's last round, which emitted `fresh`. Returns how many of these were draft tokens.
std::size_t add_round(const specula::Pipeline& pipeline, Tokens fresh, Decoded& out) {
  const std::size_t range = (out.prompt_tokens + out.tokens.size() - 1) / kContextStep;
  if (range >= out.by_context.size()) out.by_context.resize(range + 1);
  ++out.by_context[range].rounds;
  out.by_context[range].new_tokens += static_cast<std::int64_t>(fresh.size());
  count_confidences(pipeline.proposal(), pipeline.result(), fresh.size(), out.by_confidence);
  const std::size_t accepted =
      std::min(fresh.size(), static_cast<std::size_t>(pipeline.result().accepted_count()));
  out.tokens.insert(out.tokens.end(), fresh.begin(), fresh.end());
  out.from_draft.resize(out.from_draft.size() + accepted, true);
  out.from_draft.resize(out.tokens.size(), false);
  out.draft_error = pipeline.draft_error();
  return accepted;
}

}  // namespace

void count_confidences(const specula::TokenTree& proposal, const specula::VerifyResult& result,
                       std::size_t emitted, ByConfidence& ranges) {
  // Token d + 1 of a round comes from the children of node d of its path.
  for (std::size_t d = 0; d < std::min(emitted, result.accepted.size()); ++d)
    proposal.children(result.accepted[d], [&](specula::NodeId draft_token) {
      const auto tenth =
          static_cast<std::size_t>(10 * std::clamp(proposal.confidence(draft_token), 0.0f, 1.0f));
      ConfidenceRange& range = ranges[std::min(tenth, ranges.size() - 1)];
      ++range.proposals;
      range.accepted += d + 1 < result.accepted.size() && result.accepted[d + 1] == draft_token;
      return true;
    });
}

Decoded decode(specula::Pipeline& pipeline, Tokens prompt, const DecodeSettings& settings,
               const RoundSink& sink) {
  const specula::Stats before = pipeline.stats();
  const std::vector<specula::DraftUsage> drafts_before = pipeline.drafts();
  std::vector<Token> stop = settings.stop;  // of the tokenizer, which may have more tokens than the models
  std::erase_if(stop, [&](Token token) { return token < 0 || token >= pipeline.vocab_size(); });
  const specula::Limits limits{.max_new_tokens = std::max(0, settings.max_new_tokens), .stop = stop};
  Decoded out;
  out.tokens.reserve(static_cast<std::size_t>(limits.max_new_tokens));
  out.from_draft.reserve(out.tokens.capacity());
  if (settings.logprobs)
    pipeline.report_logprobs(*settings.logprobs);
  else
    pipeline.report_no_logprobs();
  if (settings.begin) settings.begin(prompt.size());
  if (!settings.keeps_prefix)
    pipeline.forget();  // or a prefix of an earlier text would make the prefill short
  bool is_read = false, ended = false;
  const auto show_as_read = [&] {
    if (settings.prefill && !std::exchange(is_read, true)) settings.prefill(prompt.size(), prompt.size());
  };
  out.prompt_tokens = prompt.size();
  if (!read_in_parts(pipeline, prompt, settings)) {
    show_as_read();
    out.ending = specula::FinishReason::cancelled;
    out.interrupted = true;
    out.stats = pipeline.stats() - before;
    out.prefill_seconds = out.stats.prefill_seconds;
    return out;
  }
  const specula::PhiloxRandom rng(settings.seed, settings.sequence);
  const specula::Generated done = pipeline.generate(prompt, limits, rng, [&](Tokens fresh) {
    show_as_read();
    if (settings.read && out.tokens.empty()) settings.read(prompt);
    if (settings.ends) {
      const auto last =
          std::find_if(fresh.begin(), fresh.end(), [&](Token token) { return settings.ends(token); });
      ended = last != fresh.end();
      if (ended) fresh = fresh.first(static_cast<std::size_t>(last - fresh.begin()) + 1);
      pipeline.count_emitted(static_cast<std::int32_t>(fresh.size()));
    }
    const std::size_t accepted = add_round(pipeline, fresh, out);
    if (!out.draft_error.empty() && !settings.goes_on_plainly)
      throw std::runtime_error("the draft failed: " + out.draft_error);
    if (settings.logprobs) out.logprobs.add(pipeline.logprobs().first(fresh.size()));
    if (sink) sink(fresh, accepted);
    out.interrupted = !ended && settings.interrupted && settings.interrupted();
    return !ended && !out.interrupted;
  });
  show_as_read();
  using specula::FinishReason;
  out.interrupted = out.interrupted && done.reason == FinishReason::cancelled;
  out.ending = ended && done.reason == FinishReason::limit ? FinishReason::cancelled : done.reason;
  out.stats = pipeline.stats() - before;
  out.drafts = pipeline.drafts();
  for (std::size_t d = 0; d < out.drafts.size(); ++d)
    out.drafts[d].usage = out.drafts[d].usage - drafts_before[d].usage;
  out.prefill_seconds = out.stats.prefill_seconds;
  out.decode_seconds = out.stats.round_seconds;
  return out;
}

}  // namespace specula_tools
