// SPDX-License-Identifier: MIT
// Replays of texts in simulated time: what a policy of draft lengths loses against plain decoding, and what
// it gains of the best fixed length.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <specula/specula.hpp>

#include "random.hpp"

namespace specula_test {

/// A machine, a draft, and texts. Unit of time: a pass of the target over one node.
struct Cell {
  std::string machine;
  std::vector<double> target;  // by nodes - 1; flat beyond
  double acceptance = 0.7;
  double draft = 0.1;        // a draft step
  std::int32_t tokens = 48;  // of a text
  bool sure = false;  // the draft's confidence is 0.95 whatever its acceptance; else it is the acceptance
  double catch_up = 0.25;    // draft steps per token that the draft missed
  std::int32_t waiting = 0;  // prompt tokens that the draft's first call of a text reads
  double jitter = 0.1;       // standard deviation of the logarithm of a measured time
  double spikes = 0.005;     // share of passes measured at ten times their time
  double load = 0;           // share of time in which all passes take three times as long, in phases
  double interrupted = 0;    // mean time of an interruption by other programs, which the clock shows
  double between = 1;        // mean time between two of them
};

/// Texts of a replay.
inline constexpr int kTexts = 20;

/// From which text on a policy is expected to have learned: 2, 3 or 6.
inline int learned_from(std::int32_t tokens) { return tokens >= 256 ? 1 : tokens >= 48 ? 2 : 5; }

struct Replay {
  double first = 0, all = 0, late = 0;  // time of the first text, of all, and from learned_from() on
  double drafted = 0;                   // draft tokens
};

namespace replaying {

/// True time, and what the clock shows.
class ReplayClock {
 public:
  ReplayClock(const Cell& cell, std::uint64_t seed) : cell_(&cell), random_(seed) {}
  double measure(double seconds) {
    if (cell_->load > 0 && left_-- <= 0) {
      slow_ = random_.bernoulli(cell_->load);
      left_ = 5 + random_.below(60);
    }
    const double pace = slow_ ? 3.0 : 1.0;
    spent += seconds * (cell_->load > 0 ? 1.0 : pace);  // the machine's load slows every policy alike
    if (cell_->interrupted > 0) {
      double shown = seconds;
      for (double left = seconds; (left -= exponential(cell_->between)) > 0;)
        shown += exponential(cell_->interrupted);
      return shown;
    }
    if (cell_->jitter == 0 && cell_->spikes == 0) return seconds * pace;
    // the sum of four uniform numbers is near enough to a normal one
    const double normal =
        1.7320508 * (random_.uniform() + random_.uniform() + random_.uniform() + random_.uniform() - 2);
    const double off = cell_->jitter * normal;
    return seconds * pace * (1 + off + 0.5 * off * off) * (random_.bernoulli(cell_->spikes) ? 10.0 : 1.0);
  }
  double spent = 0;

 private:
  double exponential(double mean) { return -mean * std::log(1 - random_.uniform()); }

  const Cell* cell_;
  Random random_;
  std::int32_t left_ = 0;
  bool slow_ = false;
};

/// Drafts token 0, which the target's token is or is not.
class ReplayDrafter {
 public:
  ReplayDrafter(const Cell& cell, ReplayClock& clock)
      : cell_(&cell),
        clock_(&clock),
        confidence_(static_cast<float>(cell.sure ? 0.95 : std::max(0.02, cell.acceptance))) {}
  std::int32_t vocab_size() const { return 2; }
  std::int32_t capacity() const { return 1 << 20; }
  const specula::Usage& usage() const noexcept { return usage_; }
  void truncate(std::int32_t) {}
  void begin(std::int32_t context) { known_ = context - cell_->waiting, nodes_ = 0; }
  void sync(specula::Tokens context, specula::Tokens) {
    const auto size = static_cast<std::int32_t>(context.size());
    const std::int32_t missed = std::max(0, size - known_ - nodes_);
    if (missed > 0) usage_.seconds += clock_->measure(cell_->catch_up * cell_->draft * missed);
    known_ = size, nodes_ = 0;
  }
  specula::PointMasses extend(specula::Tokens, specula::Nodes) {
    usage_.seconds += clock_->measure(cell_->draft);
    ++usage_.calls, ++usage_.nodes, ++nodes_;
    return {{&token_, 1}, {&confidence_, 1}};
  }

