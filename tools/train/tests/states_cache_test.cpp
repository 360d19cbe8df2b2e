// SPDX-License-Identifier: MIT
// StatesCache: the target's hidden states in a file.
#include "states_cache.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <stdexcept>

#include "checkpoint.hpp"
#include "feature_head.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;

namespace {

/// A target whose weights are destroyed afterwards, which shows whether it runs again.
void spoil(st::Llama& target) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : target->parameters()) parameter.fill_(std::numeric_limits<float>::quiet_NaN());
}

bool near(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-2, 1e-2); }

}  // namespace

TEST_CASE("states are those of the target, which runs once for each row") {
  torch::manual_seed(5);
  const Folder folder("specula_train_states_test");
  const auto file = folder.path / "states";
  st::Llama target(tiny_target()), same(tiny_target());
  enlarge(*target);
  st::copy_parameters(target->parameters(), *same);
  const auto rows = random_rows(5, 7), others = random_rows(2, 9);
  const auto wanted = target->states(rows, {1, 2}, torch::kFloat32);
  const auto wanted_others = target->states(others, {1, 2}, torch::kFloat32);
  {
    st::StatesCache cache(file, target, {1, 2});
    const auto first = cache.states(target, rows.narrow(0, 0, 3), torch::kFloat32);
    CHECK(near(first.all, wanted.all.narrow(0, 0, 3)));
    CHECK(near(first.features, wanted.features.narrow(0, 0, 3)));
    const auto mixed = cache.states(target, rows.narrow(0, 1, 4), torch::kFloat32);  // two are known, two new
    CHECK(near(mixed.all, wanted.all.narrow(0, 1, 4)));
    CHECK(near(cache.states(target, others, torch::kFloat32).all, wanted_others.all));
    spoil(target);
    CHECK(near(cache.states(target, rows, torch::kFloat32).all, wanted.all));
  }
  // Another process and head: fewer layers, the same rows. An incomplete row is computed again.
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size - 1);
  st::StatesCache cache(file, same, {2});
  const auto read = cache.states(target, rows.flip(0), torch::kFloat32);
  CHECK(near(read.features, wanted.features.flip(0)));
  CHECK(near(read.all, wanted.all.narrow(-1, 32, 64).flip(0)));
  CHECK(near(cache.states(same, others, torch::kFloat32).features, wanted_others.features));
  CHECK(std::filesystem::file_size(file) == size);
}

TEST_CASE("in memory likewise, up to a limit") {
  torch::manual_seed(5);
  st::Llama target(tiny_target());
  enlarge(*target);
  const auto rows = random_rows(4, 7);
  const auto wanted = target->states(rows, {1}, torch::kFloat32).all;
  CHECK(st::state_bytes(tiny_target(), 1) == 2 * 2 * 32);
  const auto row = 7 * (st::state_bytes(tiny_target(), 1) + 4);
  st::StatesCache cache(2 * row, target, {1});
  CHECK(near(cache.states(target, rows, torch::kFloat32).all, wanted));
  spoil(target);
  CHECK(near(cache.states(target, rows.narrow(0, 0, 2), torch::kFloat32).all, wanted.narrow(0, 0, 2)));
  CHECK(
      cache.states(target, rows.narrow(0, 2, 1), torch::kFloat32).all.isnan().any().item<bool>());  // no room
  CHECK(st::free_memory() > 1 << 20);
}

TEST_CASE("a head learns the same from cached states, up to their rounding") {
  torch::manual_seed(5);
  const Folder folder("specula_train_states_test");
  st::Llama target(tiny_target());
  enlarge(*target);
  st::FeatureHead head(st::head_config(tiny_target(), {1}));
  head->borrow(target->lm_head(), torch::kFloat32);
  st::StatesCache cache(folder.path / "states", target, {1});
  const auto rows = random_rows(4, 12);
  const auto loss = [&](st::StatesCache* kept) {
    return st::head_loss(head, target, rows, {.distillation = {}}, torch::kFloat32, kept).item<double>();
  };
  const double own = loss(nullptr);
  CHECK(loss(&cache) == doctest::Approx(own).epsilon(0.01));
  CHECK(loss(&cache) == loss(&cache));
}

TEST_CASE("files of other targets, with fewer layers, and other files are refused") {
  const Folder folder("specula_train_states_test");
  const auto file = folder.path / "states";
  st::Llama target(tiny_target()), other(tiny_target());
  st::StatesCache(file, target, {1});
  CHECK_THROWS_WITH_AS(st::StatesCache(file, other, {1}), doctest::Contains("of another target"),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(st::StatesCache(file, target, {1, 2}),
                       doctest::Contains("lacks the states after layer 2"), std::runtime_error);
  folder.write("text", "something else\n");
  CHECK_THROWS_WITH_AS(st::StatesCache(folder.path / "text", target, {}),
                       doctest::Contains("holds no states"), std::runtime_error);
  CHECK_THROWS_WITH_AS(st::StatesCache(folder.path / "no" / "such", target, {}),
                       doctest::Contains("cannot be read"), std::runtime_error);
}
