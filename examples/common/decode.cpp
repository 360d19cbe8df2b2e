#include "decode.hpp"

#include <algorithm>

namespace specula_examples {

Decoded decode(Pipeline& pipeline, Tokens prompt, const DecodeSettings& settings, const RoundSink& sink) {
  const specula::Stats before = pipeline.stats();
  const std::vector<DraftUsage> drafts_before = pipeline.drafts();
  specula::PhiloxChance chance(settings.seed, settings.sequence);
  Decoded out;
  const auto limit = static_cast<std::size_t>(std::max(0, settings.max_new_tokens));
  out.tokens.reserve(limit);
  pipeline.forget();
  pipeline.start(prompt);
  std::size_t emitted = 0;  // of the last round
  for (bool stopped = false; !stopped && out.tokens.size() < limit && pipeline.room() >= 1;) {
    Tokens fresh = pipeline.step(chance);
    fresh = fresh.first(std::min(fresh.size(), limit - out.tokens.size()));
    const auto stop =
        std::find_first_of(fresh.begin(), fresh.end(), settings.stop.begin(), settings.stop.end());
    stopped = stop != fresh.end();
    if (stopped) fresh = fresh.first(static_cast<std::size_t>(stop - fresh.begin()) + 1);
    const std::size_t range = (prompt.size() + out.tokens.size() - 1) / kContextStep;
    if (range >= out.by_context.size()) out.by_context.resize(range + 1);
    ++out.by_context[range].rounds;
    out.by_context[range].new_tokens += static_cast<std::int64_t>(fresh.size());
    out.tokens.insert(out.tokens.end(), fresh.begin(), fresh.end());
    emitted = fresh.size();
    if (sink) sink(fresh, std::min(emitted, static_cast<std::size_t>(pipeline.verdict().accepted())));
  }
  out.stats = pipeline.stats() - before;
  if (emitted > 0)
    specula::count_emitted(out.stats, pipeline.proposal(), pipeline.verdict(),
                           static_cast<std::int32_t>(emitted));
  out.drafts = pipeline.drafts();
  for (std::size_t d = 0; d < out.drafts.size(); ++d)
    out.drafts[d].usage = out.drafts[d].usage - drafts_before[d].usage;
  out.prefill_seconds = out.stats.prefill_seconds;
  out.decode_seconds = out.stats.round_seconds;
  return out;
}

}  // namespace specula_examples
