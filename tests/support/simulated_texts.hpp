// SPDX-License-Identifier: MIT
// Simulated texts and pass times, for tests of the policies that choose the draft length.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <specula/specula.hpp>

#include "random.hpp"
#include "simulated_costs.hpp"

namespace specula_test {

/// Quality of the draft at a position: the probability that its likeliest token is the target's, and its
/// confidence in that token.
struct Skill {
  double acceptance, confidence;
};

/// A machine, two models and texts. Unit of time: a pass of the target over one node.
struct World {
  Cost target;              // per pass, by nodes
  double draft = 0.1;       // a pass of the draft over one node
  double catch_up = 0.025;  // per token that the draft has not been fed
  std::function<Skill(std::int32_t text, std::int32_t place)> skill;
  std::int32_t texts = 8, tokens = 128, prompt = 100;
  std::int32_t waiting = 0;  // prompt tokens that the draft reads with its first call
  double jitter = 0.1;       // standard deviation of the logarithm of a measured time
  double spikes = 0.005;     // share of passes measured at ten times their time
  double change = 0;         // extra time of a pass whose number of nodes differs from the last
  std::uint64_t seed = 1;
};

/// Numbers that depend on the position in a text only, so that all shapes see the same texts.
inline Random at_place(const World& world, std::int32_t text, std::int32_t place) {
  return Random(world.seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(text) * 1000003u +
                static_cast<std::uint64_t>(place));
}
/// A token is its rank in the draft's row: 0 is the likeliest.
inline specula::Token token_at(const World& world, std::int32_t text, std::int32_t place) {
  Random random = at_place(world, text, place);
  if (random.bernoulli(world.skill(text, place).acceptance)) return 0;
  specula::Token rank = 1;
  while (rank < 7 && random.bernoulli(0.5)) ++rank;
  return rank;
}

/// True seconds, and measured ones.
class Clock {
 public:
  explicit Clock(const World& world) : world_(&world), random_(world.seed + 77) {}
  double measure(double seconds) {
    spent += seconds;
    if (world_->jitter == 0 && world_->spikes == 0) return seconds;
    const double normal =
        std::sqrt(-2 * std::log(1 - random_.uniform())) * std::cos(6.2831853 * random_.uniform());
    return seconds * std::exp(world_->jitter * normal) * (random_.bernoulli(world_->spikes) ? 10.0 : 1.0);
  }
  double spent = 0;

 private:
  const World* world_;
  Random random_;
};

/// A draft whose sync() takes time per token that it has not been fed, beyond its own draft tokens.
class SkilledDrafter {
 public:
  SkilledDrafter(const World& world, Clock& clock) : world_(&world), clock_(&clock) { rows_.reserve(64 * 8); }
  std::int32_t vocab_size() const { return 8; }
  std::int32_t capacity() const { return 1 << 20; }
  const specula::Usage& usage() const noexcept { return usage_; }
  void begin(std::int32_t text) {
    text_ = text;
    truncate(0);
    known_ = world_->prompt - 1 - world_->waiting;
  }
  void truncate(std::int32_t n) { known_ = std::min(known_, n), depths_.clear(); }
  void sync(specula::Tokens context, specula::Tokens draft_tokens) {
    const auto size = static_cast<std::int32_t>(context.size());
    const auto held = static_cast<std::int32_t>(depths_.size());
    const double missed = std::max(0, size - known_ - held);
    if (missed > 0) usage_.seconds += clock_->measure(world_->catch_up * missed);
    known_ = size, synced_ = static_cast<std::int32_t>(draft_tokens.size());
    depths_.clear();
  }
  specula::LogitsView extend(specula::Tokens tokens, specula::Nodes parents) {
    const auto n = static_cast<std::int32_t>(tokens.size());
    usage_.seconds += clock_->measure(world_->draft * (1 + 0.1 * (n - 1)));
    ++usage_.calls, usage_.nodes += n;
    rows_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      depths_.push_back(parents[i] == specula::kNoParent ? 0
                                                         : depths_[static_cast<std::size_t>(parents[i])] + 1);
      const double sure = world_->skill(text_, known_ + synced_ + 1 + depths_.back()).confidence;
      rows_.push_back(static_cast<float>(std::log(sure)));
      const double rest = std::log(1 - sure);
      for (int rank = 1; rank < 8; ++rank)
        rows_.push_back(static_cast<float>(rest - 0.6931472 * std::min(rank, 6)));
    }
    return {rows_.data(), n, 8, 8};
  }

