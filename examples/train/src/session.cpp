#include "session.hpp"

#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "data_loader.hpp"
#include "machine.hpp"
#include "optimizer.hpp"
#include "safetensors.hpp"

namespace specula_train {

Session::Session(const TrainingOptions& options)
    : options_(options),
      device_(best_device()),
      dtype_(choose_dtype(options.precision, device_)),
      corpus_(read_tokens(options.data)),
      tokenizer_file_(options.tokenizer_file.empty() ? options.data / "tokenizer.model"
                                                     : options.tokenizer_file) {
  if (!std::filesystem::exists(tokenizer_file_)) {
    throw std::invalid_argument(tokenizer_file_.string() + ": no such file");
  }
  std::printf("device %s, %d threads, products in %s, BLAS: %s\n", device_.str().c_str(),
              torch::get_num_threads(), c10::toString(dtype_), blas_name().c_str());
  if (const auto warning = blas_warning(); !warning.empty()) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  for (auto& style : corpus_.styles) {
    std::printf("%s: %zu tokens\n", style.name.c_str(), count_tokens(style.train));
    has_given_ = has_given_ || !style.given.empty();
    mark_given(style);
  }
  torch::manual_seed(options.seed);
}

void Session::place(const std::string& name, torch::nn::Module& model) const {
  model.to(device_);
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  std::printf("%s: %lld parameters\n", name.c_str(), static_cast<long long>(count));
  std::fflush(stdout);
}

void Session::for_heldout(
    const std::function<void(const std::string& style, const torch::Tensor& rows)>& f) const {
  for (const auto& style : corpus_.styles) {
    for (const auto& part : heldout_rows(style, options_.loop.context, 96).split(16)) {
      f(style.name, part.to(device_));
    }
  }
}

void Session::train(torch::nn::Module& model, const LoopCallbacks& callbacks) const {
  if (!options_.init.empty())
    load_safetensors(options_.init / "model.safetensors", model,
                     options_.init_is_larger ? Surplus::ignored : Surplus::refused);
  BatchLoader loader(corpus_.styles, options_.seed);
  Optimizer optimizer(model, options_.optimizer);
  auto loop = options_.loop;
  loop.checkpoint_file = options_.checkpoint_file();
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int) { request_stop(); });
  }
  specula_train::train(model, loader, optimizer, device_, loop, callbacks);
}

void Figures::add(const std::string& name, double mean, double count) {
  auto& sum = sums_[name];
  sum.sum += mean * count;
  sum.count += count;
}

void Figures::add(const std::string& name, const torch::Tensor& values, const torch::Tensor& chosen) {
  const auto count = chosen.sum().item<double>();
  if (count > 0) add(name, (values * chosen).sum().item<double>() / count, count);
}

Losses Figures::means() const {
  Losses means;
  for (const auto& [name, sum] : sums_) means[name] = sum.count > 0 ? sum.sum / sum.count : 0;
  return means;
}

}  // namespace specula_train