 protected:
  const Cell* cell_;
  ReplayClock* clock_;
  specula::Token token_ = 0;
  float confidence_;
  std::int32_t known_ = 0, nodes_ = 0;
  specula::Usage usage_;
};

}  // namespace replaying

/// Decodes kTexts texts of the cell, one after the other, with one shape.
template <class S>
Replay replay(const Cell& cell, S shape, std::uint64_t seed) {
  using namespace specula;
  constexpr std::int32_t kPrompt = 50;
  replaying::ReplayClock clock(cell, seed * 77 + 5);
  replaying::ReplayDrafter drafter(cell, clock);
  if constexpr (Reserves<S>) shape.reserve({});
  ProposalBuilder tree(2, shape.nodes().most, 0);
  VerifyResult result;
  PhiloxRandom rng(3);
  Replay out;
  const int late = learned_from(cell.tokens);
  std::vector<Token> text;
  text.reserve(static_cast<std::size_t>(kPrompt + cell.tokens + 64));
  for (int t = 0; t < kTexts; ++t) {
    text.assign(kPrompt, 1);
    drafter.begin(kPrompt - 1);
    if constexpr (LearnsFromRounds<S>) shape.reset();
    if (t == late) out.late = clock.spent;
    const auto accepted = [&](std::int32_t place) {
      Random random(seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(t) * 1000003u +
                    static_cast<std::uint64_t>(place));
      return random.bernoulli(cell.acceptance);
    };
    while (static_cast<std::int32_t>(text.size()) < kPrompt + cell.tokens) {
      const Usage before = drafter.usage();
      const auto context = static_cast<std::int32_t>(text.size()) - 1;
      tree.reset(text.back(), context);
      shape
          .propose(drafter, ProposeContext{Tokens(text).first(text.size() - 1), {}, shape.nodes().most}, tree,
                   rng)
          .run();
      const std::int32_t nodes = tree.size();
      const double took =
          clock.measure(cell.target[std::min(cell.target.size(), static_cast<std::size_t>(nodes)) - 1]);
      result.clear();
      NodeId at = 0;
      std::int32_t place = context + 1;
      while (at + 1 < nodes && accepted(place)) result.accepted.push_back(++at), text.push_back(0), ++place;
      result.next_token = at + 1 < nodes ? 1 : accepted(place) ? 0 : 1;
      text.push_back(result.next_token);
      out.drafted += nodes - 1;
      if constexpr (LearnsFromRounds<S>)
        shape.learn(tree, result, Timing{{1, nodes, took}, drafter.usage() - before});
    }
    if (t == 0) out.first = clock.spent;
  }
  out.all = clock.spent;
  out.late = out.all - out.late;
  return out;
}

/// What a cell's replays came to, as speed relative to plain decoding or to the best fixed length.
struct Outcome {
  double mean = 0, low = 0;  // all texts, of plain: the mean, and the 5% quantile
  double first = 0;          // the first text, of plain: the mean
  double best = 0;  // from learned_from() on, of the best fixed length, plain decoding included: the mean
  double gain = 1;  // the best fixed length, of plain
};

/// `replays` replays of `shape`; the fixed chains of 1 to 8 draft tokens see the same texts, at most 100 of
/// them, without measuring.
template <class S>
Outcome outcome(const Cell& cell, const S& shape, int replays) {
  const double late_plain = static_cast<double>(kTexts - learned_from(cell.tokens)) * cell.tokens;
  Cell quiet = cell;
  quiet.jitter = quiet.spikes = quiet.load = quiet.interrupted = 0;
  double least = late_plain;
  const int fixed = std::min(replays, 100);
  for (std::int32_t length = 1; length <= 8; ++length) {
    double sum = 0;
    for (int r = 0; r < fixed; ++r)
      sum += replay(quiet, specula::Chain<>{.length = length}, static_cast<std::uint64_t>(r) + 1).late;
    least = std::min(least, sum / fixed);
  }
  Outcome out;
  out.gain = late_plain / least;
  std::vector<double> ratios;
  const double plain = static_cast<double>(kTexts) * cell.tokens;
  for (int r = 0; r < replays; ++r) {
    const Replay one = replay(cell, shape, static_cast<std::uint64_t>(r) + 1);
    ratios.push_back(plain / one.all);
    out.mean += plain / one.all / replays;
    out.first += cell.tokens / one.first / replays;
    out.best += least / one.late / replays;
  }
  std::sort(ratios.begin(), ratios.end());
  out.low = ratios[ratios.size() / 20];
  return out;
}

/// The curves of passes: nodes that are free, nodes that cost, and plateaus.
struct NamedCurve {
  std::string name;
  std::vector<double> costs;
};
inline std::vector<NamedCurve> replay_curves() {
  const auto line = [](double slope) {
    std::vector<double> out;
    for (int n = 0; n < 9; ++n) out.push_back(1 + slope * n);
    return out;
  };
  return {{"flat", line(0.01)},
          {"linear", line(0.3)},
          {"plateaus", {1, 1.5, 2, 2, 3, 3.5, 4, 4, 5}},  // four rows cost what three do
          {"a pass per node", line(1)},
          {"twice from 2", {1, 2, 2, 2, 2, 2, 2, 2, 2}}};
}

/// The 45 cells of each of the first `curves` curves.
inline std::vector<Cell> replay_cells(std::size_t curves) {
  std::vector<Cell> out;
  const std::vector<NamedCurve> all = replay_curves();
  for (std::size_t c = 0; c < std::min(curves, all.size()); ++c)
    for (const std::int32_t tokens : {24, 48, 256})
      for (const double draft : {0.02, 0.1, 0.25})
        for (const double acceptance : {0.0, 0.5, 0.7, 0.8, 0.95}) {
          Cell cell;
          cell.machine = all[c].name, cell.target = all[c].costs;
          cell.acceptance = acceptance, cell.draft = draft, cell.tokens = tokens;
          out.push_back(cell);
        }
  return out;
}

}  // namespace specula_test
