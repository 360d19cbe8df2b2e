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

/// Estimated remaining seconds of training.
double seconds_left(double fraction, double seconds_done) {
  return fraction > 0 ? seconds_done * (1 - fraction) / fraction : 0;
}

}  // namespace

void request_stop() { stop_requested = 1; }
bool stop_was_requested() { return stop_requested != 0; }

Progress train(torch::nn::Module& model, BatchLoader& loader, Optimizer& optimizer, torch::Device device,
               const LoopOptions& options, const LoopCallbacks& callbacks) {
  if (options.budget.steps <= 0 && options.budget.minutes <= 0) {
    throw std::invalid_argument("training needs a budget: --steps or --minutes above 0");
  }
  Progress progress;
  if (options.resume && std::filesystem::exists(options.checkpoint_file)) {
    const auto saved = load_checkpoint(options.checkpoint_file);
    copy_parameters(saved.parameters, model);
    optimizer.load_state(saved.optimizer);
    loader.restore(saved.data_position);
    progress.steps = saved.steps;
    progress.tokens = saved.tokens;
    progress.seconds = saved.seconds;
    std::printf("resumed at step %lld, after %.1f minutes of training\n", static_cast<long long>(saved.steps),
                saved.seconds / 60);
  }

  const auto parameters = model.parameters();
  StepClock clock(progress.seconds);
  const auto save = [&] {
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
  };

  constexpr double kReportSeconds = 15;
  auto last_report = Clock::now(), last_save = Clock::now();
  std::int64_t tokens_at_report = progress.tokens;
  double loss_sum = 0;
  int loss_count = 0;
  LossWatch watch;

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
    loss_sum += loss;
    const double warm_up = options.budget.warm_up(progress.steps, progress.seconds);
    const double rate = learning_rate(options.peak_learning_rate, fraction, warm_up);
    if (fraction >= warm_up && watch.add(loss)) {
      std::fprintf(stderr, "warning: step %lld: the loss rose to %.3f, it was %.3f; lower --lr (%g)\n",
                   static_cast<long long>(progress.steps + 1), watch.smoothed(), watch.least(),
                   options.peak_learning_rate);
    }
    const double norm = optimizer.step(rate);
    ++loss_count;

    clock.add(seconds_since(start));
    progress.seconds = clock.seconds();
    progress.tokens += rows.size(0) * (rows.size(1) - 1);
    ++progress.steps;
    fraction = options.budget.fraction(progress.steps, progress.seconds);

    if (const double passed = seconds_since(last_report); passed >= kReportSeconds) {
      std::printf(
          "step %lld  loss %.4f  rate %.2e  gradient %.2f  %.0f tokens/s  epochs: %s  %.0f%%, %.1f min "
          "left\n",
          static_cast<long long>(progress.steps), loss_sum / loss_count, rate, norm,
          static_cast<double>(progress.tokens - tokens_at_report) / passed, loader.epochs().c_str(),
          100 * fraction, seconds_left(fraction, progress.seconds) / 60);
      std::fflush(stdout);
      last_report = Clock::now();
      tokens_at_report = progress.tokens;
      loss_sum = 0;
      loss_count = 0;
    }
    if (fraction < 1 && stop_requested == 0 && seconds_since(last_save) >= 60 * options.checkpoint_minutes) {
      save();
      last_save = Clock::now();
      fraction = options.budget.fraction(progress.steps, progress.seconds);
    }
  }
  progress.finished = fraction >= 1;
  save();
  if (!progress.finished) std::printf("stopped; continue with --resume\n");
  return progress;
}

}  // namespace specula_train
