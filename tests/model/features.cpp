// SPDX-License-Identifier: MIT
// FeaturesView: views of a target's features and hidden states.
#include <specula/model/features.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

using specula::FeaturesView;
using specula::detail::ChangeCount;
using specula::detail::ViewGuard;

static_assert(std::is_trivially_copyable_v<FeaturesView<float>>);

TEST_CASE("rows of features with a stride") {
  ChangeCount model;
  const std::vector<double> data = {1, 2, -1, 3, 4, -1, 5, 6, -1};
  const FeaturesView<double> view(data.data(), 3, 2, 3, ViewGuard(model));
  CHECK(view.size() == 3);
  CHECK(view.width() == 2);
  CHECK(!view.empty());
  for (std::int32_t i = 0; i < 3; ++i) {
    REQUIRE(view.row(i).size() == 2);
    CHECK(view.row(i)[0] == 2 * i + 1);
    CHECK(view.row(i)[1] == 2 * i + 2);
  }
  CHECK_THROWS_WITH_AS(view.row(3), "FeaturesView::row: row 3, must be in [0, 3)", std::invalid_argument);
  CHECK_THROWS_WITH_AS(view.row(-1), "FeaturesView::row: row -1, must be in [0, 3)", std::invalid_argument);
}

TEST_CASE("hidden states of several layers, each with its own stride") {
  ChangeCount model;
  const std::vector<float> data = {1, 2, 3, 4}, inner = {11, 12, 13, 14, -1, 21, 22, 23, 24, -1};
  const std::vector<std::int32_t> layers = {2, 5};
  const FeaturesView<float> view(data.data(), 2, 2, 2, ViewGuard(model),
                                 {.layers = layers, .data = inner.data(), .stride = 5});
  REQUIRE(view.layers().size() == 2);
  CHECK(view.layers()[1] == 5);
  for (std::int32_t i = 0; i < 2; ++i)
    for (std::size_t k = 0; k < 2; ++k) {
      REQUIRE(view.hidden_state(i, k).size() == 2);
      CHECK(view.hidden_state(i, k)[0] == static_cast<float>(10 * (i + 1)) + static_cast<float>(2 * k + 1));
      CHECK(view.hidden_state(i, k)[1] == static_cast<float>(10 * (i + 1)) + static_cast<float>(2 * k + 2));
    }
  CHECK_THROWS_WITH_AS(view.hidden_state(2, 0), "FeaturesView::hidden_state: row 2, must be in [0, 2)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(view.hidden_state(0, 2), "FeaturesView::hidden_state: number 2 of 2",
                       std::invalid_argument);
  const FeaturesView<float> plain(data.data(), 2, 2, 2, ViewGuard(model));
  CHECK(plain.layers().empty());
  CHECK_THROWS_WITH_AS(plain.hidden_state(0, 0), "FeaturesView::hidden_state: number 0 of 0",
                       std::invalid_argument);
  model.next();
  const char* stale = "FeaturesView is stale: the model was called since";
  CHECK_THROWS_WITH_AS(view.layers(), stale, std::logic_error);
  CHECK_THROWS_WITH_AS(view.hidden_state(0, 0), stale, std::logic_error);
}

TEST_CASE("a view of a model without tokens") {
  ChangeCount model;
  const FeaturesView<float> view(nullptr, 0, 2, 2, ViewGuard(model));
  CHECK(view.empty());
  CHECK(view.size() == 0);
  CHECK(view.width() == 2);
  CHECK_THROWS_WITH_AS(view.row(0), "FeaturesView::row: row 0, must be in [0, 0)", std::invalid_argument);
}

TEST_CASE("every member of a stale view throws") {
  ChangeCount model;
  const std::vector<float> data = {1, 2};
  const FeaturesView<float> view(data.data(), 2, 1, 1, ViewGuard(model));
  const FeaturesView<float> copy = view;
  model.next();
  const char* stale = "FeaturesView is stale: the model was called since";
  for (const auto* v : {&view, &copy}) {
    CHECK_THROWS_WITH_AS(v->size(), stale, std::logic_error);
    CHECK_THROWS_WITH_AS(v->width(), stale, std::logic_error);
    CHECK_THROWS_WITH_AS(v->row(0), stale, std::logic_error);
    CHECK_THROWS_WITH_AS(v->empty(), stale, std::logic_error);
  }
}

TEST_CASE("a view without a model is empty, and throws on access") {
  const FeaturesView<float> view;
  const char* empty = "FeaturesView is empty: no model gave it";
  CHECK(view.empty());
  CHECK_THROWS_WITH_AS(view.size(), empty, std::logic_error);
  CHECK_THROWS_WITH_AS(view.width(), empty, std::logic_error);
  CHECK_THROWS_WITH_AS(view.row(0), empty, std::logic_error);
}
