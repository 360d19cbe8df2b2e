// SPDX-License-Identifier: MIT
#include "comparison.hpp"

#include <algorithm>

#include <specula/study/benchmark.hpp>
#include "median.hpp"

namespace specula_tools {
namespace {

constexpr std::int32_t kWarmUpTokens = 16;

/// Adds to the sums of an Outcome or of a PromptResult.
template <class Sums>
void pool(Sums& sums, const specula::Stats& stats, const std::vector<specula::DraftUsage>& drafts) {
  sums.pooled += stats;
  if (sums.drafts.empty()) {
    sums.drafts = drafts;
    return;
  }
  for (std::size_t d = 0; d < drafts.size(); ++d) sums.drafts[d].usage += drafts[d].usage;
}

}  // namespace

std::vector<Outcome> compare(std::span<const Contender> contenders,
                             std::span<const std::vector<Token>> prompts, const CompareSettings& settings,
                             const Progress& progress) {
  const auto repeat = static_cast<std::size_t>(std::max(1, settings.repeat));
  std::vector<Outcome> outcomes;
  for (const auto& contender : contenders)
    outcomes.push_back({.name = contender.name,
                        .lossy = contender.lossy,
                        .prompts = {},
                        .pooled = {},
                        .drafts = {},
                        .reviews = {}});
  const DecodeSettings base{
      .max_new_tokens = settings.max_new_tokens, .stop = settings.stop, .seed = settings.seed};
  if (!prompts.empty())
    for (const auto& contender : contenders) {
      DecodeSettings warm_up = base;
      warm_up.max_new_tokens = std::min(kWarmUpTokens, base.max_new_tokens);
      if (contender.before) contender.before();
      decode(*contender.pipeline, prompts.front(), warm_up);
    }

  std::size_t done = 0;
  const std::size_t total = prompts.size() * contenders.size() * repeat;
  std::vector<std::vector<double>> prefill(contenders.size()), decoding(contenders.size());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    for (std::size_t c = 0; c < contenders.size(); ++c) prefill[c].clear(), decoding[c].clear();
    for (std::size_t r = 0; r < repeat; ++r) {
      for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
        const std::size_t c = specula::detail::in_turn(p + r, turn, contenders.size());
        DecodeSettings run_settings = base;
        run_settings.sequence = static_cast<std::uint32_t>(p);
        if (contenders[c].before) contenders[c].before();
        Decoded run = decode(*contenders[c].pipeline, prompts[p], run_settings);
        prefill[c].push_back(run.prefill_seconds);
        decoding[c].push_back(run.decode_seconds);
        if (r == 0) outcomes[c].prompts.emplace_back();
        PromptResult& result = outcomes[c].prompts.back();
        pool(outcomes[c], run.stats, run.drafts);
        pool(result, run.stats, run.drafts);
        if (r == 0) result.first = std::move(run);
        if (progress) progress(++done, total);
      }
    }
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      outcomes[c].prompts.back().prefill_seconds = median(prefill[c]);
      outcomes[c].prompts.back().decode_seconds = median(decoding[c]);
    }
  }
  for (std::size_t c = 0; c < contenders.size(); ++c) outcomes[c].reviews = contenders[c].pipeline->reviews();
  return outcomes;
}

Outcome only(const Outcome& outcome, std::span<const std::size_t> prompts) {
  Outcome out{
      .name = outcome.name, .lossy = outcome.lossy, .prompts = {}, .pooled = {}, .drafts = {}, .reviews = {}};
  for (const std::size_t p : prompts) {
    const PromptResult& result = outcome.prompts.at(p);
    pool(out, result.pooled, result.drafts);
    out.prompts.push_back(result);
  }
  return out;
}

}  // namespace specula_tools