 private:
  const World* world_;
  Clock* clock_;
  std::int32_t text_ = 0, known_ = 0, synced_ = 0;
  std::vector<std::int32_t> depths_;
  std::vector<float> rows_;
  specula::Usage usage_;
};

struct Run {
  double spent = 0;       // total time
  double first_text = 0;  // part of it for the first text
  double proposed = 0;    // draft tokens per round
};

/// Decodes the world's texts, one after the other, with one shape.
template <class S>
Run write_texts(const World& world, S shape) {
  using namespace specula;
  Clock clock(world);
  SkilledDrafter drafter(world, clock);
  detail::expect_valid(shape);
  if constexpr (Reserves<S>) shape.reserve({});
  ProposalBuilder tree(8, shape.nodes().most,
                       S::kind == ProposalKind::deterministic ? 0 : shape.nodes().most);
  VerifyResult result;
  PhiloxRandom rng(3);
  Run run;
  double rounds = 0;
  std::int32_t last = 1;
  for (std::int32_t text = 0; text < world.texts; ++text) {
    drafter.begin(text);
    if constexpr (LearnsFromRounds<S>) shape.reset();
    std::vector<Token> tokens(static_cast<std::size_t>(world.prompt), 0);
    tokens.reserve(static_cast<std::size_t>(world.prompt + world.tokens + 64));
    while (static_cast<std::int32_t>(tokens.size()) < world.prompt + world.tokens) {
      const Usage before = drafter.usage();
      const auto context = static_cast<std::int32_t>(tokens.size()) - 1;
      tree.reset(tokens.back(), context);
      {
        const ProposalBuilder::ResetLock lock(tree);
        shape.propose(drafter,
                      ProposeContext{Tokens(tokens).first(tokens.size() - 1), {}, shape.nodes().most}, tree,
                      rng).run();
      }
      const std::int32_t nodes = tree.size();
      const double took = clock.measure(world.target(nodes) + (nodes != last ? world.change : 0.0));
      last = nodes;
      result.clear();
      NodeId at = 0;
      for (std::int32_t place = context + 1;; ++place) {
        result.next_token = token_at(world, text, place);
        NodeId next = kNoParent;
        tree.children(at, [&](NodeId child) {
          if (tree.token(child) == result.next_token) next = child;
          return next == kNoParent;
        });
        if (next == kNoParent) break;
        result.accepted.push_back(at = next);
      }
      for (std::size_t i = 1; i < result.accepted.size(); ++i)
        tokens.push_back(tree.token(result.accepted[i]));
      tokens.push_back(result.next_token);
      run.proposed += nodes - 1, rounds += 1;
      const Timing timing{{1, nodes, took}, drafter.usage() - before};
      if constexpr (LearnsFromRounds<S>) shape.learn(tree, result, timing);
    }
    if (text == 0) run.first_text = clock.spent;
  }
  run.spent = clock.spent;
  run.proposed /= rounds;
  return run;
}

/// A world, its name, and the time of the best fixed chain of 0 to 8 draft tokens over its texts.
struct Trial {
  std::string machine, draft;
  double acceptance = 0;
  World world;

  double plain() const { return static_cast<double>(world.texts) * world.tokens; }
  double best() const {
    World quiet = world;
    quiet.jitter = quiet.spikes = 0;
    double least = plain();
    for (std::int32_t length = 1; length <= 8; ++length)
      least = std::min(least, write_texts(quiet, specula::Chain<>{.length = length}).spent);
    return least;
  }
};

/// T(n) by its first values, then linear with `slope`.
inline Cost curve_of(std::vector<double> values, double slope) {
  const double one = values.front();
  for (double& v : values) v /= one;
  return [values = std::move(values), slope](std::int32_t n) {
    const auto i = static_cast<std::size_t>(n);
    return i <= values.size() ? values[i - 1]
                              : values.back() + slope * static_cast<double>(i - values.size());
  };
}

