// SPDX-License-Identifier: MIT
// Passes of a model on a device: which queued tokens and nodes of which texts run together.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cuda/model/decoder.hpp"
#include "specula/cuda/model/detail/device_texts.hpp"
#include "specula/cuda/model/model_options.hpp"
#include "specula/cuda/model/pass_input.hpp"
#include "specula/model/batched_language_model.hpp"

namespace specula::cuda::detail {

/// Runs the texts' tokens in passes of two kinds: of nodes, with queued tokens if these are few, and of
/// prompts. References device, decoder and texts.
template <class Device, class Products>
class DevicePasses {
 public:
  DevicePasses(Device& device, DeviceDecoder<Device>& decoder, DeviceTexts& texts,
               const ModelOptions& options)
      : options_(options),
        device_(device),
        decoder_(decoder),
        texts_(texts),
        reads_(decoder.weights().conditioned_on),
        fewest_(std::min(kWaiting, options.prefill_chunk)),
        nodes_{
            {device, options.height, options.slots, node_words(options), reads_}, options.height, {}, {}, {}},
        prompts_{{device, options.prefill_chunk, options.slots, words(options.prefill_chunk), reads_},
                 height_of(options.prefill_chunk),
                 {},
                 {},
                 {}},
        moves_host_(device.template allocate_host<std::int32_t>(moves(options))),
        moves_(device.template allocate<std::int32_t>(moves(options))),
        mask_(static_cast<std::size_t>(std::max(node_words(options), words(options.prefill_chunk)))),
        before_(mask_) {
    prepare(nodes_, true);
    prepare(prompts_, false);
    parts_.reserve(static_cast<std::size_t>(options.slots));
    pieces_.reserve(static_cast<std::size_t>(options.slots));
  }

  /// Bytes of its arrays on the device, of a model that reads `of_target` of its target.
  static std::size_t bytes(const ModelOptions& options, Conditioning of_target) {
    return PassInput<Device>::bytes(options.height, options.slots, node_words(options), of_target) +
           PassInput<Device>::bytes(options.prefill_chunk, options.slots, words(options.prefill_chunk),
                                    of_target) +
           sizeof(std::int32_t) * moves(options);
  }
  /// Tokens of a pass, at most.
  static int most(const ModelOptions& options) {
    return std::max(options.height, height_of(options.prefill_chunk));
  }

  /// The target of a draft that reads it, for good: captured passes have its addresses.
  void set_target(const DeviceDecoder<Device>& target) {
    if (target_ == &target) return;
    if (target_)
      throw std::invalid_argument(
          "cuda::Model::set_target_state: a draft on a device has one target for good");
    if (reads_ == Conditioning::key_values)
      for (Kind* const kind : {&nodes_, &prompts_})
        for_plans(*kind, [&](std::size_t log, int count, bool exact) {
          kind->cross[log] = decoder_.plan_cross(target, count, exact);
        });
    target_ = &target;
  }

  /// Runs waiting tokens of a text while there are many.
  void read_prompt(std::int32_t slot) {
    settle();
    run_chunks(slot, true);
  }
  /// Runs all waiting tokens of a text.
  void flush(std::int32_t slot) {
    const SlotNodes none{slot, {}, {}};
    read_prompt(slot);
    texts_[slot].chunk_ran = false;
    run_nodes(std::span(&none, 1), nullptr);
    device_.wait();
  }
  /// Nodes of several texts, checked, with the tokens that wait: see BatchedLanguageModel. Their rows go to
  /// `rows`, in this order.
  void extend(std::span<const SlotNodes> nodes, float* rows) {
    settle();
    for (const SlotNodes& slot_nodes : nodes)
      texts_[slot_nodes.slot].chunk_ran = run_chunks(slot_nodes.slot, !slot_nodes.tokens.empty());
    run_nodes(nodes, rows);
  }

 private:
  static constexpr std::int32_t kWaiting = 64;  // fewer waiting tokens than this, or a chunk, run with nodes
  static constexpr int kCounts = 10;            // 1, 2, 4, ... 512 tokens

  /// Passes of one kind: a plan for each number of tokens, or one for all.
  struct Kind {
    PassInput<Device> input;
    int height;                                             // of the products, if they are padded
    std::array<typename Device::Attention, kCounts> plans,  // the first one alone, if they are
        cross;                                              // the same over the target's keys and values
    std::array<std::array<typename Device::Recording, 2>, kCounts> recordings;  // without rows, and with
  };
  /// A text's part of a call, and of one of its passes.
  struct Part {
    const SlotNodes* nodes;
    std::size_t row;  // of its first node
  };
  struct Piece {
    std::int32_t slot, queued, nodes;
    std::size_t row;
  };

