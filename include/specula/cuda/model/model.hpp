// SPDX-License-Identifier: MIT
// A Llama-family decoder on a device as a specula::LanguageModel: rows come to the host.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cuda/model/decoder.hpp"
#include "specula/cuda/model/device_weights.hpp"
#include "specula/cuda/model/pass_input.hpp"
#include "specula/cuda/model/views.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cuda {

/// Sizes of a model on a device, fixed when it is made.
struct ModelOptions {
  std::int32_t capacity = 2048;      ///< tokens of a text, committed and speculative together
  std::int32_t max_nodes = 64;       ///< speculative tokens of a text at a time
  std::int32_t slots = 1;            ///< texts at once
  std::int32_t prefill_chunk = 512;  ///< tokens of a prompt in a pass
  /// Rows of a pass of nodes, of all texts together: 64, 128, 256 or 512. 0: the least that holds max_nodes.
  /// A call with more runs several passes. With PaddedProducts rows have the same bits in all models of one
  /// height and prefill_chunk.
  std::int32_t height = 0;
  bool features = false;  ///< features() are kept
};

namespace detail {

constexpr std::array kHeights{64, 128, 256, 512};

/// The least of the heights that holds `rows`.
inline int height_of(int rows) {
  for (const int height : kHeights)
    if (rows <= height) return height;
  return kHeights.back();
}

/// The options with a height. Throws std::invalid_argument, naming the option, for one that is out of range.
inline ModelOptions checked(ModelOptions options) {
  const auto expect = [](const char* what, std::int32_t value, std::int32_t least, std::int32_t most) {
    if (value < least || value > most)
      throw std::invalid_argument("ModelOptions::" + std::string(what) + " is " + std::to_string(value) +
                                  ", must be " + std::to_string(least) + " to " + std::to_string(most));
  };
  expect("capacity", options.capacity, 1, 1 << 24);
  expect("max_nodes", options.max_nodes, 1, kHeights.back());
  expect("slots", options.slots, 1, 4096);
  expect("prefill_chunk", options.prefill_chunk, 1, kHeights.back());
  if (options.height == 0) options.height = height_of(options.max_nodes);
  if (std::find(kHeights.begin(), kHeights.end(), options.height) == kHeights.end())
    throw std::invalid_argument("ModelOptions::height is " + std::to_string(options.height) +
                                ", must be 64, 128, 256 or 512");
  return options;
}

}  // namespace detail

/// A decoder on a device behind the same members as cpu::Decoder: every drafter on the CPU, shape, rule,
/// cascade, cost model and batch works over it, and a draft may be a second one. The host waits once for each
/// pass; the rows asked for come to it.
///
/// **Bits.** With PaddedProducts a row depends on the tokens from the start of its text to it, on the slots
/// that they have, on how the prompt was appended and in which chunks it ran, and on the height: not on how
/// many nodes or texts share a pass. So a chain has the bits of plain decoding. A tree's nodes sit in other
/// slots than their tokens will, hence in other places of a tile of keys, and their rows may differ by
/// rounding. With FreeProducts rows differ by rounding from those of another pass.
///
/// Memory is allocated by the constructor, but for rows of more nodes than there were before, and is the
/// device's again when the model ends. References the device. Not for concurrent calls. After a DeviceError
/// of a pass the model keeps what it had committed or was given, and every call that needs the device throws
/// that error again.
template <class Device, class Products = PaddedProducts>
class Model {
 public:
  using Decoder = DeviceDecoder<Device>;  ///< what runs its passes

  /// Uploads weights. Throws std::invalid_argument for an option out of range or a model that is not built
  /// for a device, std::runtime_error with the bytes if memory is missing, and DeviceError.
  template <class Real>
  Model(Device& device, const cpu::DecoderWeights<Real>& weights, const ModelOptions& options = {})
      : Model(device, uploaded(device, weights, options), options) {}

