// SPDX-License-Identifier: MIT
// Views of a device's memory: where rows lie, what is out of range, and that they end with the next change.
#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/cuda/model/views.hpp>

using namespace specula::cuda;
using specula::detail::ChangeCount;
using specula::detail::ViewGuard;

namespace {

/// Of a decoder what a view asks it.
struct Layers {
  struct {
    std::vector<int> layers{1, 2, 3};
    int hidden = 4;
  } of;
  std::vector<BFloat16> kept = std::vector<BFloat16>(2 * 10 * 4);  // of two sequences
  const auto& weights() const { return of; }
  const BFloat16* features() const { return kept.data(); }
  int capacity() const { return 10; }
  PagedKv<BFloat16> cache(std::size_t layer, const std::int32_t* length) const {
    PagedKv<BFloat16> out{};
    out.page_size = static_cast<int>(layer);
    out.length = length;
    return out;
  }
};

}  // namespace

TEST_CASE("features: rows one after the other, until the model changes") {
  ChangeCount changes;
  const Layers layers;
  const DeviceFeatures<Layers> view(layers, 1, 3, ViewGuard(changes));
  CHECK(view.size() == 3);
  CHECK(view.width() == 4);
  CHECK(view.slot() == 1);
  CHECK(&view.decoder() == &layers);
  CHECK(view.row(2) == layers.kept.data() + 48);
  CHECK_THROWS_WITH_AS(view.row(3), "DeviceFeatures::row: row 3, must be in [0, 3)", std::invalid_argument);
  CHECK_THROWS_AS(view.row(-1), std::invalid_argument);
  changes.next();
  CHECK_THROWS_AS(view.row(0), std::logic_error);
  CHECK_THROWS_AS(view.size(), std::logic_error);
  CHECK_THROWS_AS(view.width(), std::logic_error);
  CHECK_THROWS_AS(view.slot(), std::logic_error);
}

TEST_CASE("keys and values: the decoder's of each layer, until the model changes") {
  ChangeCount changes;
  const Layers layers;
  const DeviceKeyValues<Layers> view(layers, 5, 7, ViewGuard(changes));
  CHECK(view.size() == 7);
  CHECK(view.slot() == 5);
  CHECK(&view.decoder() == &layers);
  CHECK(view.layer(2).page_size == 2);
  CHECK(view.layer(2).length == nullptr);
  CHECK_THROWS_WITH_AS(view.layer(3), "DeviceKeyValues: layer 3, must be 0 to 2", std::invalid_argument);
  CHECK_THROWS_AS(view.layer(-1), std::invalid_argument);
  changes.next();
  CHECK_THROWS_AS(view.layer(0), std::logic_error);
  CHECK_THROWS_AS(view.size(), std::logic_error);
  CHECK_THROWS_AS(view.slot(), std::logic_error);
}