  static int words(int bits) { return (bits + 63) / 64; }
  /// Of masks: over the nodes of a text and the waiting tokens before them; attention wants as many bits as a
  /// pass has rows.
  static int node_words(const ModelOptions& options) {
    return words(std::max(options.height, options.max_nodes + kWaiting - 1));
  }
  /// Numbers that say how paths move: (B, max_nodes) nodes, (B) how many, (B) slots before.
  static std::size_t moves(const ModelOptions& options) {
    return static_cast<std::size_t>(options.slots) * static_cast<std::size_t>(options.max_nodes + 2);
  }

  /// Of each plan of a kind: its number, the most tokens of a pass, and whether it is for exact products.
  static void for_plans(const Kind& kind, auto run) {
    if constexpr (Products::kPadded)
      run(std::size_t{0}, kind.input.most(), true);  // the largest pass chooses the kernel, for all
    else
      for (std::size_t log = 0; log < kCounts && 1 << log < 2 * kind.input.most(); ++log)
        run(log, std::min(1 << log, kind.input.most()), false);
  }
  void prepare(Kind& kind, bool has_rows) {
    for_plans(kind, [&](std::size_t log, int count, bool exact) {
      kind.plans[log] = decoder_.plan(count, exact);
      decoder_.prepare(exact ? kind.height : count, exact, has_rows);
    });
  }

  /// Runs waiting tokens of a text in passes of their own: one chunk, or all. Whether any ran.
  bool run_chunks(std::int32_t slot, bool all) {
    DeviceText& text = texts_[slot];
    bool any = false;
    for (bool more = true; more && text.waiting() >= fewest_; more = all, any = true) {
      text.changes.next();
      const std::int32_t n = std::min(text.waiting(), options_.prefill_chunk);
      prompts_.input.clear();
      prompts_.input.begin(slot, text.ran, 0);
      add_queued(prompts_.input, text, n);
      run(prompts_);
      device_.wait();
      text.take(n);
    }
    return any;
  }

