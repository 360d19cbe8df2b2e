// SPDX-License-Identifier: MIT
// Exact distribution of a pipeline's text, compared with the target's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/specula.hpp>

#include "exact_random.hpp"
#include "plain_distribution.hpp"
#include "toy_model.hpp"
#include "worst.hpp"

namespace specula_test {

inline constexpr specula::SamplingParams kPlain{}, kWarm{.temperature = 0.8f, .top_k = 2},
    kGreedy{.temperature = 0};

/// A prompt of toy models with these many tokens.
inline std::vector<Token> prompt_for(std::int32_t tokens) {
  return {0, toy_token(tokens - 1, tokens), 0, tokens > 1 ? toy_token(1, tokens) : 0, 0};
}

inline std::vector<double> distribution_after(const ToyModel& model, const std::vector<Token>& text,
                                              const specula::SamplingParams& params) {
  std::vector<float> row(static_cast<std::size_t>(model.vocab_size()));
  model.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
  return plain_distribution(row, params);
}

struct EmittedDistribution {
  double error = 0;  // largest difference of a text's probability
  double mat = 0;    // emitted tokens per round
  std::int64_t leaves = 0, reused = 0;
  std::int64_t failed = 0;  // leaves of which the draft failed
  std::int64_t ended = 0;   // draft tokens that end the text, of a pipeline EndingAt
};

/// A draft that fails unexpectedly would leave plain decoding to be enumerated.
enum class Drafts { work, may_fail };

template <class Pipeline>
bool failed(const Pipeline& run, Drafts drafts) {
  const std::string error = run.draft_error();
  if (!error.empty() && drafts == Drafts::work) throw std::logic_error("the draft failed: " + error);
  return !error.empty();
}

/// A pipeline whose drafts end at a token, unless it is kNoToken. Its texts go on, so that the tokens behind
/// are enumerated, too. A proposal that goes on throws.
template <class Run>
class EndingAt {
 public:
  EndingAt(Run& run, Token stop) : run_(run), stop_(stop) {}

  void start(Tokens prompt) { run_.start(prompt); }
  template <class C>
  Tokens step(C& rng) {
    if (stop_ == specula::kNoToken) return run_.step(rng);
    const Tokens fresh = run_.step(rng, {&stop_, 1});
    const specula::TokenTree& tree = run_.proposal();
    for (specula::NodeId node = 1; node < tree.size(); ++node) {
      ended += tree.token(node) == stop_;
      if (tree.parent(node) != 0 && tree.token(tree.parent(node)) == stop_)
        throw std::logic_error("a draft token follows one that ends the text");
    }
    return fresh;
  }
  Tokens text() const { return run_.text(); }
  std::string draft_error() const { return run_.draft_error(); }

  std::int64_t ended = 0;  // draft tokens that end the text

 private:
  Run& run_;
  Token stop_;
};

using TextDistribution = std::map<std::vector<Token>, double>;

/// Largest difference between `distribution` and the target's distribution of the next `horizon` tokens, as
/// computed by distribution_after(target, text, params).
template <class Target>
double distance(const TextDistribution& distribution, const Target& target,
                const specula::SamplingParams& params, const std::vector<Token>& prompt,
                std::size_t horizon) {
  TextDistribution want{{prompt, 1.0}};
  for (std::size_t i = 0; i < horizon; ++i) {
    TextDistribution longer;
    for (const auto& [text, weight] : want) {
      const std::vector<double> p = distribution_after(target, text, params);
      for (std::size_t x = 0; x < p.size(); ++x) {
        if (p[x] == 0) continue;
        std::vector<Token> next = text;
        next.push_back(static_cast<Token>(x));
        longer[next] = weight * p[x];
      }
    }
    want = std::move(longer);
  }
  double error = 0;
  for (const auto& [text, weight] : want)
    error = worse(error, std::abs(weight - (distribution.count(text) ? distribution.at(text) : 0.0)));
  for (const auto& [text, weight] : distribution)
    if (!want.count(text)) error = std::max(error, weight);
  return error;
}

/// Enumerates whole pipelines over several rounds, and so covers uniform draws and state across rounds.
template <class Pipeline, class Target>
EmittedDistribution whole_distribution(Pipeline& run, const Target& target,
                                       const specula::SamplingParams& params,
                                       const std::vector<Token>& prompt, std::size_t horizon,
                                       RandomKeying keying = RandomKeying::key,
                                       Drafts drafts = Drafts::work) {
  const Arithmetic exact(specula::Isa::reference);
  ExactRandom rng(keying);
  TextDistribution distribution;
  EmittedDistribution out;
  do {
    rng.begin();
    run.start(prompt);
    double tokens = 0, rounds = 0;
    while (run.text().size() < prompt.size() + horizon)
      tokens += static_cast<double>(run.step(rng).size()), ++rounds;
    const Tokens text = run.text().first(prompt.size() + horizon);
    distribution[{text.begin(), text.end()}] += rng.weight();
    out.mat += rng.weight() * tokens / rounds;
    ++out.leaves;
    out.failed += failed(run, drafts);
  } while (rng.next());
  out.reused = rng.reused();
  out.error = distance(distribution, target, params, prompt, horizon);
  return out;
}

/// The same from one-round enumerations, one per distinct text, whose cost does not multiply over rounds.
template <class Pipeline, class Target>
EmittedDistribution composed_distribution(Pipeline& run, const Target& target,
                                          const specula::SamplingParams& params,
                                          const std::vector<Token>& prompt, std::size_t horizon,
                                          specula::Isa isa = specula::Isa::reference,
                                          Drafts drafts = Drafts::work) {
  const Arithmetic arithmetic(isa);
  std::vector<TextDistribution> at(horizon + 1);
  at[0][prompt] = 1;
  EmittedDistribution out;
  for (std::size_t length = 0; length < horizon; ++length)
    for (const auto& [text, weight] : at[length]) {
      ExactRandom rng;
      do {
        rng.begin();
        run.start(text);
        run.step(rng);
        const Tokens now = run.text().first(std::min(run.text().size(), prompt.size() + horizon));
        at[now.size() - prompt.size()][{now.begin(), now.end()}] += weight * rng.weight();
        ++out.leaves;
        out.failed += failed(run, drafts);
      } while (rng.next());
    }
  out.error = distance(at[horizon], target, params, prompt, horizon);
  return out;
}

}  // namespace specula_test
