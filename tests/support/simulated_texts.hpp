// Texts whose tokens and whose passes' times are simulated: what decides how long to draft is tried on them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <specula/specula.hpp>

#include "random.hpp"
#include "simulated_costs.hpp"

namespace specula_test {

/// What the draft is good for at a place of a text: the chance that its likeliest token is the target's, and
/// the probability that it gives that token.
struct Skill {
  double acceptance, confidence;
};

/// A machine, two models and texts. Times are in passes of the target over one node.
struct World {
  Cost target;              // of a pass, by nodes
  double draft = 0.1;       // of a pass of the draft over one node
  double catch_up = 0.025;  // of a token that the draft has missed
  std::function<Skill(std::int32_t text, std::int32_t place)> skill;
  std::int32_t texts = 8, tokens = 128, prompt = 100;
  std::int32_t waiting = 0;  // tokens of the prompt that the draft reads with its first call
  double jitter = 0.1;  // standard deviation of the logarithm of a measured time
  double spikes = 0.005;  // share of the passes that are measured at ten times their time
  double change = 0;      // of a pass over another number of nodes than the last
  std::uint64_t seed = 1;
};

/// Numbers that depend on a place of a text only: all shapes see the same texts.
inline Random at_place(const World& world, std::int32_t text, std::int32_t place) {
  return Random(world.seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(text) * 1000003u +
                static_cast<std::uint64_t>(place));
}
/// Tokens are named by their rank in the draft's row: 0 is its likeliest.
inline specula::Token token_at(const World& world, std::int32_t text, std::int32_t place) {
  Random random = at_place(world, text, place);
  if (random.chance(world.skill(text, place).acceptance)) return 0;
  specula::Token rank = 1;
  while (rank < 7 && random.chance(0.5)) ++rank;
  return rank;
}

/// Seconds that are true, and those that a clock shows.
class Clock {
 public:
  explicit Clock(const World& world) : world_(&world), random_(world.seed + 77) {}
  double measure(double seconds) {
    spent += seconds;
    if (world_->jitter == 0 && world_->spikes == 0) return seconds;
    const double normal = std::sqrt(-2 * std::log(1 - random_.uniform())) * std::cos(6.2831853 * random_.uniform());
    return seconds * std::exp(world_->jitter * normal) * (random_.chance(world_->spikes) ? 10.0 : 1.0);
  }
  double spent = 0;

 private:
  const World* world_;
  Random random_;
};

/// A draft whose sync() takes the time of what it has missed beyond its own guesses.
class SkilledDrafter {
 public:
  SkilledDrafter(const World& world, Clock& clock) : world_(&world), clock_(&clock) { rows_.reserve(64 * 8); }
  std::int32_t vocab_size() const { return 8; }
  std::int32_t capacity() const { return 1 << 20; }
  const specula::Usage& usage() const { return usage_; }
  void begin(std::int32_t text) {
    text_ = text;
    truncate(0);
    known_ = world_->prompt - 1 - world_->waiting;
  }
  void truncate(std::int32_t n) { known_ = std::min(known_, n), depths_.clear(); }
  void sync(specula::Tokens context, specula::Tokens guess) {
    const auto size = static_cast<std::int32_t>(context.size());
    const auto held = static_cast<std::int32_t>(depths_.size());
    const double missed = std::max(0, size - known_ - held);
    if (missed > 0) usage_.seconds += clock_->measure(world_->catch_up * missed);
    known_ = size, guess_ = static_cast<std::int32_t>(guess.size());
    depths_.clear();
  }
  specula::RowsView extend(specula::Tokens tokens, specula::Nodes parents) {
    const auto n = static_cast<std::int32_t>(tokens.size());
    usage_.seconds += clock_->measure(world_->draft * (1 + 0.1 * (n - 1)));
    ++usage_.calls, usage_.nodes += n;
    rows_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      depths_.push_back(parents[i] == specula::kNoParent ? 0 : depths_[static_cast<std::size_t>(parents[i])] + 1);
      const double sure = world_->skill(text_, known_ + guess_ + 1 + depths_.back()).confidence;
      rows_.push_back(static_cast<float>(std::log(sure)));
      const double rest = std::log(1 - sure);
      for (int rank = 1; rank < 8; ++rank) rows_.push_back(static_cast<float>(rest - 0.6931472 * std::min(rank, 6)));
    }
    return {rows_.data(), n, 8, 8};
  }

 private:
  const World* world_;
  Clock* clock_;
  std::int32_t text_ = 0, known_ = 0, guess_ = 0;
  std::vector<std::int32_t> depths_;
  std::vector<float> rows_;
  specula::Usage usage_;
};

struct Run {
  double spent = 0;       // passes of the target over one node that all took the time of
  double first_text = 0;  // of that
  double proposed = 0;    // guesses a round
};

/// Writes the world's texts, one after the other, with one shape.
template <class S>
Run write_texts(const World& world, S shape) {
  using namespace specula;
  Clock clock(world);
  SkilledDrafter drafter(world, clock);
  detail::expect_valid(shape);
  if constexpr (requires { shape.reserve(); }) shape.reserve();
  TokenTree tree(8, shape.max_nodes(), S::law == DraftLaw::deterministic ? 0 : shape.max_nodes());
  Verdict verdict;
  PhiloxChance chance(3);
  Usage target;
  Run run;
  double rounds = 0;
  std::int32_t last = 1;
  for (std::int32_t text = 0; text < world.texts; ++text) {
    drafter.begin(text);
    if constexpr (requires { shape.reset(); }) shape.reset();
    std::vector<Token> tokens(static_cast<std::size_t>(world.prompt), 0);
    tokens.reserve(static_cast<std::size_t>(world.prompt + world.tokens + 64));
    while (static_cast<std::int32_t>(tokens.size()) < world.prompt + world.tokens) {
      const Usage before = drafter.usage();
      const auto context = static_cast<std::int32_t>(tokens.size()) - 1;
      tree.reset(tokens.back(), context);
      {
        const TokenTree::ResetLock lock(tree);
        shape.propose(drafter, Round{Tokens(tokens).first(tokens.size() - 1), {}, shape.max_nodes()}, tree, chance);
      }
      const std::int32_t nodes = tree.size();
      const double took = clock.measure(world.target(nodes) + (nodes != last ? world.change : 0.0));
      last = nodes;
      verdict.clear();
      NodeId at = 0;
      for (std::int32_t place = context + 1;; ++place) {
        verdict.next = token_at(world, text, place);
        NodeId next = kNoParent;
        tree.children(at, [&](NodeId child) {
          if (tree.token(child) == verdict.next) next = child;
          return next == kNoParent;
        });
        if (next == kNoParent) break;
        verdict.path.push_back(at = next);
      }
      for (std::size_t i = 1; i < verdict.path.size(); ++i) tokens.push_back(tree.token(verdict.path[i]));
      tokens.push_back(verdict.next);
      run.proposed += nodes - 1, rounds += 1;
      const Timing timing{{1, nodes, took}, drafter.usage() - before};
      if constexpr (requires { shape.learn(tree, verdict, timing); })
        shape.learn(tree, verdict, timing);
      else if constexpr (requires { shape.learn(tree, verdict); })
        shape.learn(tree, verdict);
    }
    if (text == 0) run.first_text = clock.spent;
  }
  run.spent = clock.spent;
  run.proposed /= rounds;
  return run;
}

}  // namespace specula_test