  /// Nodes of several texts after their waiting tokens, which are few, in as many passes as they need.
  void run_nodes(std::span<const SlotNodes> nodes, float* rows) {
    parts_.clear();
    std::size_t row = 0;
    for (const SlotNodes& slot_nodes : nodes) {
      parts_.push_back({&slot_nodes, row});
      row += slot_nodes.tokens.size();
    }
    // A pass has its texts in the order of their slots.
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.nodes->slot < b.nodes->slot; });
    begin_pass();
    for (const Part& part : parts_)
      if (!part.nodes->tokens.empty() || !texts_[part.nodes->slot].chunk_ran) run_text(part, rows);
    if (!pieces_.empty()) end_pass(rows);
  }
  void run_text(const Part& part, float* rows) {
    DeviceText& text = texts_[part.nodes->slot];
    const std::int32_t first = text.node_count();
    text.add_nodes(part.nodes->tokens, part.nodes->parents);
    for (bool done = text.waiting() == 0 && part.nodes->tokens.empty(); !done;) {
      if (nodes_.input.count() == nodes_.input.most()) end_pass(rows);
      const std::int32_t room = nodes_.input.most() - nodes_.input.count();
      const std::int32_t queued = std::min(room, text.waiting()), left = text.node_count() - text.in_cache;
      const std::int32_t more =
          std::min(room - queued, reads_ == Conditioning::features ? level(text) : left);
      nodes_.input.begin(part.nodes->slot, text.ran, text.in_cache);
      add_queued(nodes_.input, text, queued);
      for (std::int32_t i = text.in_cache; i < text.in_cache + more; ++i) add_node(text, i, queued);
      pieces_.push_back(
          {part.nodes->slot, queued, more, part.row + static_cast<std::size_t>(text.in_cache - first)});
      done = queued == text.waiting() && more == left;
      if (!done) end_pass(rows);
    }
  }
  /// Nodes that have to run, up to the first one whose parent is among them: a head's feature is its
  /// parent's.
  static std::int32_t level(const DeviceText& text) {
    std::int32_t n = text.in_cache;
    while (n < text.node_count() && text.nodes[static_cast<std::size_t>(n)].parent < text.in_cache) ++n;
    return n - text.in_cache;
  }
  void begin_pass() {
    nodes_.input.clear();
    pieces_.clear();
  }
  /// Runs the pass, and fetches its rows.
  void end_pass(float* to) {
    run(nodes_);
    const auto vocab = static_cast<std::size_t>(decoder_.weights().vocab);
    std::size_t from = 0;
    for (const Piece& piece : pieces_) {
      DeviceText& text = texts_[piece.slot];
      text.changes.next();
      text.take(piece.queued);
      text.in_cache += piece.nodes;
      const auto rows = static_cast<std::size_t>(piece.nodes);
      if (rows > 0) device_.fetch(to + piece.row * vocab, decoder_.logits() + from * vocab, rows * vocab);
      from += rows;
    }
    device_.wait();  // for the rows, and for the arrays that the next pass writes
    begin_pass();
  }

  /// The text's next waiting tokens, as a chain.
  void add_queued(PassInput<Device>& input, const DeviceText& text, std::int32_t n) {
    std::fill(mask_.begin(), mask_.end(), 0);
    for (std::int32_t i = 0; i < n; ++i) {
      before_ = mask_;
      see(i);
      input.add(text.queue[text.queue_begin + static_cast<std::size_t>(i)], text.ran + i, false, mask_,
                target_feature(text, text.ran + i), before_);
    }
  }
  /// A node of a text, after `queued` tokens of the same pass.
  void add_node(const DeviceText& text, std::int32_t number, std::int32_t queued) {
    std::fill(mask_.begin(), mask_.end(), 0);
    for (std::int32_t i = 0; i < queued; ++i) see(i);
    before_ = mask_;
    for (NodeId up = number; up != kNoParent; up = text.nodes[static_cast<std::size_t>(up)].parent)
      see(queued + up);
    const DeviceText::Node& node = text.nodes[static_cast<std::size_t>(number)];
    const std::int32_t first = text.ran + queued;
    nodes_.input.add(node.token, first + node.depth, true, mask_,
                     node.parent == kNoParent ? target_feature(text, first) : first + node.parent, before_);
  }
  /// Where the feature before the token at `position` lies; see Gather.
  std::int32_t target_feature(const DeviceText& text, std::int32_t position) const {
    if (reads_ == Conditioning::nothing || position == 0) return Gather::kNoFeature;
    if (position > text.target_size)
      throw std::logic_error("cuda::Model: a draft's token at position " + std::to_string(position) +
                             ", but its target has processed " + std::to_string(text.target_size) +
                             " tokens; bring the target there first");
    return Gather::of_target(position - 1);
  }
  void see(std::int32_t i) { mask_[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << i % 64; }

  void run(Kind& kind) {
    kind.input.send(device_);
    const bool has_rows = kind.input.rows() > 0;
    const auto log = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(kind.input.count() - 1)));
    const int count = std::min(1 << log, kind.input.most());
    const int height = Products::kPadded ? kind.height : count;
    device_.replay(kind.recordings[log][has_rows ? 1 : 0], [&] {
      const std::size_t plan = Products::kPadded ? 0 : log;
      decoder_.pass(kind.plans[plan], kind.input.pass(count, height), has_rows,
                    kind.input.target(target_, &kind.cross[plan]));
    });
  }

  /// Moves what committed paths left in the cache.
  void settle() {
    const auto all = texts_.all();
    if (std::none_of(all.begin(), all.end(), [](const DeviceText& text) { return text.moves(); })) return;
    const auto most = static_cast<std::size_t>(options_.max_nodes);
    std::int32_t *const count = moves_host_ + all.size() * most, *const before = count + all.size();
    for (std::size_t b = 0; b < all.size(); ++b) {
      DeviceText& text = all[b];
      std::copy(text.path.begin(), text.path.end(), moves_host_ + b * most);
      count[b] = static_cast<std::int32_t>(text.path.size());
      before[b] = text.path_after;
      text.path.clear();
    }
    device_.send(moves_, moves_host_, moves(options_));
    decoder_.compact({moves_, moves_ + all.size() * most, moves_ + all.size() * (most + 1), options_.slots,
                      options_.max_nodes});
  }

  ModelOptions options_;
  Device& device_;
  DeviceDecoder<Device>& decoder_;
  DeviceTexts& texts_;
  Conditioning reads_;
  const DeviceDecoder<Device>* target_ = nullptr;  // of a draft that reads it
  std::int32_t fewest_;                            // waiting tokens that have a pass of their own
  Kind nodes_, prompts_;
  std::int32_t *moves_host_, *moves_;
  // Of the call that runs.
  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> mask_, before_;  // of the token to be added: nodes, and the target's tokens
};

}  // namespace specula::cuda::detail
