// SPDX-License-Identifier: MIT
// Passes of a model over tokens of a text that lies on the device: prompts, and tokens that a draft has
// missed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "specula/cuda/model/decoder.hpp"
#include "specula/cuda/model/detail/round_bodies.cuh"
#include "specula/cuda/model/model_options.hpp"

namespace specula::cuda::detail {

/// What all passes of a round share, on the device: masks of chains, of up to kMost tokens, and constants.
struct PassConstants {
  static constexpr int kMost = 512, kWords = kMost / 64;
  const std::uint64_t *chain,  // (kMost, kWords) each token sees itself and those before,
      *before;                 // or these alone
  const std::int32_t *count,   // (kMost + 1) 0, 1, 2, ...
      *begin;                  // (kMost + 1, 2) 0 and that number

  const std::int32_t* begin_of(int tokens) const { return begin + 2 * tokens; }

  template <class Device>
  static PassConstants on(Device& device) {
    constexpr std::size_t most = kMost, words = kWords;
    std::vector<std::int32_t> count(most + 1), begin(2 * most + 2);
    std::iota(count.begin(), count.end(), 0);
    for (std::size_t i = 0; i <= most; ++i) begin[2 * i + 1] = count[i];
    const auto copied = [&](const auto& values) {
      auto* const to =
          device.template allocate<typename std::remove_cvref_t<decltype(values)>::value_type>(values.size());
      device.put(to, values.data(), values.size());
      return to;
    };
    const auto mask = [&](std::size_t itself) {
      std::vector<std::uint64_t> out(most * words);
      for (std::size_t i = 0; i < most; ++i)
        for (std::size_t j = 0; j < i + itself; ++j) out[i * words + j / 64] |= std::uint64_t{1} << j % 64;
      return copied(out);
    };
    return {mask(1), mask(0), copied(count), copied(begin)};
  }
};

/// A pass over the text's last tokens, with one row of logits: its arrays, and plans of attention.
template <class Device>
class TextPasses {
  using Decoder = DeviceDecoder<Device>;

 public:
  /// Passes of up to `most` tokens, which `model` is prepared for, with logits or without. A draft that reads
  /// its target has it in `target`.
  TextPasses(Device& device, Decoder& model, const Decoder* target, const PassConstants& constants, int most,
             bool exact, bool has_rows)
      : model_(model),
        target_(target),
        constants_(constants),
        height_(height_of(most)),
        plan_(model.plan(most, exact)) {
    const auto numbers = [&](int n) {
      return device.template allocate<std::int32_t>(static_cast<std::size_t>(n));
    };
    arrays_ = {numbers(most), numbers(most), numbers(most), numbers(most), numbers(2), numbers(1), most};
    model.prepare(height_, exact, has_rows);
    if (model.weights().conditioned_on == Conditioning::key_values)
      cross_ = model.plan_cross(*target, most, exact);
  }

  const TextPass& arrays() const { return arrays_; }  // which a body writes before
  /// Runs it; the logits of the last token go to `logits`, in memory of model.allocate_logits(), if not null.
  void run(float* logits) {
    DevicePass pass;
    pass.tokens = {
        arrays_.token, arrays_.begin, arrays_.length, constants_.count, arrays_.position, arrays_.most, 1};
    pass.mask = constants_.chain, pass.words = PassConstants::kWords;
    pass.row = arrays_.row, pass.feature = arrays_.feature;
    pass.height = height_, pass.logits = logits;
    // The target's tokens before these, and of these the earlier ones: a token does not see its own key
    // there.
    model_.pass(plan_, pass, logits != nullptr,
                {target_, &cross_, arrays_.length, constants_.before, PassConstants::kWords});
  }

 private:
  Decoder& model_;
  const Decoder* target_;
  PassConstants constants_;
  int height_;
  typename Device::Attention plan_, cross_{};
  TextPass arrays_{};
};

/// Reads any number of tokens of a text by passes of a few sizes, each one graph. A pass costs about the same
/// whatever its size, which padding fills.
template <class Device>
class TextReader {
 public:
  TextReader(Device& device, DeviceDecoder<Device>& model, const DeviceDecoder<Device>* target,
             const PassConstants& constants, bool exact)
      : device_(device),
        constants_(constants),
        skip_(device.template allocate<std::int32_t>(1)),
        passes_{TextPasses<Device>{device, model, target, constants, kSizes[0], exact, false},
                TextPasses<Device>{device, model, target, constants, kSizes[1], exact, false},
                TextPasses<Device>{device, model, target, constants, kSizes[2], exact, false}} {}

  /// Enqueues passes over `count` tokens, and maybe some before these, which were read already: those before
  /// the last `skip` of the text. `numbers`: the numbers 0, 1, ... in pinned memory, up to count + skip.
  void read(const RoundText& text, std::int32_t count, std::int32_t skip, const std::int32_t* numbers) {
    while (count > 0) {
      std::size_t size = 0;
      while (size + 1 < kSizes.size() && kSizes[size] < count) ++size;
      count = std::max(0, count - kSizes[size]);
      device_.send(skip_, numbers + skip + count, 1);
      device_.replay(recordings_[size], [&] {
        device_.run(ReadText{text, passes_[size].arrays(), skip_});
        passes_[size].run(nullptr);
      });
    }
  }

 private:
  static constexpr std::array<std::int32_t, 3> kSizes{16, 64, 512};

  Device& device_;
  PassConstants constants_;
  std::int32_t* skip_;
  std::array<TextPasses<Device>, 3> passes_;
  std::array<typename Device::Recording, 3> recordings_;
};

}  // namespace specula::cuda::detail
