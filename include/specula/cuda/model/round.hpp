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

/// The plan of a rule on a device, for drafts of the form `Draft`.
template <class Rule, class Draft>
struct RoundRule {
  static_assert(
      sizeof(Rule) == 0,
      "cuda::Round has no kernel for this rule: Greedy, SampleAndMatch, Rejection, Block and Traversal have "
      "one; run the others by a Speculator over cuda::Model, which takes every rule");
};
template <class Draft>
struct RoundRule<Greedy, Draft> {
  using Plan = GreedyPlan<float>;
};
template <class Draft>
struct RoundRule<SampleAndMatch, Draft> {
  using Plan = SampleAndMatchPlan<float>;
};
template <class Draft>
struct RoundRule<Rejection, Draft> {
  using Plan = RejectionPlan<float, Draft>;
};
template <class Draft>
struct RoundRule<Block, Draft> {
  using Plan = BlockPlan<float, Draft>;
};
template <class Draft>
struct RoundRule<Traversal, Draft> {
  using Plan = TraversalPlan<float, Draft>;
};

}  // namespace detail

/// Of a Round.
struct RoundOptions {
  std::int32_t capacity = 2048;  ///< tokens of the text and nodes of a proposal together
  SamplingParams params = {};    ///< of the target
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
      : shape_((Growth::validate(shape), shape)),
        options_(checked(options, shape, target, draft)),
        device_(device),
        memory_{device, device.allocations()},
        constants_(detail::PassConstants::on(device)),
        width_(Growth::width(shape)),
        height_(detail::height_of(width_)),
        target_(device, target, 1, options.capacity, detail::PassConstants::kMost, height_,
                draft.fusion.data != nullptr),
        draft_(device, draft, 1, options.capacity, detail::PassConstants::kMost, detail::kHeights.front(),
               false),
        numbers_(numbers<std::int32_t>(kNumbers)),
        stops_(numbers<Token>(kStops)),
        text_{numbers<Token>(options.capacity), numbers_, numbers_ + 1, numbers_ + 2, stops_, numbers_ + 3},
        seed_(numbers<std::uint64_t>(1)),
        sequence_(numbers<std::uint32_t>(1)),
        root_(numbers<Token>(width_)),
        place_(numbers<std::int32_t>(width_ + 1)),
        before_place_(numbers<std::int32_t>(width_ + 1)),
        again_(again(shape, draft)),
        passes_(device, draft_, target_, constants_, again_, Growth::pass_tokens(shape), place_,
                before_place_),
        params_(copied(options.params)),
        greedy_(copied(SamplingParams{.temperature = 0})),
        growth_({device, passes_, constants_, root_, params_, greedy_, seed_, sequence_}, shape),
        target_reader_(device, target_, nullptr, constants_, true),
        draft_reader_(device, draft_, &target_, constants_, false),
        plan_(target_.plan(width_, true)),
        record_size_(static_cast<std::size_t>(kRecord + Growth::depth(shape) + 1)),
        record_(numbers<std::int32_t>(record_size_)),
        count_up_(
            device.template allocate_host<std::int32_t>(static_cast<std::size_t>(options.capacity) + 1)),
        prompt_(device.template allocate_host<Token>(static_cast<std::size_t>(options.capacity))),
        settings_(device.template allocate_host<Settings>(1)),
        graphs_(static_cast<std::size_t>(2 * (longest() + 1))) {
    const auto results = static_cast<std::size_t>(Growth::depth(shape) + 1);
    results_ = {numbers<Token>(results), numbers<NodeId>(results), numbers<std::int32_t>(1),
                numbers<Status>(1), nullptr};
    for (auto& slot : slots_) slot.record = device.template allocate_host<std::int32_t>(record_size_);
    std::iota(count_up_, count_up_ + options.capacity + 1, 0);
    target_.prepare(height_, true, true);
    device.make_plan(rule_, VerifyCapacity{1, width_, Growth::depth(shape), target.vocab});
    text_on_host_.reserve(static_cast<std::size_t>(options.capacity));
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;
  ~Round() {
    try {
      device_.wait();               // for a round that was not read
    } catch (const DeviceError&) {  // it is over
    }
  }

  std::int32_t longest() const { return Growth::depth(shape_); }  ///< length of a round, at most
  Tokens text() const { return text_on_host_; }                   ///< prompt and tokens that were read
  bool finished() const { return finished_; }                     ///< no further tokens come
  /// ok, or why a row of the target was no distribution: the text has ended then.
  Status status() const { return status_; }
  std::int64_t rounds() const { return rounds_; }  ///< that were read

  /// Begins a text, whose prompt it enqueues; `seed` and `sequence` as PhiloxRandom has them. Throws
  /// std::invalid_argument, and enqueues nothing, for an empty prompt, a token or a limit out of range, more
  /// than 64 stop tokens, or a text that does not fit.
  void start(Tokens prompt, const Limits& limits, std::uint64_t seed, std::uint32_t sequence = 0) {
    expect_text(prompt, limits);
    device_.wait();  // nothing reads these arrays any more
    std::copy(prompt.begin(), prompt.end(), prompt_);
    const auto size = static_cast<std::int32_t>(prompt.size());
    *settings_ = {{size, 0, size + limits.max_new_tokens, static_cast<std::int32_t>(limits.stop.size())},
                  seed,
                  sequence,
                  {}};
    std::copy(limits.stop.begin(), limits.stop.end(), settings_->stops);
    device_.send(text_.token, prompt_, prompt.size());
    device_.send(numbers_, settings_->numbers, std::size_t{kNumbers});
    device_.send(seed_, &settings_->seed, 1);
    device_.send(sequence_, &settings_->sequence, 1);
    device_.send(stops_, settings_->stops, std::size_t{kStops});
    text_on_host_.assign(prompt.begin(), prompt.end());
    finished_ = limits.max_new_tokens == 0;
    status_ = Status::ok, rounds_ = 0, pending_ = false;
    unread_ = std::max(0, size - again_);
    target_reader_.read(text_, size - 1, 1, count_up_);
  }

  /// Launches a round of `length` draft tokens (0: none; a chain's: up to longest(); else longest()), then
  /// returns the tokens of the round before, empty for the first: valid until the next call. A round after
  /// the text's end is idle. Throws std::invalid_argument for another length, std::logic_error before
  /// start(), and DeviceError: text() is then what was read.
  Tokens step(std::int32_t length) {
    if (length != 0 && !Growth::takes(shape_, length))
      throw std::invalid_argument("cuda::Round::step: length " + std::to_string(length) + ", must be 0 or " +
                                  (Growth::kIsChain ? "1 to " : "") + std::to_string(longest()));
    if (text_on_host_.empty()) throw std::logic_error("cuda::Round::step: no text; call start() first");
    if (length > 0 && unread_ > 0) draft_reader_.read(text_, unread_, again_, count_up_);
    unread_ = length > 0 ? 0 : unread_ + 1;
    const std::size_t which = next_++ % 2;
    Slot& slot = slots_[which];
    device_.replay(graphs_[static_cast<std::size_t>(length) * 2 + which], [&] {
      enqueue(length);
      device_.fetch(slot.record, record_, record_size_);
    });
    device_.signal(slot.done);
    const Tokens out = pending_ ? read(slots_[1 - which]) : Tokens{};
    pending_ = true;
    return out;
  }
  /// The same at full length.
  Tokens step() { return step(longest()); }
  /// The tokens of the last round, without another one.
  Tokens drain() {
    if (!std::exchange(pending_, false)) return {};
    return read(slots_[(next_ + 1) % 2]);
  }

  /// A whole text by rounds of one length; `sink` is given each round's tokens, and may end it by `false`.
  /// Throws as start() and step().
  template <class Sink>
  Generated generate(Tokens prompt, const Limits& limits, std::uint64_t seed, Sink sink) {
    return generate(prompt, limits, seed, std::move(sink), longest());
  }
  /// The same with rounds of `length`.
  template <class Sink>
  Generated generate(Tokens prompt, const Limits& limits, std::uint64_t seed, Sink sink,
                     std::int32_t length) {
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
    return {tokens, stopped                           ? FinishReason::stop_token
                    : tokens >= limits.max_new_tokens ? FinishReason::limit
                                                      : FinishReason::cancelled};
  }

 private:
  static constexpr int kNumbers = 4, kStops = 64;
  static constexpr int kRecord = sizeof(detail::RoundRecord) / sizeof(std::int32_t);

  /// What start() sends.
  struct Settings {
    std::int32_t numbers[kNumbers];  // length, finished, limit, stop tokens
    std::uint64_t seed;
    std::uint32_t sequence;
    Token stops[kStops];
  };
  /// A round's result on the host, and whether it is there.
  struct Slot {
    std::int32_t* record = nullptr;
    typename Device::Signal done;
  };
  /// Gives back what was allocated: if the object is not made, or when it ends.
  struct Memory {
    Device& device;
    std::size_t first;
    ~Memory() { device.release(first, device.allocations()); }
  };

  static RoundOptions checked(const RoundOptions& options, const Shape& shape, const DeviceWeights& target,
                              const DeviceWeights& draft) {
    detail::expect_growth("RoundOptions::capacity", options.capacity, Growth::width(shape) + 1, 1 << 24);
    detail::expect_growth("the draft's vocabulary", draft.vocab, target.vocab, target.vocab);
    detail::expect_growth("the target's positions", target.positions, options.capacity, 1 << 24);
    detail::expect_growth("the draft's positions", draft.positions, options.capacity, 1 << 24);
    if (target.conditioned_on != Conditioning::nothing)
      throw std::invalid_argument("cuda::Round: the target is a draft that reads a target itself");
    if (draft.conditioned_on == Conditioning::features)
      detail::expect_growth("the head's hidden size", draft.hidden, target.hidden, target.hidden);
    return options;
  }
  /// Tokens that the draft reads again: those of which its cache may hold another node's keys, or a head
  /// features of its own. One that keeps them needs what its shape says.
  static int again(const Shape& shape, const DeviceWeights& draft) {
    const bool keeps = draft.conditioned_on == Conditioning::nothing ||
                       (draft.conditioned_on == Conditioning::key_values && draft.layers.size() == 1);
    return keeps ? Growth::again(shape) : std::max(Growth::again(shape), Growth::depth(shape) + 1);
  }
  template <class T>
  T* numbers(std::integral auto n) {
    return device_.template allocate<T>(static_cast<std::size_t>(n));
  }
  const SamplingParams* copied(const SamplingParams& params) {
    SamplingParams* const to = numbers<SamplingParams>(1);
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
    const std::int64_t needed = static_cast<std::int64_t>(prompt.size()) + limits.max_new_tokens + width_;
    if (needed > options_.capacity)
      fail("a prompt of " + std::to_string(prompt.size()) + " tokens, " +
           std::to_string(limits.max_new_tokens) + " new ones and a proposal of " + std::to_string(width_) +
           " need a capacity of " + std::to_string(needed) + ", RoundOptions::capacity is " +
           std::to_string(options_.capacity));
  }

  /// A round's launches. Nothing in them depends on the text.
  void enqueue(std::int32_t length) {
    device_.run(detail::BeginRound{text_, passes_.again(), width_, root_, place_, before_place_});
    RoundProposal proposal{
        root_, nullptr, constants_.begin_of(1), place_, constants_.chain, detail::PassConstants::kWords, 1};
    if (length > 0) proposal = growth_.enqueue(length);
    DevicePass pass;
    pass.tokens = {proposal.token,    proposal.begin, place_, constants_.count,
                   proposal.position, proposal.width, 1};
    pass.mask = proposal.mask, pass.words = proposal.words;
    pass.row = constants_.count, pass.height = height_;
    target_.pass(plan_, pass, true);
    Trees trees{};
    trees.begin = proposal.begin, trees.token = proposal.token, trees.parent = proposal.parent;
    trees.position = place_, trees.seed = seed_, trees.sequence = sequence_;
    TargetRows<float> rows{target_.logits(), target_.weights().vocab};
    rows.params = params_;
    if constexpr (std::is_same_v<Draft, ChosenDraft>)
      device_.verify(rule_, trees, rows, ChosenDraft{}, results_);
    else
      device_.verify(rule_, trees, rows, growth_.draft(), results_);
    if (proposal.parent)
      target_.compact({results_.accepted, results_.count, place_, 1, Growth::depth(shape_) + 1});
    device_.run(detail::EndRound{text_, results_.token, results_.count, results_.status, record_});
  }

  /// What a round has emitted.
  Tokens read(Slot& slot) {
    device_.await(slot.done);
    const auto& record = *reinterpret_cast<const detail::RoundRecord*>(slot.record);
    const std::int32_t* const tokens = slot.record + kRecord;
    const bool idle = finished_;
    const auto before = text_on_host_.size();
    text_on_host_.insert(text_on_host_.end(), tokens, tokens + record.count);
    if (!idle) ++rounds_, finished_ = record.finished != 0, status_ = static_cast<Status>(record.status);
    return Tokens(text_on_host_).subspan(before);
  }

  Shape shape_;
  RoundOptions options_;
  Device& device_;
  Memory memory_;
  detail::PassConstants constants_;
  int width_, height_;
  Decoder target_, draft_;
  std::int32_t* numbers_;
  Token* stops_;
  detail::RoundText text_;
  std::uint64_t* seed_;
  std::uint32_t* sequence_;
  Token* root_;
  std::int32_t *place_, *before_place_;
  int again_;
  detail::RoundDraft<Device> passes_;
  const SamplingParams *params_, *greedy_;
  Growth growth_;
  detail::TextReader<Device> target_reader_, draft_reader_;
  typename Device::Attention plan_;
  typename detail::RoundRule<Rule, Draft>::Plan rule_;
  VerifyResults results_{};
  std::size_t record_size_;
  std::int32_t* record_;
  // The host's, pinned.
  std::int32_t* count_up_;
  Token* prompt_;
  Settings* settings_;
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
