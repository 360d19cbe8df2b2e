// SPDX-License-Identifier: MIT
// The MLP block of a decoder layer: RMS norm, SwiGLU. Equations: transformers, modeling_llama.py (LlamaMLP).
#pragma once

#include <cstdint>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/team_product.hpp"

namespace specula::cpu::detail {

/// What the MLP blocks of all layers share.
template <class Real>
struct MlpMemory {
  MlpMemory(const DecoderConfig& config, const DecoderOptions& options)
      : size(config.intermediate_size),
        gate_up(pass_columns(options), 2 * size),
        active(pass_columns(options), size) {}

  std::int32_t size;
  Activations<Real> gate_up, active;  // (batch, 2 size), (batch, size)
};

template <class Real>
class Mlp final : public Block<Real> {
 public:
  Mlp(const MlpWeights<Real>& weights, std::int32_t layer, MlpMemory<Real>& memory)
      : Block<Real>(BlockKind::mlp, layer), weights_(weights), memory_(memory) {}

  void run(const Worker& worker, Batch<Real>& batch) override {
    Activations<Real>&gate_up = memory_.gate_up, &active = memory_.active;
    batch.norm(worker, weights_.norm);
    batch.product.multiply(worker.thread, weights_.gate_up, batch.normed, gate_up, 0, batch.count());
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      batch.elementwise.swiglu(gate_up.at(i), gate_up.at(i) + memory_.size, memory_.size, active.at(i));
    batch.product.multiply(worker.thread, weights_.down, active, batch.added, 0, batch.count());
  }

 private:
  const MlpWeights<Real>& weights_;
  MlpMemory<Real>& memory_;
};

}  // namespace specula::cpu::detail
