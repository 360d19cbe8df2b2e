// SPDX-License-Identifier: MIT
// Whole rounds of speculation on a device: drafting, growth, verification, commit and the text itself in one
// graph.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/accept/exact_rules.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/status.hpp"
#include "specula/cuda/api/verify.cuh"
#include "specula/cuda/api/verify_matching.cuh"
#include "specula/cuda/model/decoder.hpp"
#include "specula/cuda/model/detail/round_bodies.cuh"
#include "specula/cuda/model/detail/round_draft.hpp"
#include "specula/cuda/model/detail/text_passes.hpp"
#include "specula/cuda/model/growth.hpp"
#include "specula/cuda/model/model_options.hpp"
#include "specula/run/limits.hpp"

namespace specula::cuda {

namespace detail {

// Its type is the plan of a rule on a device, for drafts of the form `Draft`.
template <class Draft>
GreedyPlan<float> round_plan(Greedy);
template <class Draft>
SampleAndMatchPlan<float> round_plan(SampleAndMatch);
template <class Draft>
RejectionPlan<float, Draft> round_plan(Rejection);
template <class Draft>
BlockPlan<float, Draft> round_plan(Block);
template <class Draft>
TraversalPlan<float, Draft> round_plan(Traversal);
template <class Draft, class Rule>
auto round_plan(Rule) {
  static_assert(
      sizeof(Rule) == 0,
      "cuda::Round has no kernel for this rule: Greedy, SampleAndMatch, Rejection, Block and Traversal have "
      "one; run the others by a Speculator over cuda::Model, which takes every rule");
  return 0;
}

}  // namespace detail

/// Of a Round.
struct RoundOptions {
  /// Tokens that the target's cache holds, as of a Speculator's: a text of one more is full, and ends. There
  /// is memory for a proposal besides.
  std::int32_t capacity = 2048;
  SamplingParams params = {};  ///< of the target
};

///   specula::cuda::Round run{device, target, draft, specula::Chain<>{.length = 4}, specula::Greedy{}};
///
/// Speculative decoding of one text whose rounds stay on the device. A round is one graph: the draft's
/// passes, the growth of the proposal, the target's pass, verification, and the text's new tokens. The host
/// launches it, and then reads what the round before has emitted: so the device does not wait for the host.
/// Shape and rule are those of a Speculator on the CPU, with the same assertion that the rule is lossless for
/// the shape's proposals, and the same uniform draws; with the same logits it writes the same text in as many
/// rounds. Where a shape or a rule has no kernel the program does not compile, and the message names
/// cuda::Model, which takes all.
///
/// The draft reads its last tokens again in each round, so nothing counts what it has read. References the
/// device; the weights must outlive it. Not for concurrent calls.
template <class Device, class Shape, class Rule>
class Round {
  using Decoder = DeviceDecoder<Device>;
  using Growth = DeviceGrowth<Device, Shape>;
  using Draft =
      std::conditional_t<Rule::lossless_for(ProposalKind::shared), ChosenDraft, typename Growth::Draft>;
  static_assert(Rule::lossless_for(Shape::kind),
                "the rule is not lossless for proposals of the shape's kind: see docs/rule.md");

