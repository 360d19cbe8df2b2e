// SPDX-License-Identifier: MIT
// A benchmark of policies: all pipelines decode the same prompts in turn, in one run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/run/speculator.hpp"
#include "specula/study/bootstrap.hpp"

namespace specula {

/// Options of a comparison of pipelines.
struct BenchmarkOptions {
  std::int32_t max_new_tokens = 128;  ///< per prompt
  std::vector<Token> stop = {};       ///< any of these ends a text
  std::int32_t repeat = 3;            ///< runs per prompt: its time is their median
  std::uint64_t seed = 0;             ///< prompt i uses sequence i of this seed, in every pipeline
};

/// The figures of one pipeline. Times are those of the rounds, without prefill.
struct PolicyFigures {
  std::string name;       ///< as given
  double mat = 0;         ///< mean acceptance length: emitted tokens per round, pooled over prompts
  double acceptance = 0;  ///< acceptance rate: accepted draft tokens over those under an accepted path; those
                          ///< beyond the text's end are not counted
  double microseconds_per_token = 0;  ///< pooled over prompts
  /// Of that: time outside the models, in shape, rule and sampling. Includes policies without usage().
  double own_microseconds_per_token = 0;
  Interval speedup;  ///< the first pipeline's time per token over this one's, both pooled over prompts
  std::int64_t same_texts = 0;  ///< prompts whose text is, token for token, the first pipeline's
};

namespace detail {

/// Index of the pipeline, of `count`, at turn `turn` of rotation `rotation`. Each is first once per `count`
/// rotations, and every other set of rotations is reversed, so that no pipeline always follows the same one.
constexpr std::size_t in_turn(std::size_t rotation, std::size_t turn, std::size_t count) {
  return (rotation + (rotation / count % 2 ? count - 1 - turn : turn)) % count;
}

/// Median: for an even number of values the mean of the middle two; 0 for none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace detail

/// Compares the caller's own rule, shape or drafter with those of the library: pipelines that differ only in
/// the compared policy. They take turns prompt by prompt, so that disturbances of the machine affect all
/// alike, and may share models: each starts every text from scratch.
///
///   PolicyBenchmark benchmark(prompts, {.max_new_tokens = 128});
///   benchmark.add("ours", ours);
///   benchmark.add("mine", mine);
///   std::cout << to_text(benchmark.run());
///
/// The confidence interval of the speedup is over prompts: it holds for other prompts of the same kind. More
/// prompts narrow it, more repetitions do not.
class PolicyBenchmark {
 public:
  /// Throws std::invalid_argument for fewer than two prompts (one has no interval) or more than 65,535, an
  /// empty one, or an option out of range.
  explicit PolicyBenchmark(std::vector<std::vector<Token>> prompts, BenchmarkOptions options = {})
      : prompts_(std::move(prompts)), options_(std::move(options)) {
    detail::expect_in("PolicyBenchmark: prompts.size()", prompts_.size(), std::size_t{2}, Bootstrap::kMost);
    for (std::size_t p = 0; p < prompts_.size(); ++p)
      if (prompts_[p].empty())
        throw std::invalid_argument("PolicyBenchmark: prompt " + std::to_string(p) + " is empty");
    constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
    detail::expect_in("PolicyBenchmark: max_new_tokens", options_.max_new_tokens, 1, most);
    detail::expect_in("PolicyBenchmark: repeat", options_.repeat, 1, most);
  }

  PolicyBenchmark(const PolicyBenchmark&) = delete;  // the callbacks of add() refer to this object
  PolicyBenchmark& operator=(const PolicyBenchmark&) = delete;

  /// The pipeline is referenced. The first is the baseline of the others.
  template <class V, class D, class S>
  void add(std::string name, Speculator<V, D, S>& pipeline) {
    policies_.push_back({std::move(name), [this, &pipeline](std::size_t prompt, std::int32_t limit) {
                           return decode(pipeline, prompt, limit);
                         }});
  }

  /// One entry per pipeline, in the order of add(). Throws what a pipeline throws, std::runtime_error if a
  /// draft fails, and std::logic_error if there is no pipeline. Cost: repeat x prompts texts of each
  /// pipeline, and 16 tokens of each to warm up.
  std::vector<PolicyFigures> run() {
    if (policies_.empty()) throw std::logic_error("PolicyBenchmark::run: call add() first");
    const std::size_t count = policies_.size(), repeat = static_cast<std::size_t>(options_.repeat);
    for (Policy& policy : policies_) policy.decode(0, std::min(options_.max_new_tokens, 16));
    std::vector<std::vector<Run>> runs(count);  // (policies, prompts x repeat)
    for (std::size_t p = 0; p < prompts_.size(); ++p)
      for (std::size_t r = 0; r < repeat; ++r)
        for (std::size_t turn = 0; turn < count; ++turn) {
          const std::size_t c = detail::in_turn(p + r, turn, count);
          runs[c].push_back(policies_[c].decode(p, options_.max_new_tokens));
        }
    std::vector<PolicyFigures> all;
    const Bootstrap bootstrap(prompts_.size());
    for (std::size_t c = 0; c < count; ++c)
      all.push_back(figures(policies_[c].name, runs[c], runs[0], bootstrap));
    return all;
  }