/// Time of a pass over n nodes: simple forms and measured ones. `each_token`, for a draft beside such a
/// target: the cost of a token that it reads late, in draft calls.
struct Machine {
  std::string name;
  Cost cost;
  double each_token = 0.25;
};
inline std::vector<Machine> machines() {
  return {
      {"n", [](std::int32_t n) { return 1.0 * n; }, 1},  // libllama on 26M parameters in F16
      {"1 + 0.3 (n - 1)", [](std::int32_t n) { return 1 + 0.3 * (n - 1); }},
      {"flat", [](std::int32_t n) { return 1 + 0.01 * (n - 1); }},
      {"three times from 8", [](std::int32_t n) { return n < 8 ? 1 + 0.02 * (n - 1) : 3 + 0.02 * (n - 8); }},
      {"twice from 2", [](std::int32_t n) { return n < 2 ? 1.0 : 2 + 0.02 * (n - 2); }},
      // docs/benchmarks/forward.json, hidden sizes 256 and 512, 7 nodes interpolated
      {"forward 256", curve_of({.2994, .3697, .5101, .6610, .8368, .9750, 1.176, 1.3770}, 0.67)},
      {"forward 512", curve_of({2.2277, 2.4300, 2.7041, 2.8671, 3.1998, 3.5999, 4.1747, 4.7494}, 0.26)},
      // docs/llama_cpp.md, the models of this repository
      {"libllama 6M", curve_of({616, 799, 983, 1247}, 0.36), 1},
  };
}

/// The draft's quality and calibration.
inline std::function<Skill(std::int32_t, std::int32_t)> skill_of(const std::string& kind, double acceptance) {
  if (kind == "honest") return [=](std::int32_t, std::int32_t) { return Skill{acceptance, acceptance}; };
  if (kind == "overconfident") return [=](std::int32_t, std::int32_t) { return Skill{acceptance, 0.95}; };
  if (kind == "underconfident") return [=](std::int32_t, std::int32_t) { return Skill{acceptance, 0.3}; };
  if (kind == "discerning")  // confident in some draft tokens, not in others
    return [=](std::int32_t text, std::int32_t place) {
      Random random(static_cast<std::uint64_t>(text) * 1000003u + static_cast<std::uint64_t>(place) * 31u +
                    5u);
      const double p = random.bernoulli(acceptance) ? random.between(0.75, 0.98) : random.between(0.02, 0.3);
      return Skill{p, p};
    };
  // Every 300 tokens the text alternates between prose and copying; the confidence of a
  // blind draft does not show it.
  const bool blind = kind == "blind, turning";
  return [=](std::int32_t text, std::int32_t place) {
    const double p = (place / 300 + text) % 2 == 1 ? acceptance : 0.2;
    return Skill{p, blind ? 0.6 : p};
  };
}

/// Every `stride`-th of all combinations.
inline std::vector<Trial> trials(std::size_t stride) {
  std::vector<Trial> out;
  std::size_t id = 0;
  for (const Machine& machine : machines())
    for (const double draft : {0.02, 0.1, 0.3})
      for (const char* kind :
           {"honest", "overconfident", "underconfident", "discerning", "turning", "blind, turning"})
        for (const double acceptance : {0.2, 0.4, 0.6, 0.8, 0.95})
          for (const std::int32_t tokens : {128, 2000}) {
            const bool turns = std::string(kind).find("turning") != std::string::npos;
            if ((turns && acceptance < 0.7) || id++ % stride != 0) continue;
            Trial trial{machine.name, kind, acceptance, {}};
            World& world = trial.world;
            world.target = machine.cost;
            world.draft = draft;
            world.catch_up = draft * machine.each_token;
            world.skill = skill_of(kind, acceptance);
            world.texts = tokens == 128 ? 8 : 3;
            world.tokens = tokens;
            world.waiting = id % 2 ? 16 : 0;
            world.change = id % 3 ? 0.0 : 0.05;
            world.seed = id;
            out.push_back(std::move(trial));
          }
  return out;
}

}  // namespace specula_test