  /// Over weights that are on the device, with at least `options.capacity` positions: those of another model,
  /// which must outlive this, or of upload().
  Model(Device& device, const DeviceWeights& weights, const ModelOptions& options = {})
      : Model(device, Uploaded{device.allocations(), weights}, options) {}

  Model(const Model&) = delete;  // slots and views hold its address
  Model& operator=(const Model&) = delete;

  /// Bytes on the device that a model takes, its weights included; without what all models of a device share
  /// to work in: attention's parts over contexts of more than 2,048 tokens, and 32 MiB of products.
  static std::size_t bytes(const cpu::DecoderConfig& config, const ModelOptions& options) {
    const ModelOptions o = detail::checked(options);
    return detail::device_bytes(config, o.capacity) +
           Decoder::bytes(config, o.slots, o.capacity, most(o), o.height, o.features) +
           detail::PassInput<Device>::bytes(o.height, o.slots, node_words(o)) +
           detail::PassInput<Device>::bytes(o.prefill_chunk, o.slots, prompt_words(o));
  }

  const ModelOptions& options() const { return options_; }              ///< with a height
  const DeviceWeights& weights() const { return decoder_.weights(); }   ///< other models may share them
  std::int32_t vocab_size() const { return decoder_.weights().vocab; }  ///< tokens per row

  // ---- one text: slot 0

  std::int32_t size() const { return size(0); }                   ///< committed tokens
  std::int32_t capacity() const { return options_.capacity; }     ///< tokens and nodes of a text
  std::uint64_t change_count() const { return change_count(0); }  ///< see CountsChanges
  /// Prefill: runs `prefill_chunk` tokens a pass. Fewer than 64, and than a chunk, wait for the next
  /// extend(). Throws std::invalid_argument, and changes nothing, for a token out of range or more tokens
  /// than fit.
  void append(Tokens tokens) {
    expect_working();
    append(0, tokens);
    on_device([&] {
      settle();
      read_prompt(0, true);
    });
  }
  /// One pass over new nodes; see LanguageModel. Throws std::invalid_argument, and changes nothing, for a bad
  /// token or parent, more nodes than max_nodes, or a full context.
  LogitsView extend(Tokens tokens, Nodes parents) {
    const SlotNodes nodes{0, tokens, parents};
    return extend(std::span(&nodes, 1));
  }
  void commit(Nodes path) { commit(0, path); }       ///< see LanguageModel
  void truncate(std::int32_t n) { truncate(0, n); }  ///< see LanguageModel
  auto key_values() { return key_values(0); }        ///< see ExposesKeyValues
  DeviceFeatures features() { return features(0); }  ///< see ExposesFeatures

  // ---- several texts; see BatchedLanguageModel. All throw std::invalid_argument for a slot out of range.

  static constexpr bool kBatchInvariant = Products::kPadded;     ///< see BatchInvariant
  std::int32_t slots() const { return options_.slots; }          ///< texts at once
  std::int32_t chunk() const { return options_.prefill_chunk; }  ///< queued tokens of a pass without nodes
  /// Committed tokens, queued ones included.
  std::int32_t size(std::int32_t slot) const { return text(slot).size(); }
  /// Of each text.
  std::int32_t capacity(std::int32_t slot) const { return static_cast<void>(text(slot)), options_.capacity; }
  /// Committed tokens that have yet to run.
  std::int32_t queued(std::int32_t slot) const { return text(slot).waiting(); }
  std::uint64_t change_count(std::int32_t slot) const { return text(slot).changes.now(); }  ///< of this text

  /// append() that only queues.
  void append(std::int32_t slot, Tokens tokens) {
    Text& own = text(slot);
    check_tokens("append", tokens);
    check_room("append", own.size(), tokens.size());
    own.changes.next();
    own.nodes.clear();
    own.queue.insert(own.queue.end(), tokens.begin(), tokens.end());
  }

