// SPDX-License-Identifier: MIT
#include "gradients.hpp"

#include <algorithm>
#include <future>

#include "machine.hpp"

namespace specula_train {
namespace {

struct Part {
  double loss = 0;
  std::vector<torch::Tensor> gradients;
};

/// The loss of some rows of a batch, and its gradient, both times the rows' share of the batch.
Part compute_part(const LossFunction& loss, const torch::Tensor& rows, std::int64_t batch,
                  const std::vector<torch::Tensor>& parameters) {
  const double share = static_cast<double>(rows.size(0)) / static_cast<double>(batch);
  const auto value = loss(rows) * share;
  return {.loss = value.item<double>(), .gradients = torch::autograd::grad({value}, parameters)};
}

}  // namespace

double compute_gradients(const LossFunction& loss, const torch::Tensor& rows,
                         const std::vector<torch::Tensor>& parameters) {
  const auto batch = rows.size(0);
  const auto threads = rows.is_cpu() ? std::min<std::int64_t>(torch::get_num_threads(), batch) : 1;

  if (threads > 1) set_blas_threads(1);  // else the parts would wait for each other's products
  std::vector<std::future<Part>> running;
  for (const auto& part : rows.tensor_split(threads)) {
    running.push_back(std::async(threads > 1 ? std::launch::async : std::launch::deferred, [&, part] {
      if (threads > 1) torch::set_num_threads(1);  // of this thread only, not of the caller
      return compute_part(loss, part, batch, parameters);
    }));
  }
  // Waits for all before reading any result, so that an exception leaves no thread running.
  for (const auto& part : running) part.wait();
  if (threads > 1) set_blas_threads(static_cast<int>(torch::get_num_threads()));

  auto total = running.front().get();
  for (std::size_t i = 1; i < running.size(); ++i) {
    const auto part = running[i].get();
    total.loss += part.loss;
    for (std::size_t j = 0; j < parameters.size(); ++j) total.gradients[j].add_(part.gradients[j]);
  }
  for (std::size_t j = 0; j < parameters.size(); ++j) {
    auto parameter = parameters[j];
    parameter.mutable_grad() = total.gradients[j];
  }
  return total.loss;
}

}  // namespace specula_train
