// SPDX-License-Identifier: MIT
#include "training_loop.hpp"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "checkpoint.hpp"
#include "gradients.hpp"

namespace specula_train {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t stop_requested = 0;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string to_text(const Losses& losses) {
  std::string text;
  char number[32];
  for (const auto& [style, loss] : losses) {
    std::snprintf(number, sizeof number, "%.4f", loss);
    text += (text.empty() ? "" : ", ") + style + " " + number;
  }
  return text;
}

/// Before a checkpoint is overwritten.
void check_weights(const torch::nn::Module& model, std::int64_t steps) {
  for (const auto& item : model.named_parameters()) {
    if (item.value().isfinite().all().item<bool>()) continue;
    throw std::runtime_error(
        "after step " + std::to_string(steps) + " " + item.key() +
        " is not finite; the last checkpoint is kept: lower --lr, and start again, or there with "
        "--resume");
  }
}

/// Prints a line every 15 seconds.
class Reporter {
 public:
  explicit Reporter(std::int64_t tokens) : tokens_(tokens) {}

  /// After a step with this loss, learning rate and norm of the gradient.
  void add(const Progress& progress, double fraction, double loss, double rate, double norm,
           const BatchLoader& loader) {
    loss_sum_ += loss, ++losses_;
    const double passed = seconds_since(last_);
    if (passed < kSeconds) return;
    const double left = fraction > 0 ? progress.seconds * (1 - fraction) / fraction : 0;
    std::printf(
        "step %lld  loss %.4f  rate %.2e  gradient %.2f  %.0f tokens/s  epochs: %s  %.0f%%, %.1f min left\n",
        static_cast<long long>(progress.steps), loss_sum_ / losses_, rate, norm,
        static_cast<double>(progress.tokens - tokens_) / passed, loader.epochs().c_str(), 100 * fraction,
        left / 60);
    std::fflush(stdout);
    last_ = Clock::now(), tokens_ = progress.tokens, loss_sum_ = 0, losses_ = 0;
  }

 private:
  static constexpr double kSeconds = 15;

  Clock::time_point last_ = Clock::now();
  std::int64_t tokens_;  // at the last line
  double loss_sum_ = 0;
  int losses_ = 0;
};

/// What a training goes on from, if there is a checkpoint.
Progress resume(torch::nn::Module& model, BatchLoader& loader, Optimizer& optimizer,
                const LoopOptions& options) {
  if (!options.resume || !std::filesystem::exists(options.checkpoint_file)) return {};
  const auto saved = load_checkpoint(options.checkpoint_file);
  copy_parameters(saved.parameters, model);
  optimizer.load_state(saved.optimizer);
  loader.restore(saved.data_position);
  std::printf("resumed at step %lld, after %.1f minutes of training\n", static_cast<long long>(saved.steps),
              saved.seconds / 60);
  Progress progress;
  progress.steps = saved.steps, progress.tokens = saved.tokens, progress.seconds = saved.seconds;
  return progress;
}

/// Evaluates, writes the checkpoint, and prints the losses. `clock` leaves out the evaluation.
void save(const torch::nn::Module& model, const BatchLoader& loader, const Optimizer& optimizer,
          StepClock& clock, Progress& progress, const LoopOptions& options, const LoopCallbacks& callbacks) {
  {
    torch::NoGradGuard no_grad;
    check_weights(model, progress.steps);
    const auto start = Clock::now();
    progress.heldout = callbacks.evaluate();
    clock.add_other(seconds_since(start));
    progress.seconds = clock.seconds();
  }
  save_checkpoint({.steps = progress.steps,
                   .tokens = progress.tokens,
                   .seconds = progress.seconds,
                   .finished = progress.finished,
                   .data_position = loader.state(),
                   .parameters = model.parameters(),
                   .optimizer = optimizer.state()},
                  options.checkpoint_file);
  callbacks.save(progress);
  std::printf("step %lld, held out: %s\n", static_cast<long long>(progress.steps),
              to_text(progress.heldout).c_str());
  std::fflush(stdout);
}

}  // namespace

void request_stop() { stop_requested = 1; }
bool stop_was_requested() { return stop_requested != 0; }

Progress train(torch::nn::Module& model, BatchLoader& loader, Optimizer& optimizer, torch::Device device,
               const LoopOptions& options, const LoopCallbacks& callbacks) {
  if (options.budget.steps <= 0 && options.budget.minutes <= 0) {
    throw std::invalid_argument("training needs a budget: --steps or --minutes above 0");
  }
  Progress progress = resume(model, loader, optimizer, options);
  const auto parameters = model.parameters();
  StepClock clock(progress.seconds);
  Reporter reporter(progress.tokens);
  LossWatch watch;
  auto last_save = Clock::now();
  double fraction = options.budget.fraction(progress.steps, progress.seconds);
  while (fraction < 1 && stop_requested == 0) {
    const auto start = Clock::now();
    const bool long_rows = fraction >= options.long_rows_from && options.batch >= 2;
    const auto rows = loader.next(long_rows ? options.batch / 2 : options.batch,
                                  long_rows ? options.context * 2 : options.context);
    const double loss = compute_gradients(callbacks.loss, rows.to(device), parameters);
    if (!std::isfinite(loss)) {
      throw std::runtime_error(
          "the loss of step " + std::to_string(progress.steps + 1) +
          " is not finite; lower --lr, and start again, or with --resume at the last checkpoint");
    }
    const double warm_up = options.budget.warm_up(progress.steps, progress.seconds);
    const double rate = learning_rate(options.peak_learning_rate, fraction, warm_up);
    if (fraction >= warm_up && watch.add(loss)) {
      std::fprintf(stderr, "warning: step %lld: the loss rose to %.3f, it was %.3f; lower --lr (%g)\n",
                   static_cast<long long>(progress.steps + 1), watch.smoothed(), watch.least(),
                   options.peak_learning_rate);
    }
    const double norm = optimizer.step(rate);

    clock.add(seconds_since(start));
    progress.seconds = clock.seconds();
    progress.tokens += rows.size(0) * (rows.size(1) - 1);
    ++progress.steps;
    fraction = options.budget.fraction(progress.steps, progress.seconds);
    reporter.add(progress, fraction, loss, rate, norm, loader);
    if (fraction < 1 && stop_requested == 0 && seconds_since(last_save) >= 60 * options.checkpoint_minutes) {
      save(model, loader, optimizer, clock, progress, options, callbacks);
      last_save = Clock::now();
      fraction = options.budget.fraction(progress.steps, progress.seconds);
    }
  }
  progress.finished = fraction >= 1;
  save(model, loader, optimizer, clock, progress, options, callbacks);
  if (!progress.finished) std::printf("stopped; continue with --resume\n");
  return progress;
}

}  // namespace specula_train
