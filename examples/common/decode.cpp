#include "decode.hpp"

#include <algorithm>
#include <stdexcept>

#include <specula/run/limits.hpp>

namespace specula_examples {
namespace {

/// Prompts are fed to the models in pieces: a longer one keeps what is there of a shorter one (see
/// Speculator::start()), so reading it bit by bit computes nothing twice.
void start(specula::Pipeline& pipeline, Tokens prompt, const DecodeSettings& settings) {
  constexpr std::size_t kStep = 1024;  // whole pieces
  if (settings.prefill)
    for (std::size_t done = kStep; done + 1 < prompt.size(); done += kStep) {
      pipeline.start(prompt.first(done + 1));
      settings.prefill(done, prompt.size());
    }
  pipeline.start(prompt);
  if (settings.prefill) settings.prefill(prompt.size(), prompt.size());
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
  specula::PhiloxRandom rng(settings.seed, settings.sequence);
  Decoded out;
  const auto limit = static_cast<std::size_t>(std::max(0, settings.max_new_tokens));
  out.tokens.reserve(limit);
  pipeline.forget();
  start(pipeline, prompt, settings);
  std::size_t emitted = 0;  // of the last round
  for (bool stopped = false; !stopped && out.tokens.size() < limit;) {
    if (pipeline.room() < 1) {
      out.ending = specula::FinishReason::context_full;
      break;
    }
    Tokens fresh = pipeline.step(rng, settings.stop);
    fresh = fresh.first(std::min(fresh.size(), limit - out.tokens.size()));
    for (std::size_t i = 0; i < fresh.size() && !stopped; ++i) {
      const bool token =
          std::find(settings.stop.begin(), settings.stop.end(), fresh[i]) != settings.stop.end();
      stopped = (settings.ends && settings.ends(fresh[i])) || token;
      if (!stopped) continue;
      out.ending = token ? specula::FinishReason::stop_token : specula::FinishReason::cancelled;
      fresh = fresh.first(i + 1);
    }
    const std::size_t range = (prompt.size() + out.tokens.size() - 1) / kContextStep;
    if (range >= out.by_context.size()) out.by_context.resize(range + 1);
    ++out.by_context[range].rounds;
    out.by_context[range].new_tokens += static_cast<std::int64_t>(fresh.size());
    count_confidences(pipeline.proposal(), pipeline.result(), fresh.size(), out.by_confidence);
    out.tokens.insert(out.tokens.end(), fresh.begin(), fresh.end());
    emitted = fresh.size();
    out.draft_error = pipeline.draft_error();
    if (!out.draft_error.empty() && !settings.goes_on_plainly)
      throw std::runtime_error("the draft failed: " + out.draft_error);
    if (sink) sink(fresh, std::min(emitted, static_cast<std::size_t>(pipeline.result().accepted_count())));
  }
  out.stats = pipeline.stats() - before;
  if (emitted > 0)
    specula::count_emitted(out.stats, pipeline.proposal(), pipeline.result(),
                           static_cast<std::int32_t>(emitted));
  out.drafts = pipeline.drafts();
  for (std::size_t d = 0; d < out.drafts.size(); ++d)
    out.drafts[d].usage = out.drafts[d].usage - drafts_before[d].usage;
  out.prefill_seconds = out.stats.prefill_seconds;
  out.decode_seconds = out.stats.round_seconds;
  return out;
}

}  // namespace specula_examples