  /// The nodes of several texts, with their queued tokens; of a slot named without nodes at most a chunk of
  /// those. Returns the rows of the nodes, in this order, valid until the next pass. Passes of up to
  /// options().height rows; prompts have passes of their own. Throws std::invalid_argument as extend() of one
  /// text and for a slot that is named twice; no slot has new nodes then.
  LogitsView extend(std::span<const SlotNodes> nodes) {
    check_nodes(nodes);
    std::size_t wanted = 0;
    for (const SlotNodes& own : nodes) wanted += own.tokens.size();
    expect_working();
    if (wanted > rows_room_) {
      const std::size_t room = std::bit_ceil(wanted), at = device_.allocations();
      rows_ = device_.template allocate_host<float>(room * static_cast<std::size_t>(vocab_size()));
      holding_.replace_rows(at);
      rows_room_ = room;
    }
    on_device([&] {
      settle();
      for (const SlotNodes& own : nodes)
        text(own.slot).chunk_ran = read_prompt(own.slot, !own.tokens.empty());
      run_nodes(nodes);
    });
    return {rows_, static_cast<std::int32_t>(wanted), vocab_size(), vocab_size()};
  }

  /// Commits the accepted path and drops all other nodes. What they left in the cache moves before the next
  /// pass. Throws std::invalid_argument, and changes nothing, if `path` is no path from the context down.
  void commit(std::int32_t slot, Nodes path) {
    Text& own = text(slot);
    check_path(own, path);
    own.changes.next();
    bool moves = false;
    for (std::size_t i = 0; i < path.size(); ++i) moves = moves || path[i] != static_cast<NodeId>(i);
    if (moves) own.path.assign(path.begin(), path.end()), own.path_after = own.ran;
    if (!path.empty()) own.ran += static_cast<std::int32_t>(path.size());
    own.nodes.clear();
  }

