// SPDX-License-Identifier: MIT
#include "optimizer.hpp"

#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

namespace specula_train {

using torch::Tensor;

Tensor orthogonalize(const Tensor& matrices, torch::ScalarType dtype) {
  const bool tall = matrices.size(1) > matrices.size(2);
  auto x = (tall ? matrices.transpose(1, 2) : matrices).contiguous();
  x = x / x.square().sum({1, 2}, true).sqrt_().add_(1e-7);
  x = x.to(dtype);
  for (int i = 0; i < 5; ++i) {
    const auto square = torch::bmm(x, x.transpose(1, 2));
    const auto polynomial = torch::baddbmm(square, square, square, -4.7750, 2.0315);
    x = torch::baddbmm(x, polynomial, x, 3.4445, 1.0);
  }
  return tall ? x.transpose(1, 2) : x;
}

Optimizer::Optimizer(const torch::nn::Module& model, const OptimizerOptions& options) : options_(options) {
  if (options.kind != "adamw" && options.kind != "muon") {
    throw std::invalid_argument("optimizer '" + options.kind + "': expected adamw or muon");
  }
  for (const auto& item : model.named_parameters()) {
    const bool is_matrix = item.value().dim() == 2;
    const bool is_embedding = item.key().find("embed_tokens") != std::string::npos ||
                              item.key().find("lm_head") != std::string::npos;  // a row per token, too
    const bool orthogonal = options.kind == "muon" && is_matrix && !is_embedding;
    slots_.push_back({.parameter = item.value(),
                      .first = torch::zeros_like(item.value()),
                      .second = orthogonal ? Tensor() : torch::zeros_like(item.value()),
                      .decayed = is_matrix,
                      .orthogonal = orthogonal});
  }
}

double Optimizer::step(double learning_rate) {
  torch::NoGradGuard no_grad;
  std::vector<Tensor> norms;
  for (const auto& slot : slots_) norms.push_back(slot.parameter.grad().norm());
  const double norm = torch::stack(norms).norm().item<double>();
  if (!std::isfinite(norm)) throw std::runtime_error("the gradient is not finite; lower --lr");
  if (options_.clip_norm > 0 && norm > options_.clip_norm) {
    for (auto& slot : slots_) slot.parameter.mutable_grad().mul_(options_.clip_norm / norm);
  }

  ++steps_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Slot*>> by_shape;
  for (auto& slot : slots_) {
    if (slot.orthogonal) {
      by_shape[{slot.parameter.size(0), slot.parameter.size(1)}].push_back(&slot);
    } else {
      step_adamw(slot, learning_rate);
    }
  }
  for (const auto& [shape, same_shape] : by_shape) step_muon(same_shape, learning_rate);
  return norm;
}

void Optimizer::step_adamw(Slot& slot, double learning_rate) {
  const auto& gradient = slot.parameter.grad();
  slot.first.lerp_(gradient, 1 - options_.beta1);
  slot.second.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
  const double count = static_cast<double>(steps_);
  const double correction1 = 1 - std::pow(options_.beta1, count);
  const double correction2 = 1 - std::pow(options_.beta2, count);
  if (slot.decayed) slot.parameter.mul_(1 - learning_rate * options_.weight_decay);
  const auto denominator = slot.second.sqrt().div_(std::sqrt(correction2)).add_(options_.epsilon);
  slot.parameter.addcdiv_(slot.first, denominator, -learning_rate / correction1);
}

void Optimizer::step_muon(const std::vector<Slot*>& same_shape, double learning_rate) {
  std::vector<Tensor> directions;
  for (auto* slot : same_shape) {
    const auto& gradient = slot->parameter.grad();
    slot->first.lerp_(gradient, 1 - options_.momentum);
    directions.push_back(gradient.lerp(slot->first, options_.momentum));  // Nesterov
  }
  const auto steps = orthogonalize(torch::stack(directions), options_.products);
  const auto larger = std::max(steps.size(1), steps.size(2));
  const double scale = 0.2 * std::sqrt(static_cast<double>(larger));
  for (std::size_t i = 0; i < same_shape.size(); ++i) {
    auto& parameter = same_shape[i]->parameter;
    parameter.mul_(1 - learning_rate * options_.weight_decay);
    parameter.add_(steps[static_cast<std::int64_t>(i)].to(parameter.scalar_type()), -learning_rate * scale);
  }
}

std::vector<Tensor> Optimizer::state() const {
  std::vector<Tensor> state{torch::tensor(steps_, torch::kInt64)};
  for (const auto& slot : slots_) {
    state.push_back(slot.first);
    if (slot.second.defined()) state.push_back(slot.second);
  }
  return state;
}

void Optimizer::load_state(const std::vector<Tensor>& state) {
  torch::NoGradGuard no_grad;
  auto own = this->state();
  if (state.size() != own.size()) {
    throw std::runtime_error("checkpoint: holds " + std::to_string(state.size()) +
                             " optimizer tensors, expected " + std::to_string(own.size()) +
                             "; was it saved with another --optimizer?");
  }
  steps_ = state[0].item<std::int64_t>();
  for (std::size_t i = 1; i < own.size(); ++i) own[i].copy_(state[i]);
}

}  // namespace specula_train
