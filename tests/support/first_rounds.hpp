// SPDX-License-Identifier: MIT
// Replays of one text by a policy that knows nothing yet, in simulated time: what its first rounds cost
// beside plain decoding, over a draft and copies of which each may be good or bad.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/specula.hpp>

#include "random.hpp"
#include "replays.hpp"

namespace specula_test::first_rounds {

inline constexpr std::int32_t kPrompt = 50, kLongest = 8;

/// A machine, its drafts, and a text. Unit of time: a pass of the target over one node.
struct Start {
  std::vector<double> target;     // by nodes - 1; flat beyond
  double draft = 0.06;            // a draft step
  double drafted = 0.5;           // acceptance of draft tokens
  double copied = 0.5;            // of copies
  double found = 0.5;             // how often there is something to copy where the last copy was not right
  double jitter = 0.1;            // standard deviation of the logarithm of a measured time
  double spikes = 0.005;          // share of passes measured at ten times their time
  double unit = 0.003;            // seconds of a plain pass
  std::int32_t tokens = 50;       // of the text
  std::int32_t copies = 1 << 20;  // tokens that can be copied; nothing after them
  bool sure = false;              // the draft's confidence is 0.95 whatever its acceptance
};

/// Which draft tokens and copies are right at each place, and how long a match is there; 0: none.
struct Script {
  std::vector<std::uint8_t> drafted, copied;
  std::vector<std::int32_t> match;

  Script(const Start& start, std::uint64_t seed) {
    Random random(seed);
    const auto fresh = [&] {
      std::int32_t length = 1;
      if (!random.bernoulli(start.found)) return 0;
      while (random.bernoulli(0.4)) ++length;
      return length;
    };
    const std::int32_t places = kPrompt + start.tokens + 2 * kLongest + 8;
    for (std::int32_t i = 0; i < places; ++i) {
      const bool ends = i - kPrompt >= start.copies;
      drafted.push_back(random.bernoulli(start.drafted));
      copied.push_back(random.bernoulli(start.copied) && !ends);
      const std::int32_t next = fresh();  // drawn in any case: the same text for each `copied`
      const bool goes_on = i > 0 && match.back() > 0 && copied[copied.size() - 2];
      match.push_back(ends ? 0 : goes_on ? match.back() + 1 : next);
    }
  }
};

/// Drafts token 0, which is right, or 1.
class Draft : public replaying::ReplayDrafter {
 public:
  Draft(const Cell& cell, const Script& script, replaying::ReplayClock& clock)
      : ReplayDrafter(cell, clock), script_(&script) {
    begin(kPrompt - 1);
  }
  std::int32_t vocab_size() const { return 3; }
  specula::PointMasses extend(specula::Tokens tokens, specula::Nodes parents) {
    const specula::PointMasses out = ReplayDrafter::extend(tokens, parents);
    token_ = script_->drafted[static_cast<std::size_t>(known_ + nodes_)] ? 0 : 1;
    return out;
  }

 private:
  const Script* script_;
};

/// Copies token 0, which is right, or 2; with confidences that it learns from the text, as MaxGram does.
class Copier {
 public:
  explicit Copier(const Script& script) : script_(&script) {
    static constexpr std::array kPriors = {0.4, 0.55, 0.65, 0.77, 0.85, 0.9, 0.96};
    for (std::size_t i = 0; i < rates_.size(); ++i) rates_[i].prior = kPriors[i];
  }
  std::int32_t vocab_size() const { return 3; }
  std::int32_t capacity() const { return 1 << 20; }
  void truncate(std::int32_t) {}
  void sync(specula::Tokens context, specula::Tokens) {
    const auto size = static_cast<std::int32_t>(context.size());
    for (; known_ < size; ++known_)
      if (const std::int32_t length = script_->match[at(known_)]; length > 0)
        rates_[kind(length)].saw(script_->copied[at(known_)] != 0);
    nodes_ = 0;
  }
  specula::PointMasses extend(specula::Tokens, specula::Nodes) {
    const std::int32_t length = script_->match[at(known_ + 1)];
    const std::int32_t place = known_ + 1 + nodes_;
    token_ = length == 0 ? specula::kNoToken : script_->copied[at(place)] ? 0 : 2;
    confidence_ = static_cast<float>(rates_[kind(length + nodes_)].probability());
    ++nodes_;
    return {{&token_, 1}, {&confidence_, 1}};
  }

 private:
  static std::size_t at(std::int32_t place) { return static_cast<std::size_t>(place); }
  static std::size_t kind(std::int32_t length) {
    static constexpr std::array kLengths = {2, 3, 5, 8, 12, 20};
    return at(static_cast<std::int32_t>(std::ranges::upper_bound(kLengths, length) - kLengths.begin()));
  }