  /// KV cache rollback. O(1). Throws std::invalid_argument, and changes nothing, unless 0 <= n <= size(slot).
  void truncate(std::int32_t slot, std::int32_t n) {
    Text& own = text(slot);
    if (n < 0 || n > own.size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " + std::to_string(own.size()));
    own.changes.next();
    own.nodes.clear();
    own.queue.resize(own.queue_begin + static_cast<std::size_t>(std::max(0, n - own.ran)));
    own.ran = std::min(own.ran, n);
  }

  /// Keys and values on the device; runs queued tokens first.
  DeviceKeyValues<Decoder> key_values(std::int32_t slot) {
    flush(slot);
    return {decoder_, slot, size(slot), specula::detail::ViewGuard(text(slot).changes)};
  }
  /// Features on the device, if options().features; runs queued tokens first. Throws std::logic_error if they
  /// are not kept.
  DeviceFeatures features(std::int32_t slot) {
    if (!options_.features) throw std::logic_error("cuda::Model::features: ModelOptions::features is false");
    flush(slot);
    const std::int32_t width = decoder_.weights().hidden;
    return {decoder_.features() + static_cast<std::int64_t>(slot) * options_.capacity * width, size(slot),
            width, specula::detail::ViewGuard(text(slot).changes)};
  }

 private:
  static constexpr std::int32_t kWaiting = 64;  // fewer queued tokens than this, or a chunk, run with nodes
  static constexpr int kCounts = 10;            // 1, 2, 4, ... 512 tokens

  struct Node {
    NodeId parent;
    std::int32_t depth;
  };
  struct Text {
    std::int32_t ran = 0;      // committed tokens in the cache; those of `queue` follow
    std::vector<Token> queue;  // from queue_begin on
    std::size_t queue_begin = 0;
    std::vector<Node> nodes;    // in the slots after `ran`, if the queue is empty
    std::int32_t in_cache = 0;  // of the nodes
    bool chunk_ran = false;     // of its prompt, in this call
    std::vector<NodeId> path;   // committed, to be moved to the slots from path_after on
    std::int32_t path_after = 0;
    specula::detail::ChangeCount changes;

    std::int32_t waiting() const { return static_cast<std::int32_t>(queue.size() - queue_begin); }
    std::int32_t size() const { return ran + waiting(); }
    bool moves() const { return !path.empty(); }
  };
  /// Passes of one kind: a plan for each number of tokens, or one for all.
  struct Kind {
    detail::PassInput<Device> input;
    int height;                                             // of the products, if they are padded
    std::array<typename Device::Attention, kCounts> plans;  // the first one alone, if they are
    std::array<std::array<typename Device::Recording, 2>, kCounts> recordings;  // without rows, and with
  };

  [[noreturn]] static void fail(const std::string& what) {
    throw std::invalid_argument("cuda::Model::" + what);
  }

  /// Weights, and how many allocations there were before them.
  struct Uploaded {
    std::size_t first;
    DeviceWeights weights;
  };
  /// Gives back what was allocated since `first`: if the model is not made, or when it ends; and its rows.
  struct Holding {
    Device& device;
    std::size_t first, last = 0, rows = 0;  // one after the number of the rows' allocation; 0: none

    void replace_rows(std::size_t by) {
      if (rows > 0) device.release(rows - 1, rows);
      rows = by + 1;
    }
    ~Holding() {
      if (rows > 0) device.release(rows - 1, rows);
      device.release(first, last > 0 ? last : device.allocations());
    }
  };
  template <class Real>
  static Uploaded uploaded(Device& device, const cpu::DecoderWeights<Real>& weights,
                           const ModelOptions& options) {
    const std::size_t needed = bytes(weights.config, options), free = device.free_bytes();
    if (needed > free)
      throw std::runtime_error("cuda::Model: needs " + std::to_string(needed) +
                               " bytes of the device's memory, of which " + std::to_string(free) +
                               " are free; a smaller ModelOptions::capacity or fewer slots need less");
    const std::size_t first = device.allocations();
    try {
      return {first, upload(device, weights, detail::checked(options).capacity)};
    } catch (...) {
      device.release(first, device.allocations());
      throw;
    }
  }
  Model(Device& device, const Uploaded& uploaded, const ModelOptions& options)
      : options_(detail::checked(options)),
        device_(device),
        holding_{device, uploaded.first},
        decoder_(device, with_positions(uploaded.weights, options_), options_.slots, options_.capacity,
                 most(options_), options_.height, options_.features),
        nodes_{{device, options_.height, options_.slots, node_words(options_)}, options_.height, {}, {}},
        prompts_{{device, options_.prefill_chunk, options_.slots, prompt_words(options_)},
                 detail::height_of(options_.prefill_chunk),
                 {},
                 {}},
        texts_(static_cast<std::size_t>(options_.slots)),
        fewest_(std::min(kWaiting, options_.prefill_chunk)),
        mask_(static_cast<std::size_t>(std::max(node_words(options_), prompt_words(options_)))) {
    const auto places =
        static_cast<std::size_t>(options_.slots) * static_cast<std::size_t>(options_.max_nodes + 2);
    moves_host_ = device.template allocate_host<std::int32_t>(places);
    moves_ = device.template allocate<std::int32_t>(places);
    prepare(nodes_, true);
    prepare(prompts_, false);
    parts_.reserve(texts_.size());
    pieces_.reserve(texts_.size());
    for (Text& text : texts_) {
      text.queue.reserve(static_cast<std::size_t>(options_.capacity));
      text.nodes.reserve(static_cast<std::size_t>(options_.max_nodes));
      text.path.reserve(static_cast<std::size_t>(options_.max_nodes));
    }
    holding_.last = device.allocations();
  }
  static const DeviceWeights& with_positions(const DeviceWeights& weights, const ModelOptions& options) {
    if (weights.positions < options.capacity)
      throw std::invalid_argument("ModelOptions::capacity is " + std::to_string(options.capacity) +
                                  ", the weights were uploaded for " + std::to_string(weights.positions) +
                                  " positions");
    return weights;
  }
  static int most(const ModelOptions& options) {
    return std::max(options.height, detail::height_of(options.prefill_chunk));
  }
  /// Of masks: over the nodes of a text and the queued tokens before them; attention wants as many bits as a
  /// pass has rows.
  static int node_words(const ModelOptions& options) {
    return words(std::max(options.height, options.max_nodes + kWaiting - 1));
  }
  static int prompt_words(const ModelOptions& options) { return words(options.prefill_chunk); }
  static int words(int bits) { return (bits + 63) / 64; }

  void prepare(Kind& kind, bool has_rows) {
    if constexpr (Products::kPadded) {
      kind.plans[0] = decoder_.plan(kind.input.most(), true);  // the largest pass chooses the kernel, for all
      decoder_.prepare(kind.height, true, has_rows);
    } else {
      for (std::size_t log = 0; log < kCounts && 1 << log < 2 * kind.input.most(); ++log) {
        const int count = std::min(1 << log, kind.input.most());
        kind.plans[log] = decoder_.plan(count, false);
        decoder_.prepare(count, false, has_rows);
      }
    }
  }

  template <class F>
  void on_device(F call) {
    expect_working();
    try {
      call();
    } catch (const DeviceError&) {
      failure_ = std::current_exception();
      for (Text& own : texts_) own.changes.next(), own.nodes.clear(), own.in_cache = 0;
      throw;
    }
  }
  void expect_working() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  // ---- checks

  Text& text(std::int32_t slot) {
    if (slot < 0 || slot >= options_.slots)
      fail("slot " + std::to_string(slot) + ", must be 0 to " + std::to_string(options_.slots - 1));
    return texts_[static_cast<std::size_t>(slot)];
  }
  const Text& text(std::int32_t slot) const { return const_cast<Model*>(this)->text(slot); }

  void check_tokens(const char* call, Tokens tokens) const {
    for (const Token token : tokens)
      if (token < 0 || token >= vocab_size())
        fail(std::string(call) + ": token " + std::to_string(token) + ", must be 0 to " +
             std::to_string(vocab_size() - 1));
  }
  void check_room(const char* call, std::int32_t used, std::size_t wanted) const {
    if (wanted > static_cast<std::size_t>(options_.capacity - used))
      fail(std::string(call) + ": the context is full: " + std::to_string(used) + " of capacity " +
           std::to_string(options_.capacity) + " tokens in use, " + std::to_string(wanted) +
           " more asked for");
  }
  void check_nodes(std::span<const SlotNodes> nodes) const {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const auto& [slot, tokens, parents] = nodes[n];
      const Text& own = text(slot);
      for (std::size_t other = 0; other < n; ++other)
        if (nodes[other].slot == slot) fail("extend: slot " + std::to_string(slot) + " is named twice");
      check_tokens("extend", tokens);
      if (parents.size() != tokens.size())
        fail("extend: " + std::to_string(tokens.size()) + " tokens and " + std::to_string(parents.size()) +
             " parents");
      const auto before = static_cast<NodeId>(own.nodes.size());
      if (tokens.size() > static_cast<std::size_t>(options_.max_nodes - before))
        fail("extend: " + std::to_string(before) + " nodes and " + std::to_string(tokens.size()) +
             " more, but max_nodes is " + std::to_string(options_.max_nodes));
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (parents[i] != kNoParent && (parents[i] < 0 || parents[i] >= before + static_cast<NodeId>(i)))
          fail("extend: parent " + std::to_string(parents[i]) + " of node " +
               std::to_string(before + static_cast<NodeId>(i)) + ", must be an earlier node or kNoParent");
      check_room("extend", own.size() + before, tokens.size());
    }
  }
  void check_path(const Text& own, Nodes path) const {
    for (std::size_t i = 0; i < path.size(); ++i) {
      const NodeId node = path[i], parent = i == 0 ? kNoParent : path[i - 1];
      if (node < 0 || node >= static_cast<NodeId>(own.nodes.size()))
        fail("commit: node " + std::to_string(node) + ", must be 0 to " +
             std::to_string(static_cast<NodeId>(own.nodes.size()) - 1));
      if (own.nodes[static_cast<std::size_t>(node)].parent != parent)
        fail("commit: node " + std::to_string(node) + " is no child of " +
             (parent == kNoParent ? "the context" : "node " + std::to_string(parent)) +
             ", must be a path from the context down");
    }
  }

