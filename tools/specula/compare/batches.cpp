// SPDX-License-Identifier: MIT
#include "batches.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include <specula/base/read_number.hpp>

#include "braces.hpp"
#include "errors.hpp"
#include "median.hpp"
#include "report.hpp"
#include "text_table.hpp"

namespace specula_tools {
namespace {

constexpr std::int32_t kMostTexts = 1024;

/// A text that is being written.
struct Writing {
  std::size_t prompt = 0;
  bool counts = true;  // or it only keeps the batch full
  bool reads = true;   // has not written yet
  double written = 0;  // in this round
};

/// The value below which a share of them lies, at most.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

/// Timed tokens and the seconds that they took, by prompt: a token's time is the median over repetitions.
RatioTerms speed_terms(const BatchRuns& runs) {
  RatioTerms terms;
  for (std::size_t p = 0; p < runs.tokens.size(); ++p) {
    double tokens = 0;
    std::vector<double> each;
    for (std::size_t r = 0; r < runs.written.size(); ++r) {
      tokens += runs.written[r][p];
      if (runs.written[r][p] > 0) each.push_back(runs.seconds[r][p] / runs.written[r][p]);
    }
    terms.add(tokens, each.empty() ? 0 : tokens * median(each));
  }
  return terms;
}

}  // namespace

void write_full(TextBatch& batch, std::span<const std::vector<Token>> prompts, std::int32_t texts,
                const CompareSettings& settings, const specula::SamplingParams& params,
                const std::function<double()>& clock, BatchRuns& runs, const std::function<void()>& ended) {
  const std::size_t counted = counted_texts(prompts.size(), texts);
  const bool first = runs.written.empty();
  auto& written = runs.written.emplace_back(prompts.size());
  auto& seconds = runs.seconds.emplace_back(prompts.size());
  std::map<specula::TextId, std::shared_ptr<Writing>> writing;
  std::size_t joined = 0, done = 0;
  const std::int64_t timed_before = runs.rounds;
  const auto join = [&] {
    const auto own =
        std::make_shared<Writing>(Writing{.prompt = joined % prompts.size(), .counts = joined < counted});
    specula::TextRequest request;
    request.prompt = prompts[own->prompt];
    request.max_new_tokens = settings.max_new_tokens;
    request.stop = settings.stop;
    request.params = params;
    request.seed = settings.seed;
    request.sequence = static_cast<std::uint32_t>(joined++);
    request.sink = [own](Tokens fresh) {
      own->written += static_cast<double>(fresh.size()), own->reads = false;
      return true;
    };
    writing.emplace(batch.join(std::move(request)), own);
  };
  while (done < counted) {
    while (batch.waiting() < texts) join();
    bool timed = true;
    for (auto& [id, text] : writing) timed &= !text->reads, text->written = 0;
    const double passes = batch.pass_seconds(), began = clock();
    const std::vector<specula::TextResult>& results = batch.step();
    const double took = clock() - began;
    if (timed) {
      ++runs.rounds;
      runs.timed += took;
      runs.passes += batch.pass_seconds() - passes;
      for (const auto& [id, text] : writing) {
        written[text->prompt] += text->written;
        seconds[text->prompt] += took / texts;
      }
    }
    for (const specula::TextResult& result : results) {
      const auto found = writing.find(result.id);
      if (found == writing.end()) continue;  // of the repetition before, cancelled at its end
      if (result.failure) std::rethrow_exception(result.failure);
      if (result.stats.failed_drafts > 0)
        throw std::runtime_error("the draft failed: " + batch.draft_error(result.id));
      const Writing& own = *found->second;
      if (own.counts && first && runs.tokens[own.prompt].empty()) runs.tokens[own.prompt] = result.tokens;
      done += own.counts;
      if (own.counts && ended) ended();
      writing.erase(found);
    }
  }
  for (const auto& [id, text] : writing) batch.cancel(id);
  if (runs.rounds == timed_before)
    throw std::invalid_argument("--batch: with " + std::to_string(texts) + " texts of at most " +
                                std::to_string(settings.max_new_tokens) +
                                " new tokens each there was no round in which none read its prompt");
}

std::vector<BatchFigures> batch_figures(std::span<const std::string> pipelines,
                                        std::span<const std::int32_t> texts,
                                        const std::vector<std::vector<BatchRuns>>& runs,
                                        const Outcome& alone) {
  std::optional<Bootstrap> bootstrap;
  if (alone.prompts.size() > 1) bootstrap.emplace(alone.prompts.size());
  const auto ratio = [&](const RatioTerms& a) {
    return bootstrap ? bootstrap->of(a) : Interval{a.ratio(), a.ratio(), a.ratio()};
  };
  const auto between = [&](const RatioTerms& a, const RatioTerms& b) {
    const double value = RatioTerms::quotient(a.ratio(), b.ratio());
    return bootstrap ? bootstrap->of(a, b) : Interval{value, value, value};
  };
  std::vector<RatioTerms> one;
  for (const BatchRuns& own : runs.front()) one.push_back(speed_terms(own));
  std::vector<BatchFigures> all;
  for (std::size_t b = 0; b < texts.size(); ++b) {
    const RatioTerms plain = speed_terms(runs[b].front());
    for (std::size_t c = 0; c < pipelines.size(); ++c) {
      const BatchRuns& own = runs[b][c];
      const RatioTerms terms = speed_terms(own);
      BatchFigures f;
      f.name = pipelines[c], f.texts = texts[b];
      f.tokens_per_second = ratio(terms);
      f.over_plain = between(terms, plain);
      f.over_fewest = between(terms, one[c]);
      std::vector<double> latencies;
      double tokens = 0;
      for (std::size_t p = 0; p < terms.over.size(); ++p) {
        tokens += terms.over[p];
        if (terms.over[p] > 0) latencies.push_back(1e3 * texts[b] * terms.under[p] / terms.over[p]);
      }
      if (!latencies.empty()) f.milliseconds_per_token = median(latencies);
      f.slowest_tenth = quantile(latencies, 0.9);
      f.tokens_per_round = RatioTerms::quotient(tokens, static_cast<double>(own.rounds) * texts[b]);
      f.own_share = own.timed > 0 ? 1 - own.passes / own.timed : 0;
      for (std::size_t p = 0; p < own.tokens.size(); ++p)
        f.identical_to_alone += own.tokens[p] == alone.prompts[p].first.tokens;
      f.prompts = static_cast<std::int64_t>(own.tokens.size());
      all.push_back(std::move(f));
    }
  }
  return all;
}

std::string batch_table(std::span<const BatchFigures> all) {
  std::vector<std::vector<std::string>> rows{{"texts, pipeline", "tokens/s", "over plain", "over fewest",
                                              "ms/token", "slowest tenth", "tokens/round", "own share",
                                              "same text"}};
  const std::size_t digits = all.empty() ? 0 : std::to_string(all.back().texts).size();
  for (const BatchFigures& f : all) {
    const std::string texts = std::to_string(f.texts);
    rows.push_back(
        {std::string(digits - texts.size(), ' ') + texts + "  " + f.name, fixed(f.tokens_per_second.value, 1),
         interval_text(f.over_plain.value, &f.over_plain, "x"), fixed(f.over_fewest.value, 2) + "x",
         fixed(f.milliseconds_per_token, 2), fixed(f.slowest_tenth, 2), fixed(f.tokens_per_round, 2),
         fixed(100 * f.own_share, 2) + "%",
         std::to_string(f.identical_to_alone) + "/" + std::to_string(f.prompts)});
  }
  return text_table(rows);
}

nlohmann::ordered_json batch_json(std::span<const BatchFigures> all) {
  const auto ends = [](const Interval& i) { return nlohmann::ordered_json{i.value, i.low, i.high}; };
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const BatchFigures& f : all) {
    if (out.empty() || out.back()["texts"] != f.texts)
      out.push_back({{"texts", f.texts}, {"pipelines", nlohmann::ordered_json::array()}});
    out.back()["pipelines"].push_back({{"name", f.name},
                                       {"tokens_per_second", ends(f.tokens_per_second)},
                                       {"over_plain", ends(f.over_plain)},
                                       {"over_fewest_texts", ends(f.over_fewest)},
                                       {"milliseconds_per_token", f.milliseconds_per_token},
                                       {"slowest_tenth", f.slowest_tenth},
                                       {"tokens_per_round", f.tokens_per_round},
                                       {"own_share", f.own_share},
                                       {"identical_to_alone", f.identical_to_alone}});
  }
  return out;
}

std::vector<std::int32_t> parse_batches(const std::string& text) {
  std::vector<std::int32_t> texts;
  for (const std::string& word : split_list(text)) {
    std::int32_t n = 0;
    if (!specula::detail::read_number(word, n) || n < 1 || n > kMostTexts ||
        (!texts.empty() && n <= texts.back()))
      throw UsageError("--batch '" + text + "': ascending numbers of texts, each of 1 to " +
                       std::to_string(kMostTexts) + ", separated by commas");
    texts.push_back(n);
  }
  return texts;
}

}  // namespace specula_tools
