// The exact law of the text of a pipeline, against the target's own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include <specula/specula.hpp>

#include "exact_chance.hpp"
#include "plain_law.hpp"
#include "toy_model.hpp"

namespace specula_test {

inline std::vector<double> law_after(const ToyModel& model, const std::vector<Token>& text,
                                     const specula::SamplingParams& params) {
  std::vector<float> row(static_cast<std::size_t>(model.vocab_size()));
  model.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
  return plain_law(row, params);
}

struct Law {
  double error = 0;  // largest difference of a text's probability
  double mat = 0;    // mean tokens a round
  std::int64_t leaves = 0, reused = 0;
};

using TextLaw = std::map<std::vector<Token>, double>;

/// Largest difference between `law` and the target's law of the next `horizon` tokens, which
/// law_after(target, text, params) says.
template <class Target>
double distance(const TextLaw& law, const Target& target, const specula::SamplingParams& params,
                const std::vector<Token>& prompt, std::size_t horizon) {
  TextLaw want{{prompt, 1.0}};
  for (std::size_t i = 0; i < horizon; ++i) {
    TextLaw longer;
    for (const auto& [text, weight] : want) {
      const std::vector<double> p = law_after(target, text, params);
      for (std::size_t x = 0; x < p.size(); ++x) {
        std::vector<Token> next = text;
        next.push_back(static_cast<Token>(x));
        longer[next] = weight * p[x];
      }
    }
    want = std::move(longer);
  }
  double error = 0;
  for (const auto& [text, weight] : want)
    error = std::max(error, std::abs(weight - (law.count(text) ? law.at(text) : 0.0)));
  for (const auto& [text, weight] : law)
    if (!want.count(text)) error = std::max(error, weight);
  return error;
}

/// Whole pipelines over several rounds: one enumeration of everything, so that coins and state across rounds
/// count.
template <class Pipeline, class Target>
Law whole_law(Pipeline& run, const Target& target, const specula::SamplingParams& params,
              const std::vector<Token>& prompt, std::size_t horizon, CoinKey key = CoinKey::site) {
  const Arithmetic exact(specula::detail::Isa::reference);
  ExactChance chance(key);
  TextLaw law;
  Law out;
  do {
    chance.begin();
    run.start(prompt);
    double tokens = 0, rounds = 0;
    while (run.text().size() < prompt.size() + horizon)
      tokens += static_cast<double>(run.step(chance).size()), ++rounds;
    const Tokens text = run.text().first(prompt.size() + horizon);
    law[{text.begin(), text.end()}] += chance.weight();
    out.mat += chance.weight() * tokens / rounds;
    ++out.leaves;
  } while (chance.next());
  out.reused = chance.reused();
  out.error = distance(law, target, params, prompt, horizon);
  return out;
}

/// The same from one-round enumerations, one for each distinct text: the cost does not multiply over rounds.
template <class Pipeline, class Target>
Law composed_law(Pipeline& run, const Target& target, const specula::SamplingParams& params,
                 const std::vector<Token>& prompt, std::size_t horizon,
                 specula::detail::Isa isa = specula::detail::Isa::reference) {
  const Arithmetic arithmetic(isa);
  std::vector<TextLaw> at(horizon + 1);
  at[0][prompt] = 1;
  Law out;
  for (std::size_t length = 0; length < horizon; ++length)
    for (const auto& [text, weight] : at[length]) {
      ExactChance chance;
      do {
        chance.begin();
        run.start(text);
        run.step(chance);
        const Tokens now = run.text().first(std::min(run.text().size(), prompt.size() + horizon));
        at[now.size() - prompt.size()][{now.begin(), now.end()}] += weight * chance.weight();
        ++out.leaves;
      } while (chance.next());
    }
  out.error = distance(at[horizon], target, params, prompt, horizon);
  return out;
}

}  // namespace specula_test
