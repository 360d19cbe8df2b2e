// SPDX-License-Identifier: MIT
// AdamW for every parameter, or Muon for the matrices and AdamW for the rest.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace specula_train {

struct OptimizerOptions {
  std::string kind = "muon";  // or "adamw"
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double momentum = 0.95;     // Muon's
  double weight_decay = 0.1;  // on matrices only
  double clip_norm = 1.0;     // of the whole gradient; 0 for none
  /// The type of Muon's products. bfloat16 is precise enough, but many times slower than float32 on
  /// processors that do not multiply it.
  torch::ScalarType products = torch::kFloat32;
};

/// Muon (Jordan et al. 2024) takes the orthogonal factor of the momentum of each hidden matrix as its
/// step. With the scale of Liu et al. (2025), 0.2 sqrt(larger side), a step is as large as AdamW's, so
/// that both share one learning rate. Embeddings, LM heads and norms always use AdamW.
class Optimizer {
 public:
  Optimizer(const torch::nn::Module& model, const OptimizerOptions& options);

  /// One step, from the parameters' gradients; returns the gradient's norm before clipping.
  double step(double learning_rate);

  /// All moments and the step count, in a fixed order; load_state() copies into them.
  std::vector<torch::Tensor> state() const;
  void load_state(const std::vector<torch::Tensor>& state);

 private:
  struct Slot {
    torch::Tensor parameter;
    torch::Tensor first, second;  // moments; Muon has no second
    bool decayed, orthogonal;
  };
  void step_adamw(Slot& slot, double learning_rate);
  void step_muon(const std::vector<Slot*>& same_shape, double learning_rate);

  OptimizerOptions options_;
  std::int64_t steps_ = 0;
  std::vector<Slot> slots_;
};

/// The orthogonal factor of each matrix of a batch (n, rows, columns), roughly: singular values end up
/// between 0.7 and 1.2. Five Newton-Schulz iterations in `dtype`, float32 or bfloat16.
torch::Tensor orthogonalize(const torch::Tensor& matrices, torch::ScalarType dtype);

}  // namespace specula_train
