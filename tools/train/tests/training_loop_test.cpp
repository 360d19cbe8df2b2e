// SPDX-License-Identifier: MIT
// The training loop: what it does when a training goes wrong, and what its clock counts.
#include "training_loop.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <stdexcept>
#include <thread>

#include "checkpoint.hpp"
#include "folder.hpp"

namespace st = specula_train;
using specula_train_test::Folder;
using torch::Tensor;

namespace {

struct Weight : torch::nn::Module {
  Weight() : value(register_parameter("value", torch::ones({2, 2}))) {}
  Tensor value;
};

struct Training {
  Training() {
    st::TokenizedStyle style{.name = "digits", .train = {}, .heldout = {}};
    for (st::Token first = 3; first < 40; ++first) style.train.push_back({1, first, 4, 5, 6, 2});
    styles.push_back(style);
    options.batch = 1;  // on one thread
    options.context = 6;
    options.checkpoint_minutes = 0;
    options.checkpoint_file = folder.path / "checkpoint.pt";
  }
  st::Progress run(const std::function<Tensor(std::int64_t step, const Tensor& value)>& loss) {
    Weight model;
    st::BatchLoader loader(styles, 1);
    st::Optimizer optimizer(model, {});
    std::int64_t step = 0;
    return st::train(model, loader, optimizer, torch::kCPU, options,
                     {.loss = [&](const Tensor&) { return loss(++step, model.value); },
                      .evaluate =
                          [&] {
                            std::this_thread::sleep_for(evaluation);
                            return st::Losses{};
                          },
                      .save = [](const st::Progress&) {}});
  }
  Folder folder{"specula_train_loop_test"};
  std::vector<st::TokenizedStyle> styles;
  st::LoopOptions options;
  std::chrono::milliseconds evaluation{0};
};

}  // namespace

TEST_CASE("a loss or weights that are not finite end the training before the checkpoint is overwritten") {
  for (const bool of_weights : {false, true}) {
    CAPTURE(of_weights);
    Training training;
    training.options.budget.steps = 5;
    const auto run = [&] {
      training.run([&](std::int64_t step, const Tensor& value) {
        if (step == 3 && !of_weights) return value.sum() * std::numeric_limits<float>::quiet_NaN();
        if (step == 3) {
          torch::NoGradGuard no_grad;
          value.select(0, 0).fill_(std::numeric_limits<float>::infinity());
        }
        return of_weights ? value.select(0, 1).square().sum() : value.square().sum();
      });
    };
    CHECK_THROWS_WITH_AS(run(), doctest::Contains("not finite"), std::runtime_error);
    const auto kept = st::load_checkpoint(training.options.checkpoint_file);
    CHECK(kept.steps == 2);
    CHECK(kept.parameters.at(0).isfinite().all().item<bool>());
  }
}

TEST_CASE("evaluations count in the budget of minutes") {
  Training training;
  training.options.budget.minutes = 1.0 / 60;
  training.evaluation = std::chrono::milliseconds(300);
  const auto progress = training.run([](std::int64_t, const Tensor& value) { return value.square().sum(); });
  CHECK(progress.steps <= 6);  // each step is followed by one
  CHECK(progress.finished);
}