 public:
  /// Allocates all that it needs. Throws std::invalid_argument for options or a shape out of range, weights
  /// without as many positions, or a draft that is not made for this target; and what the device throws.
  Round(Device& device, const DeviceWeights& target, const DeviceWeights& draft, const Shape& shape = {},
        const Rule& = {}, const RoundOptions& options = {})
      : sizes_(Growth::sizes(shape)),
        options_(checked(options, target, draft)),
        device_(device),
        memory_{device, device.allocations()},
        constants_(detail::PassConstants::on(device)),
        height_(detail::height_of(sizes_.width)),
        again_(again(draft)),
        target_(device, target, 1, slots(), detail::PassConstants::kMost, height_,
                draft.fusion.data != nullptr),
        draft_(device, draft, 1, slots(), detail::PassConstants::kMost, detail::kHeights.front(), false),
        state_(allocate<State>(1)),
        text_{allocate<Token>(options.capacity + 1),
              &state_->length,
              &state_->finished,
              &state_->limit,
              state_->stop,
              &state_->stops},
        places_(allocate<std::int32_t>(sizes_.held + 2)),
        passes_(device, draft_, target_, constants_, again_, sizes_.pass_tokens, places_ + 1),
        input_{device,
               passes_,
               constants_,
               allocate<Token>(sizes_.held),
               copied(options.params),
               copied(SamplingParams{.temperature = 0}),
               &state_->seed,
               &state_->sequence},
        growth_(input_, shape),
        target_reader_(device, target_, nullptr, constants_, true),
        draft_reader_(device, draft_, &target_, constants_, false),
        plan_(target_.plan(sizes_.width, true)),
        results_{allocate<Token>(longest() + 1), allocate<NodeId>(longest() + 1), allocate<std::int32_t>(1),
                 allocate<Status>(1), nullptr},
        result_(allocate<Result>(1)),
        count_up_(pinned<std::int32_t>(options.capacity + again_ + 2)),
        prompt_(pinned<Token>(options.capacity)),
        state_to_send_(pinned<State>(1)),
        graphs_(static_cast<std::size_t>(2 * (longest() + 1))) {
    for (auto& slot : slots_) slot.result = pinned<Result>(1);
    std::iota(count_up_, count_up_ + options.capacity + again_ + 2, 0);
    target_.prepare(height_, true, true);
    device.make_plan(rule_, VerifyCapacity{1, sizes_.width, longest(), target.vocab});
    text_on_host_.reserve(static_cast<std::size_t>(options.capacity) + 1);
    memory_.last = device.allocations();
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;
  ~Round() {
    try {
      device_.wait();               // for a round that was not read
    } catch (const DeviceError&) {  // it is over
    }
  }

  std::int32_t longest() const { return sizes_.depth; }  ///< length of a round, at most
  Tokens text() const { return text_on_host_; }          ///< prompt and tokens that were read
  bool finished() const { return finished_; }            ///< no further tokens come
  /// ok, or why a row of the target was no distribution: the text has ended then.
  Status status() const { return status_; }
  std::int64_t rounds() const { return rounds_; }  ///< that were read

  /// Begins a text, whose prompt it enqueues; `seed` and `sequence` as PhiloxRandom has them. Throws
  /// std::invalid_argument, and enqueues nothing, for an empty prompt or one that the target does not hold, a
  /// token or a limit out of range, or more than 64 stop tokens.
  void start(Tokens prompt, const Limits& limits, std::uint64_t seed, std::uint32_t sequence = 0) {
    expect_text(prompt, limits);
    device_.wait();  // nothing reads these arrays any more
    std::copy(prompt.begin(), prompt.end(), prompt_);
    const auto size = static_cast<std::int32_t>(prompt.size());
    State& state = *state_to_send_;
    state.length = size, state.finished = limits.max_new_tokens == 0;
    state.limit = size + std::min(limits.max_new_tokens, options_.capacity + 1 - size);
    state.stops = static_cast<std::int32_t>(limits.stop.size());
    std::copy(limits.stop.begin(), limits.stop.end(), state.stop);
    state.seed = seed, state.sequence = sequence;
    device_.send(text_.token, prompt_, prompt.size());
    device_.send(state_, state_to_send_, 1);
    text_on_host_.assign(prompt.begin(), prompt.end());
    finished_ = limits.max_new_tokens == 0;
    status_ = Status::ok, rounds_ = 0, pending_ = false;
    unread_ = std::max(0, size - again_);
    target_reader_.read(text_, size - 1, 1, count_up_);
  }

  /// Launches a round of so many draft tokens (0: none; a chain's: up to longest(); else longest(), which is
  /// the default), then returns the tokens of the round before, empty for the first: valid until the next
  /// call. A round after the text's end is idle. Throws std::invalid_argument for another length,
  /// std::logic_error before start(), and DeviceError: text() is then what was read.
  Tokens step(std::optional<std::int32_t> asked = {}) {
    const std::int32_t length = asked.value_or(longest());
    if (length != 0 && (length < sizes_.shortest || length > longest()))
      throw std::invalid_argument("cuda::Round::step: length " + std::to_string(length) + ", must be 0 or " +
                                  (sizes_.shortest < longest() ? "1 to " : "") + std::to_string(longest()));
    if (text_on_host_.empty()) throw std::logic_error("cuda::Round::step: no text; call start() first");
    if (length > 0 && unread_ > 0 && !finished_) draft_reader_.read(text_, unread_, again_, count_up_);
    const std::size_t which = next_ % 2;
    Slot& slot = slots_[which];
    device_.replay(graphs_[static_cast<std::size_t>(length) * 2 + which], [&] {
      enqueue(length);
      device_.fetch(slot.result, result_, 1);
    });
    device_.signal(slot.done);
    ++next_, unread_ = length > 0 ? 0 : unread_ + 1;  // not before, lest drain() read a slot that failed
    const Tokens out = pending_ ? read(slots_[1 - which]) : Tokens{};
    pending_ = true;
    return out;
  }
  /// The tokens of the last round, without another one.
  Tokens drain() {
    if (!std::exchange(pending_, false)) return {};
    return read(slots_[(next_ + 1) % 2]);
  }

  /// A whole text by rounds of `length`, as step() takes it; `sink` is given each round's tokens, and may end
  /// it by `false`. Throws as start() and step().
  template <class Sink>
  Generated generate(Tokens prompt, const Limits& limits, std::uint64_t seed, Sink sink,
                     std::optional<std::int32_t> length = {}) {
    start(prompt, limits, seed);
    bool goes_on = true;
    while (goes_on && !finished_) {
      const Tokens fresh = step(length);
      if (fresh.empty()) continue;
      if constexpr (std::is_same_v<decltype(sink(fresh)), bool>)
        goes_on = sink(fresh);
      else
        sink(fresh);
    }
    const auto tokens = static_cast<std::int32_t>(text_on_host_.size() - prompt.size());
    const bool stopped = tokens > 0 && std::find(limits.stop.begin(), limits.stop.end(),
                                                 text_on_host_.back()) != limits.stop.end();
    const bool full = goes_on && text_on_host_.size() > static_cast<std::size_t>(options_.capacity);
    return {tokens, stopped                           ? FinishReason::stop_token
                    : tokens >= limits.max_new_tokens ? FinishReason::limit
                    : full                            ? FinishReason::context_full
                                                      : FinishReason::cancelled};
  }

 private:
  static constexpr int kStops = 64;

  /// A text's numbers, which start() sends.
  struct State {
    std::int32_t length, finished, limit, stops;
    Token stop[kStops];
    std::uint64_t seed;
    std::uint32_t sequence;
  };
  /// Of a round, as EndRound writes it.
  struct Result {
    detail::RoundRecord record;
    Token token[64];
  };
  /// A round's result on the host, and whether it is there.
  struct Slot {
    Result* result = nullptr;
    typename Device::Signal done;
  };
  /// Gives back what was allocated: if the object is not made, or when it ends.
  struct Memory {
    Device& device;
    std::size_t first, last = 0;
    ~Memory() { device.release(first, last > 0 ? last : device.allocations()); }
  };

  static RoundOptions checked(const RoundOptions& options, const DeviceWeights& target,
                              const DeviceWeights& draft) {
    detail::expect_growth("RoundOptions::capacity", options.capacity, 1, 1 << 24);
    detail::expect_growth("the draft's vocabulary", draft.vocab, target.vocab, target.vocab);
    detail::expect_growth("the target's positions", target.positions, options.capacity, 1 << 24);
    detail::expect_growth("the draft's positions", draft.positions, options.capacity, 1 << 24);
    if (target.conditioned_on != Conditioning::nothing)
      throw std::invalid_argument("cuda::Round: the target is a draft that reads a target itself");
    if (draft.conditioned_on == Conditioning::features)
      detail::expect_growth("the head's hidden size", draft.hidden, target.hidden, target.hidden);
    return options;
  }
  /// Of a text and a proposal after its last token, also where the proposal no longer counts.
  int slots() const { return options_.capacity + sizes_.held; }
  /// Tokens that the draft reads again: those of which its cache may hold another node's keys, or a head
  /// features of its own. One that keeps them needs what its shape says.
  int again(const DeviceWeights& draft) const {
    const bool keeps = draft.conditioned_on == Conditioning::nothing ||
                       (draft.conditioned_on == Conditioning::key_values && draft.layers.size() == 1);
    return keeps ? sizes_.again : std::max(sizes_.again, longest() + 1);
  }
  template <class T>
  T* allocate(std::integral auto n) {
    return device_.template allocate<T>(static_cast<std::size_t>(n));
  }
  template <class T>
  T* pinned(std::integral auto n) {
    return device_.template allocate_host<T>(static_cast<std::size_t>(n));
  }
  const SamplingParams* copied(const SamplingParams& params) {
    SamplingParams* const to = allocate<SamplingParams>(1);
    device_.put(to, &params, 1);
    return to;
  }

  void expect_text(Tokens prompt, const Limits& limits) const {
    const std::int32_t vocab = target_.weights().vocab;
    validate(limits, vocab);
    const auto fail = [](const std::string& what) {
      throw std::invalid_argument("cuda::Round::start: " + what);
    };
    if (prompt.empty()) fail("an empty prompt");
    for (const Token token : prompt)
      if (token < 0 || token >= vocab)
        fail("token " + std::to_string(token) + ", must be 0 to " + std::to_string(vocab - 1));
    if (limits.stop.size() > kStops)
      fail(std::to_string(limits.stop.size()) + " stop tokens, must be at most " + std::to_string(kStops));
    if (prompt.size() > static_cast<std::size_t>(options_.capacity))
      fail("the prompt has " + std::to_string(prompt.size()) + " tokens, RoundOptions::capacity is " +
           std::to_string(options_.capacity));
  }

  /// A round's launches. Nothing in them depends on the text.
  void enqueue(std::int32_t length) {
    // `place` of each token, and one array for `before_place`: it is the `place` of the token before.
    std::int32_t* const place = places_ + 1;
    device_.run(detail::BeginRound{text_, passes_.again(), sizes_.held, input_.root, place, places_});
    detail::RoundProposal proposal = length > 0 ? growth_.enqueue(length) : passes_.chain(input_.root, 1);
    proposal.pass.height = height_;
    target_.pass(plan_, proposal.pass, true);
    const detail::PassTokens& nodes = proposal.pass.tokens;
    Trees trees{};
    trees.begin = nodes.begin, trees.token = nodes.token, trees.parent = proposal.parent;
    trees.position = place, trees.seed = input_.seed, trees.sequence = input_.sequence;
    TargetRows<float> rows{target_.logits(), target_.weights().vocab};
    rows.params = input_.params;
    if constexpr (std::is_same_v<Draft, ChosenDraft>)
      device_.verify(rule_, trees, rows, ChosenDraft{}, results_);
    else
      device_.verify(rule_, trees, rows, growth_.draft(), results_);
    if (proposal.parent) target_.compact({results_.accepted, results_.count, place, 1, longest() + 1});
    device_.run(detail::EndRound{text_, results_.token, results_.count, results_.status,
                                 reinterpret_cast<std::int32_t*>(result_)});
  }

  /// What a round has emitted.
  Tokens read(Slot& slot) {
    device_.await(slot.done);
    const auto& [record, token] = *slot.result;
    const auto before = text_on_host_.size();
    text_on_host_.insert(text_on_host_.end(), token, token + record.count);
    if (!finished_) ++rounds_, finished_ = record.finished != 0, status_ = static_cast<Status>(record.status);
    return Tokens(text_on_host_).subspan(before);
  }

  GrowthSizes sizes_;
  RoundOptions options_;
  Device& device_;
  Memory memory_;
  detail::PassConstants constants_;
  int height_, again_;
  Decoder target_, draft_;
  // On the device.
  State* state_;
  detail::RoundText text_;
  std::int32_t* places_;  // from the one before the root's
  detail::RoundDraft<Device> passes_;
  detail::GrowthInput<Device> input_;
  Growth growth_;
  detail::TextReader<Device> target_reader_, draft_reader_;
  typename Device::Attention plan_;
  decltype(detail::round_plan<Draft>(Rule())) rule_;
  VerifyResults results_;
  Result* result_;
  // The host's, pinned.
  std::int32_t* count_up_;
  Token* prompt_;
  State* state_to_send_;
  std::array<Slot, 2> slots_;
  std::vector<typename Device::Recording> graphs_;  // (longest() + 1, 2)
  // Of the text.
  std::vector<Token> text_on_host_;
  std::int32_t unread_ = 0;  // tokens before those that the draft reads again
  std::size_t next_ = 0;
  std::int64_t rounds_ = 0;
  bool finished_ = false, pending_ = false;
  Status status_ = Status::ok;
};

}  // namespace specula::cuda
