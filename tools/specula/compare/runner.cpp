// SPDX-License-Identifier: MIT
#include "runner.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <specula/base/stopwatch.hpp>
#include <specula/pipeline.hpp>
#include <specula/study/benchmark.hpp>
#include "progress_bar.hpp"

namespace specula_tools {

std::vector<Outcome> Runner::run(const std::vector<std::string>& names,
                                 std::span<const std::vector<Token>> prompts, std::int32_t repeat) {
  return run_at({}, names, prompts, repeat).front();
}

std::vector<std::vector<Outcome>> Runner::run_at(std::span<const double> delays,
                                                 const std::vector<std::string>& names,
                                                 std::span<const std::vector<Token>> prompts,
                                                 std::int32_t repeat) {
  std::vector<std::unique_ptr<specula::Pipeline>> pipelines;
  std::vector<Contender> contenders;
  for (std::size_t d = 0; d < std::max<std::size_t>(1, delays.size()); ++d)
    for (const auto& name : names) {
      pipelines.push_back(engine_.build(name, options_.sampling));
      contenders.push_back({name, pipelines.back().get(), prepare_named(name).lossy});
      if (!delays.empty()) contenders.back().before = [this, delay = delays[d]] { engine_.set_delay(delay); };
    }
  auto all =
      compare(contenders, prompts, {options_.max_new_tokens, stop_, options_.seed, repeat}, ProgressBar());
  std::vector<std::vector<Outcome>> by_delay;
  for (std::size_t at = 0; at < all.size(); at += names.size()) {
    const auto begin = std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(at));
    by_delay.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(names.size()));
  }
  return by_delay;
}

std::vector<std::vector<BatchRuns>> Runner::run_batches(const std::vector<std::string>& names,
                                                        std::span<const std::int32_t> texts,
                                                        std::span<const std::vector<Token>> prompts,
                                                        std::int32_t repeat) {
  const CompareSettings settings{options_.max_new_tokens, stop_, options_.seed, repeat};
  std::vector<std::vector<BatchRuns>> all;
  std::size_t done = 0, total = 0;
  for (const std::int32_t at_once : texts)
    total += counted_texts(prompts.size(), at_once) * names.size() * static_cast<std::size_t>(repeat);
  ProgressBar bar;
  for (const std::int32_t at_once : texts) {
    std::vector<std::unique_ptr<TextBatch>> batches;
    for (const auto& name : names) batches.push_back(engine_.batch(name, options_.sampling, at_once));
    auto& own = all.emplace_back(names.size(), BatchRuns(prompts.size()));
    for (std::int32_t r = 0; r < repeat; ++r)
      for (std::size_t turn = 0; turn < names.size(); ++turn) {
        const std::size_t c = specula::detail::in_turn(static_cast<std::size_t>(r), turn, names.size());
        write_full(*batches[c], prompts, at_once, settings, options_.sampling,
                   specula::detail::monotonic_seconds, own[c], [&] { bar(++done, total); });
      }
  }
  return all;
}

std::vector<std::string> with_plain(const Engine& engine, std::vector<std::string> names,
                                    const CostCoefficients& known) {
  for (std::size_t n = 0, count = names.size(); n < count; ++n)
    for (const auto& draft : prepare_named(names[n]).drafts) {
      std::string own = "autoregressive@" + draft;
      if (!known.contains(draft) && engine.decodes_alone(draft) &&
          std::find(names.begin(), names.end(), own) == names.end())
        names.push_back(std::move(own));
    }
  return names;
}

}  // namespace specula_tools
