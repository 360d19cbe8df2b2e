// SPDX-License-Identifier: MIT
// A Llama-family decoder on a device as a specula::LanguageModel: rows come to the host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/base/rows.hpp"
#include "specula/cuda/model/decoder.hpp"
#include "specula/cuda/model/detail/device_passes.hpp"
#include "specula/cuda/model/detail/device_texts.hpp"
#include "specula/cuda/model/device_weights.hpp"
#include "specula/cuda/model/model_options.hpp"
#include "specula/cuda/model/views.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cuda {

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
           Decoder::bytes(config, o.slots, o.capacity, Passes::most(o), o.height, o.features) +
           Passes::bytes(o, config.conditioned_on);
  }

  const ModelOptions& options() const { return options_; }              ///< with a height
  const DeviceWeights& weights() const { return decoder_.weights(); }   ///< other models may share them
  std::int32_t vocab_size() const { return decoder_.weights().vocab; }  ///< tokens per row

  // ---- one text: slot 0

  std::int32_t size() const { return size(0); }                   ///< committed tokens
  std::int32_t capacity() const { return options_.capacity; }     ///< tokens and nodes of a text
  std::uint64_t change_count() const { return change_count(0); }  ///< see CountsChanges
  /// Prefill: runs `prefill_chunk` tokens per pass. Fewer than 64, and than a chunk, wait for the next
  /// extend(). Throws std::invalid_argument, and changes nothing, for a token out of range or more tokens
  /// than fit.
  void append(Tokens tokens) {
    expect_working();
    expect_view(0);
    append(0, tokens);
    on_device([&] { passes_.read_prompt(0); });
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
  auto features() { return features(0); }            ///< see ExposesFeatures

  // ---- several texts; see BatchedLanguageModel. All throw std::invalid_argument for a slot out of range.

  static constexpr bool kBatchInvariant = Products::kPadded;     ///< see BatchedLanguageModel
  std::int32_t slots() const { return options_.slots; }          ///< texts at once
  std::int32_t chunk() const { return options_.prefill_chunk; }  ///< queued tokens of a pass without nodes
  /// Committed tokens, queued ones included.
  std::int32_t size(std::int32_t slot) const { return texts_[slot].size(); }
  /// Of each text.
  std::int32_t capacity(std::int32_t slot) const {
    return static_cast<void>(texts_[slot]), options_.capacity;
  }
  /// Committed tokens that have yet to run.
  std::int32_t queued(std::int32_t slot) const { return texts_[slot].waiting(); }
  std::uint64_t change_count(std::int32_t slot) const {
    return texts_[slot].changes.now();
  }  ///< of this text

  /// append() that only queues.
  void append(std::int32_t slot, Tokens tokens) { texts_.append(slot, tokens); }

  /// The nodes of several texts, with their queued tokens; of a slot named without nodes at most a chunk of
  /// those. Returns the rows of the nodes, in this order, valid until the next pass. Passes of up to
  /// options().height rows; prompts have passes of their own. Throws std::invalid_argument as extend() of one
  /// text and for a slot that is named twice; no slot has new nodes then.
  LogitsView extend(std::span<const SlotNodes> nodes) {
    texts_.check_nodes(nodes);
    expect_working();
    for (const SlotNodes& part : nodes) expect_view(part.slot);
    std::size_t wanted = 0;
    for (const SlotNodes& slot_nodes : nodes) wanted += slot_nodes.tokens.size();
    if (wanted > rows_room_) {
      const std::size_t room = std::bit_ceil(wanted), at = device_.allocations();
      rows_ = device_.template allocate_host<float>(room * static_cast<std::size_t>(vocab_size()));
      holding_.replace_rows(at);
      rows_room_ = room;
    }
    on_device([&] { passes_.extend(nodes, rows_); });
    return {rows_, static_cast<std::int32_t>(wanted), vocab_size(), vocab_size()};
  }

  /// Commits the accepted path and drops all other nodes. What they left in the cache moves before the next
  /// pass. Throws std::invalid_argument, and changes nothing, if `path` is no path from the context down.
  void commit(std::int32_t slot, Nodes path) { texts_.commit(slot, path); }

  /// KV cache rollback. O(1). Throws std::invalid_argument, and changes nothing, unless 0 <= n <= size(slot).
  void truncate(std::int32_t slot, std::int32_t n) { texts_.truncate(slot, n); }

  /// Keys and values on the device; runs queued tokens first.
  DeviceKeyValues<Decoder> key_values(std::int32_t slot) {
    on_device([&] { passes_.flush(slot); });
    return {decoder_, slot, size(slot), specula::detail::ViewGuard(texts_[slot].changes)};
  }
  /// Features on the device, if options().features; runs queued tokens first. Throws std::logic_error if they
  /// are not kept.
  DeviceFeatures<Decoder> features(std::int32_t slot) {
    if (!options_.features) throw std::logic_error("cuda::Model::features: ModelOptions::features is false");
    on_device([&] { passes_.flush(slot); });
    return {decoder_, slot, size(slot), specula::detail::ViewGuard(texts_[slot].changes)};
  }

  // ---- a draft that reads its target, a model of the same device; see TargetConditioned

  using TargetKeyValues = DeviceKeyValues<Decoder>;                         ///< what a GLIDE draft reads
  using TargetFeatures = DeviceFeatures<Decoder>;                           ///< what a feature head reads
  Conditioning conditioned_on() const { return weights().conditioned_on; }  ///< what it reads
  /// Whether nodes that ran under one view are those that would run under the next: of GLIDE with one layer.
  bool keeps_speculation() const {
    return conditioned_on() == Conditioning::key_values && weights().layers.size() == 1;
  }
  void set_target_state(const TargetKeyValues& view) {
    set_target_state(0, view);
  }  ///< see set_target_state()
  void set_target_state(const TargetFeatures& view) {
    set_target_state(0, view);
  }                                                                        ///< see set_target_state()
  void set_target_state(std::int32_t slot, const TargetKeyValues& view) {  ///< see set_target_state()
    take(slot, view, Conditioning::key_values);
  }
  /// The view of the target for all passes of a text from now on, until it is stale. Throws
  /// std::invalid_argument if the model does not read it, or for a view of another target than before, of
  /// another slot, or of a target of another shape or a smaller capacity.
  void set_target_state(std::int32_t slot, const TargetFeatures& view) {
    take(slot, view, Conditioning::features);
  }

 private:
  using Passes = detail::DevicePasses<Device, Products>;

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
                 Passes::most(options_), options_.height, options_.features),
        texts_(options_, uploaded.weights.vocab),
        passes_(device, decoder_, texts_, options_) {
    holding_.last = device.allocations();
  }
  static const DeviceWeights& with_positions(const DeviceWeights& weights, const ModelOptions& options) {
    if (weights.positions < options.capacity)
      throw std::invalid_argument("ModelOptions::capacity is " + std::to_string(options.capacity) +
                                  ", the weights were uploaded for " + std::to_string(weights.positions) +
                                  " positions");
    return weights;
  }
  template <class View>
  void take(std::int32_t slot, const View& view, Conditioning what) {
    const auto expect = [](bool ok, const std::string& wrong) {
      if (!ok) throw std::invalid_argument("cuda::Model::set_target_state: " + wrong);
    };
    detail::DeviceText& text = texts_[slot];
    const Decoder& target = view.decoder();
    expect(conditioned_on() == what, "this model does not look at " + std::string(name_of(what)));
    expect(view.slot() == slot, "a view of slot " + std::to_string(view.slot()) + " for slot " +
                                    std::to_string(slot) + "; on a device a draft's slot is its target's");
    expect(&target.device() == &device_, "the target is on another device");
    expect(target.capacity() >= options_.capacity,
           "the target's capacity is " + std::to_string(target.capacity()) + ", the draft's " +
               std::to_string(options_.capacity) + "; make the draft's as small");
    expect(what != Conditioning::features || target.weights().hidden == weights().hidden,
           "features of width " + std::to_string(target.weights().hidden) + ", the model's hidden size is " +
               std::to_string(weights().hidden));
    passes_.set_target(target);
    text.target_size = view.size();
    text.target = view.guard();
  }
  /// Throws std::logic_error if a draft has no view of its target, or a stale one.
  void expect_view(std::int32_t slot) const {
    if (conditioned_on() != Conditioning::nothing)
      texts_[slot].target.expect_valid("cuda::Model: the view of the target");
  }
  template <class F>
  void on_device(F call) {
    expect_working();
    try {
      call();
    } catch (const DeviceError&) {
      failure_ = std::current_exception();
      for (detail::DeviceText& text : texts_.all()) text.drop_nodes();
      throw;
    }
  }
  void expect_working() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  ModelOptions options_;
  Device& device_;
  Holding holding_;
  Decoder decoder_;
  detail::DeviceTexts texts_;
  Passes passes_;
  std::exception_ptr failure_;
  float* rows_ = nullptr;
  std::size_t rows_room_ = 0;
};

}  // namespace specula::cuda