 private:
  struct Run {
    std::vector<Token> text;  // emitted
    double seconds = 0, overhead = 0;
    std::int64_t rounds = 0, offered = 0, accepted = 0;
  };
  struct Policy {
    std::string name;
    std::function<Run(std::size_t prompt, std::int32_t limit)> decode;
  };

  template <class Pipeline>
  Run decode(Pipeline& pipeline, std::size_t prompt, std::int32_t limit) const {
    const auto sum = [](const std::vector<std::int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    pipeline.forget();  // all prefill the whole prompt
    const Stats before = pipeline.stats();
    Run run;
    pipeline.generate(prompts_[prompt], {.max_new_tokens = limit, .stop = options_.stop},
                      PhiloxRandom(options_.seed, static_cast<std::uint32_t>(prompt)),
                      [&](Tokens fresh) { run.text.insert(run.text.end(), fresh.begin(), fresh.end()); });
    const Stats spent = pipeline.stats() - before;
    if (spent.failed_drafts > 0)
      throw std::runtime_error(
          "PolicyBenchmark: the draft failed, so the figures would be plain decoding's: " +
          pipeline.draft_error());
    run.seconds = spent.round_seconds;
    run.overhead = spent.overhead_seconds();
    run.rounds = spent.rounds;
    run.offered = sum(spent.offered);
    run.accepted = sum(spent.accepted);
    return run;
  }

  PolicyFigures figures(const std::string& name, const std::vector<Run>& runs, const std::vector<Run>& first,
                        const Bootstrap& bootstrap) const {
    const std::size_t repeat = static_cast<std::size_t>(options_.repeat);
    const auto seconds_of = [&](const std::vector<Run>& all, std::size_t p, double Run::*what) {
      std::vector<double> times;
      for (std::size_t r = 0; r < repeat; ++r) times.push_back(all[p * repeat + r].*what);
      return detail::median(times);
    };
    const auto tokens_of = [](const Run& run) { return static_cast<double>(run.text.size()); };
    PolicyFigures out;
    out.name = name;
    double tokens = 0, rounds = 0, seconds = 0, overhead = 0, offered = 0, accepted = 0;
    RatioTerms speed, first_speed;  // tokens per second
    for (std::size_t p = 0; p < prompts_.size(); ++p) {
      const Run& run = runs[p * repeat];  // all repetitions use the same uniform draws
      speed.add(tokens_of(run), seconds_of(runs, p, &Run::seconds));
      first_speed.add(tokens_of(first[p * repeat]), seconds_of(first, p, &Run::seconds));
      tokens += speed.over.back(), seconds += speed.under.back();
      overhead += seconds_of(runs, p, &Run::overhead);
      rounds += static_cast<double>(run.rounds);
      offered += static_cast<double>(run.offered), accepted += static_cast<double>(run.accepted);
      out.same_texts += run.text == first[p * repeat].text;
    }
    out.mat = rounds > 0 ? tokens / rounds : 0;
    out.acceptance = offered > 0 ? accepted / offered : 0;
    out.microseconds_per_token = tokens > 0 ? 1e6 * seconds / tokens : 0;
    out.own_microseconds_per_token = tokens > 0 ? 1e6 * overhead / tokens : 0;
    out.speedup = bootstrap.of(speed, first_speed);
    return out;
  }

  std::vector<std::vector<Token>> prompts_;
  BenchmarkOptions options_;
  std::vector<Policy> policies_;
};

/// A table: one line per pipeline under a line of headings.
inline std::string to_text(std::span<const PolicyFigures> all) {
  std::size_t width = 6;
  for (const PolicyFigures& f : all) width = std::max(width, f.name.size());
  const auto padded = [&](std::string name) { return name.append(width - name.size(), ' '); };
  std::string text =
      padded("policy") + "     MAT   alpha  us/token   own us  speedup (95%)        same text\n";
  for (const PolicyFigures& f : all) {
    using detail::fixed;
    text += padded(f.name) + "  " + fixed(f.mat, 2, 6) + "  " + fixed(f.acceptance, 3, 6) + "  " +
            fixed(f.microseconds_per_token, 1, 8) + " " + fixed(f.own_microseconds_per_token, 2, 8) + "  " +
            fixed(f.speedup.value, 3, 5) + " (" + fixed(f.speedup.low, 3) + "-" + fixed(f.speedup.high, 3) +
            ")  " + fixed(static_cast<double>(f.same_texts), 0, 9) + "\n";
  }
  return text;
}

}  // namespace specula