  // ---- passes

  /// Runs queued tokens of a text in passes of their own, while there are many: one chunk, or all of them.
  /// Whether any ran.
  bool read_prompt(std::int32_t slot, bool all) {
    Text& own = text(slot);
    bool any = false;
    for (bool more = true; more && own.waiting() >= fewest_; more = all, any = true) {
      own.changes.next();
      const std::int32_t n = std::min(own.waiting(), options_.prefill_chunk);
      prompts_.input.clear();
      prompts_.input.begin(slot, own.ran, 0);
      add_queued(prompts_.input, own, n);
      run(prompts_);
      device_.wait();
      take(own, n);
    }
    return any;
  }
  /// Runs all queued tokens of a text.
  void flush(std::int32_t slot) {
    const SlotNodes none{slot, {}, {}};
    text(slot).chunk_ran = false;
    on_device([&] {
      settle();
      read_prompt(slot, true);
      run_nodes(std::span(&none, 1));
      device_.wait();
    });
  }

  /// A text's part of a call, and of one of its passes.
  struct Part {
    const SlotNodes* nodes;
    std::size_t row;  // of its first node
  };
  struct Piece {
    std::int32_t slot, queued, nodes;
    std::size_t row;
  };

  /// Nodes of several texts after their queued tokens, which are few, in as many passes as they need.
  void run_nodes(std::span<const SlotNodes> nodes) {
    parts_.clear();
    std::size_t row = 0;
    for (const SlotNodes& own : nodes) parts_.push_back({&own, row}), row += own.tokens.size();
    // A pass has its texts in the order of their slots.
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.nodes->slot < b.nodes->slot; });
    begin_pass();
    for (const Part& part : parts_) {
      Text& own = text(part.nodes->slot);
      if (part.nodes->tokens.empty() && own.chunk_ran) continue;
      const auto first = static_cast<std::int32_t>(own.nodes.size());
      add_nodes(own, *part.nodes);
      for (bool done = own.waiting() == 0 && part.nodes->tokens.empty(); !done;) {
        if (nodes_.input.count() == nodes_.input.most()) end_pass();
        const std::int32_t room = nodes_.input.most() - nodes_.input.count();
        const std::int32_t queued = std::min(room, own.waiting());
        const std::int32_t left = static_cast<std::int32_t>(own.nodes.size()) - own.in_cache;
        const std::int32_t more = std::min(room - queued, left);
        nodes_.input.begin(part.nodes->slot, own.ran, own.in_cache);
        add_queued(nodes_.input, own, queued);
        for (std::int32_t i = own.in_cache; i < own.in_cache + more; ++i) add_node(own, i, queued);
        pieces_.push_back(
            {part.nodes->slot, queued, more, part.row + static_cast<std::size_t>(own.in_cache - first)});
        done = queued == own.waiting() && more == left;
        if (!done) end_pass();
      }
    }
    if (!pieces_.empty()) end_pass();
  }
  void begin_pass() { nodes_.input.clear(), pieces_.clear(); }
  /// Runs the pass, and fetches its rows.
  void end_pass() {
    run(nodes_);
    const auto vocab = static_cast<std::size_t>(vocab_size());
    std::size_t from = 0;
    for (const Piece& piece : pieces_) {
      Text& own = text(piece.slot);
      own.changes.next();
      take(own, piece.queued);
      own.in_cache += piece.nodes;
      const auto rows = static_cast<std::size_t>(piece.nodes);
      if (rows > 0) device_.fetch(rows_ + piece.row * vocab, decoder_.logits() + from * vocab, rows * vocab);
      from += rows;
    }
    device_.wait();  // for the rows, and for the arrays that the next pass writes
    begin_pass();
  }

  void add_nodes(Text& own, const SlotNodes& nodes) {
    if (own.nodes.empty()) own.in_cache = 0;
    for (const NodeId parent : nodes.parents)
      own.nodes.push_back(
          {parent, parent == kNoParent ? 0 : own.nodes[static_cast<std::size_t>(parent)].depth + 1});
    new_tokens_ = nodes.tokens;
  }
  /// The text's next queued tokens, as a chain.
  void add_queued(detail::PassInput<Device>& input, const Text& own, std::int32_t n) {
    std::fill(mask_.begin(), mask_.end(), 0);
    for (std::int32_t i = 0; i < n; ++i) {
      see(i);
      input.add(own.queue[own.queue_begin + static_cast<std::size_t>(i)], own.ran + i, false, mask_);
    }
  }
  /// A node of a text, after `queued` tokens of the same pass.
  void add_node(const Text& own, std::int32_t node, std::int32_t queued) {
    std::fill(mask_.begin(), mask_.end(), 0);
    for (std::int32_t i = 0; i < queued; ++i) see(i);
    for (NodeId up = node; up != kNoParent; up = own.nodes[static_cast<std::size_t>(up)].parent)
      see(queued + up);
    const auto fresh = own.nodes.size() - new_tokens_.size();
    nodes_.input.add(new_tokens_[static_cast<std::size_t>(node) - fresh],
                     own.ran + queued + own.nodes[static_cast<std::size_t>(node)].depth, true, mask_);
  }
  void see(std::int32_t i) { mask_[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << i % 64; }
  /// So many queued tokens are in the cache now.
  static void take(Text& own, std::int32_t n) {
    own.ran += n;
    own.queue_begin += static_cast<std::size_t>(n);
    if (own.waiting() == 0) own.queue.clear(), own.queue_begin = 0;
  }

  void run(Kind& kind) {
    kind.input.send(device_);
    const bool has_rows = kind.input.rows() > 0;
    const auto log = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(kind.input.count() - 1)));
    const int count = std::min(1 << log, kind.input.most());
    const int height = Products::kPadded ? kind.height : count;
    device_.replay(kind.recordings[log][has_rows ? 1 : 0], [&] {
      decoder_.pass(kind.plans[Products::kPadded ? 0 : log], kind.input.pass(count, height), has_rows);
    });
  }

  /// Moves what committed paths left in the cache.
  void settle() {
    const auto slots = static_cast<std::size_t>(options_.slots),
               most = static_cast<std::size_t>(options_.max_nodes);
    std::int32_t *const count = moves_host_ + slots * most, *const prefix = count + slots;
    if (std::none_of(texts_.begin(), texts_.end(), [](const Text& own) { return own.moves(); })) return;
    for (std::size_t b = 0; b < slots; ++b) {
      Text& own = texts_[b];
      std::copy(own.path.begin(), own.path.end(), moves_host_ + b * most);
      count[b] = static_cast<std::int32_t>(own.path.size()), prefix[b] = own.path_after;
      own.path.clear();
    }
    device_.send(moves_, moves_host_, slots * (most + 2));
    decoder_.compact(
        {moves_, moves_ + slots * most, moves_ + slots * (most + 1), options_.slots, options_.max_nodes});
  }

  ModelOptions options_;
  Device& device_;
  Holding holding_;
  Decoder decoder_;
  Kind nodes_, prompts_;
  std::vector<Text> texts_;  // by slot
  std::int32_t fewest_;      // queued tokens that have a pass of their own
  std::exception_ptr failure_;
  std::int32_t *moves_host_ = nullptr,
               *moves_ = nullptr;  // (B, max_nodes) paths, (B) nodes, (B) slots before
  float* rows_ = nullptr;
  std::size_t rows_room_ = 0;

  // Of the call that runs.
  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
  Tokens new_tokens_;
  std::vector<std::uint64_t> mask_;
};

}  // namespace specula::cuda