  const Script* script_;
  std::array<specula::detail::HitRate, 7> rates_{};
  specula::Token token_ = 0;
  float confidence_ = 0;
  std::int32_t known_ = kPrompt - 1, nodes_ = 0;
};

/// What became of a text. `lost`: what the rounds with such tokens took beyond a plain pass for each token.
struct Record {
  struct Kind {
    std::int32_t rounds = 0, tokens = 0, accepted = 0;
    double lost = 0;
  };
  double tokens = 0, spent = 0;  // emitted; plain passes
  Kind drafts, copies;
  std::array<std::int32_t, 16> sizes{};  // rounds by nodes
};

/// Writes the text with a shape over Draft and Copier, or over Draft alone, or over Copier alone.
enum class With { draft, copies, both };
template <With with, class S>
Record write(const Start& start, S shape, std::uint64_t seed) {
  using namespace specula;
  Cell cell;
  cell.jitter = start.jitter, cell.spikes = start.spikes;
  cell.draft = start.draft * start.unit, cell.catch_up = 0.25;
  cell.acceptance = start.drafted, cell.sure = start.sure;
  replaying::ReplayClock clock(cell, seed * 77 + 5);
  const Script script(start, seed * 0x9E3779B97F4A7C15ull);
  auto drafter = [&] {
    if constexpr (with == With::draft)
      return Draft(cell, script, clock);
    else if constexpr (with == With::copies)
      return Copier(script);
    else
      return Stack{Draft(cell, script, clock), Copier(script)};
  }();
  const auto usage = [&]() -> Usage {
    if constexpr (with == With::copies)
      return {};
    else
      return drafter.usage();
  };
  if constexpr (Reserves<S>) shape.reserve({});
  if constexpr (LearnsFromRounds<S>) shape.reset();
  ProposalBuilder tree(3, shape.nodes().most, 0);
  VerifyResult result;
  PhiloxRandom rng(3);
  std::vector<Token> text(kPrompt, 0);
  text.reserve(static_cast<std::size_t>(kPrompt + start.tokens + 2 * kLongest));
  Record out;
  while (static_cast<std::int32_t>(text.size()) < kPrompt + start.tokens) {
    const Usage before = usage();
    const double began = clock.spent;
    tree.reset(0, static_cast<std::int32_t>(text.size()) - 1);
    shape
        .propose(drafter, ProposeContext{Tokens(text).first(text.size() - 1), {}, shape.nodes().most}, tree,
                 rng)
        .run();
    const std::int32_t nodes = tree.size();
    const double took = clock.measure(
        start.unit * start.target[std::min(start.target.size(), static_cast<std::size_t>(nodes)) - 1]);
    const Usage draft = usage() - before;
    result.clear();
    NodeId at = 0;
    while (at + 1 < nodes && tree.token(at + 1) == 0) result.accepted.push_back(++at);
    result.next_token = 0;
    text.insert(text.end(), result.accepted.size(), 0);
    if constexpr (LearnsFromRounds<S>) shape.learn(tree, result, Timing{{1, nodes, took}, draft});
    const double lost = (clock.spent - began) / start.unit - static_cast<double>(result.accepted.size());
    ++out.sizes[static_cast<std::size_t>(std::min(nodes, 15))];
    if (nodes > 1 || draft.calls > 0) {
      Record::Kind& kind = draft.calls > 0 ? out.drafts : out.copies;
      ++kind.rounds, kind.tokens += nodes - 1, kind.lost += lost;
      kind.accepted += static_cast<std::int32_t>(result.accepted.size()) - 1;
    }
  }
  out.tokens = static_cast<double>(text.size() - kPrompt), out.spent = clock.spent / start.unit;
  return out;
}

/// The time of the text by chains of at most `length` draft tokens, or copies, in plain passes.
inline double fixed(const Start& start, bool copies, std::int32_t length, std::uint64_t seed) {
  const Script script(start, seed * 0x9E3779B97F4A7C15ull);
  const std::vector<std::uint8_t>& right = copies ? script.copied : script.drafted;
  double spent = 0;
  for (std::int32_t place = kPrompt - 1; place + 1 < kPrompt + start.tokens;) {
    const auto at = static_cast<std::size_t>(place) + 1;
    const std::int32_t tokens = copies && script.match[at] == 0 ? 0 : length;
    std::int32_t accepted = 0;
    while (accepted < tokens && right[at + static_cast<std::size_t>(accepted)]) ++accepted;
    spent += start.target[std::min(start.target.size() - 1, static_cast<std::size_t>(tokens))] +
             (copies ? 0.0 : tokens * start.draft);
    place += accepted + 1;
  }
  return spent;
}

}  // namespace specula_test::first_rounds
