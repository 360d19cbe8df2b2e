// SPDX-License-Identifier: MIT
// What a decoder is given: tokens, and, if it is a draft, the state of its target.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/cpu/kv_cache.hpp"
#include "specula/model/features.hpp"

namespace specula::cpu::detail {

/// What a conditioned draft reads of its target, for one text.
template <class Real>
struct TargetState {
  KeyValuesView<Real> key_values;
  FeaturesView<Real> features;
  std::vector<std::size_t> states;  // the layers whose hidden states are read, as indices in `features`
  std::int32_t base = 0, end = 0;   // of a pass: keys that every token of the text sees, and that any does
};

/// Input of a model that is conditioned on nothing: its tokens. Those of conditioned drafts derive from it,
/// and have a header each. Nothing is allocated after the constructor.
template <class Real>
class ModelInput {
 public:
  ModelInput(const DecoderWeights<Real>& weights, const DecoderOptions& options) : weights_(weights) {
    if (weights.embed_projection.rows() > 0)
      embeddings_ = {pass_columns(options), weights.embed_projection.cols()};
  }
  ModelInput(const ModelInput&) = delete;
  ModelInput& operator=(const ModelInput&) = delete;
  virtual ~ModelInput() = default;

  /// The target's state for all later passes of a text. Throws std::invalid_argument if the model does not
  /// read it, or is made for that of another target.
  virtual void set_target_state(TargetState<Real>&, const KeyValuesView<Real>&) {
    fail("this model does not look at keys and values");
  }
  virtual void set_target_state(TargetState<Real>&, const FeaturesView<Real>&) {
    fail("this model does not look at features");
  }
  /// Throws std::logic_error if the model needs a view and none, or a stale one, was given.
  virtual void require_view(const TargetState<Real>&) const {}
  /// Whether nodes that were computed under one view are what they would be under the next.
  virtual bool keeps_speculation() const { return false; }

  /// What a layer's queries, keys and values are made of, or null: the residual stream, normed.
  virtual Activations<Real>* attention_input(std::int32_t) { return nullptr; }
  /// A block between attention and MLP of a layer, or null.
  virtual std::unique_ptr<Block<Real>> make_block(std::int32_t) { return nullptr; }

  /// The end of the tokens of a text, from `first` on, that may run in one batch.
  virtual std::int32_t batch_end(const TargetState<Real>&, std::span<const BatchToken> tokens,
                                 std::int32_t) const {
    return static_cast<std::int32_t>(tokens.size());
  }
  /// Is called before a batch runs, on one thread.
  virtual void set_batch(const Batch<Real>&) {}
  /// Writes batch.hidden, the input of the first layer.
  virtual void run(const Worker& worker, Batch<Real>& batch) {
    if (embeddings_.stride == 0) return embed(worker, batch, batch.hidden);
    embed(worker, batch, embeddings_);
    batch.product.multiply(worker.thread, weights_.embed_projection, embeddings_, batch.hidden, 0,
                           batch.count());
  }

 protected:
  [[noreturn]] static void fail(const std::string& what) {
    throw std::invalid_argument("Decoder::set_target_state: " + what);
  }

  /// Writes the tokens' embeddings, padded with zeros: NaN or infinity left there by an earlier pass would
  /// reach every sum.
  void embed(const Worker& worker, const Batch<Real>& batch, Activations<Real>& to) const {
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      std::fill(to.at(i) + weights_.tokens().cols(), to.at(i) + to.stride, Real(0));
      weights_.tokens().get_row(batch.token(i).token, to.at(i));
    }
  }

  const DecoderWeights<Real>& weights_;

 private:
  Activations<Real> embeddings_;  // (batch, target's hidden), if they are projected
};

}  // namespace specula::cpu::detail
