// SPDX-License-Identifier: MIT
// Checks of EAGLE-3 heads: agreement and losses against passes one token at a time, and the readings that a
// file leaves open.
#include <specula/cpu/check_head.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "eagle3/random_head.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 61;

std::vector<Token> random_tokens(std::int32_t count) {
  Random random(3);
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(kVocab));
  return tokens;
}
/// The row after the text.
std::vector<float> last_row(Decoder<float>& model, Tokens text) {
  model.truncate(0);
  model.append(text.first(text.size() - 1));
  const NodeId root = kNoParent;
  const auto row = model.extend(text.last(1), {&root, 1}).row(0);
  return {row.begin(), row.end()};
}
std::ptrdiff_t best(const std::vector<float>& row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}
std::vector<std::vector<std::int32_t>> states_of(const std::vector<HeadReading>& readings) {
  std::vector<std::vector<std::int32_t>> all;
  for (const HeadReading& reading : readings) all.push_back(reading.eagle3.states);
  return all;
}

/// Nats of a token under a row, by the formula.
double loss_of(std::span<const float> row, std::ptrdiff_t choice) {
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - static_cast<double>(row[static_cast<std::size_t>(choice)]);
}

/// Expects the same rows, but for rounding.
void expect_near(const HeadRows& one, const HeadRows& other) {
  CHECK(one.right == other.right);
  REQUIRE(one.count() == other.count());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    CAPTURE(i);
    CHECK((one.losses[i] == other.losses[i] || std::abs(one.losses[i] - other.losses[i]) < 1e-4));
  }
}

}  // namespace

TEST_CASE("rows are those of the head token by token, with the states of all tokens before") {
  const auto target_weights = random_weights<float>(small_target(kVocab), 5);
  for (const std::int32_t drafted : {0, 23}) {
    const auto config = small_head(target_weights->config, drafted);
    Decoder<float> target(target_weights, {.capacity = 64, .feature_layers = config.feature_layers});
    Decoder<float> head(random_weights<float>(config, 6, target_weights), {.capacity = 64});
    const auto text = random_tokens(40);
    const HeadRows rows = head_rows(head, target, text, 35);
    REQUIRE(rows.count() == 35);
    std::int32_t right = 0;
    for (std::size_t i = 5; i < 40; ++i) {
      const auto so_far = Tokens(text).first(i + 1);
      const auto choice = best(last_row(target, so_far));
      target.truncate(0), target.append(text);
      head.truncate(0), head.set_target_state(target.features());
      const auto row = last_row(head, so_far);
      const double loss = loss_of(row, choice);
      right += best(row) == choice;
      CHECK(rows.choices[i - 5] == best(row));
      CHECK(rows.targets[i - 5] == choice);
      CHECK((loss == rows.losses[i - 5] || std::abs(loss - rows.losses[i - 5]) < 1e-5));
    }
    CHECK(rows.right == right);
    CHECK(rows.agreement() == doctest::Approx(right / 35.0));
    CHECK(head_rows(head, target, text, 100).count() == 39);  // the first token has no row
    CHECK(head_rows(head, target, Tokens(text).first(1), 64).count() == 0);
    CHECK(head_rows(head, target, text, 0).agreement() == 0);
  }
}

TEST_CASE("a look at what a target has read: the rows of its end, by its states alone") {
  const auto target_weights = random_weights<float>(small_target(kVocab), 5);
  for (const auto& kind : head_kinds(target_weights->config, 23)) {
    const DecoderConfig& config = kind.second;
    CAPTURE(kind.first);
    const auto weights = random_weights<float>(config, 6, target_weights);
    Decoder<float> target(target_weights, {.capacity = 80, .feature_layers = config.feature_layers});
    Decoder<float> head(weights, {.capacity = 80});
    const auto text = random_tokens(40);
    const HeadRows all = head_rows(head, target, text, 39);  // leaves the text in the target
    const auto changes = target.change_count();
    expect_near(head_rows_at_end(weights, target, text, 39), all);
    expect_near(head_rows_at_end(weights, target, text, 64), all);
    CHECK(target.change_count() == changes);
    target.append(random_tokens(30));  // what comes after does not count
    expect_near(head_rows_at_end(weights, target, text, 39), all);
    CHECK(head_rows_at_end(weights, target, Tokens(text).first(1), 64).count() == 0);
    CHECK_THROWS_AS(head_rows_at_end(weights, target, random_tokens(80), 20), std::invalid_argument);

    // Of the last 17 of 18 tokens: the head sees no others, of the target's states these.
    const FeaturesView<float> states = target.features();
    std::vector<float> features, inner;
    for (std::int32_t i = 22; i < 40; ++i) {
      features.insert(features.end(), states.row(i).begin(), states.row(i).end());
      for (std::size_t k = 0; k < config.feature_layers.size(); ++k)
        inner.insert(inner.end(), states.hidden_state(i, k).begin(), states.hidden_state(i, k).end());
    }
    const auto width = static_cast<std::ptrdiff_t>(target_weights->config.hidden_size);
    const specula::detail::ChangeCount unchanged;
    const FeaturesView<float> copied(features.data(), 18, target_weights->config.hidden_size, width,
                                     specula::detail::ViewGuard(unchanged),
                                     {config.feature_layers, inner.data(),
                                      width * static_cast<std::ptrdiff_t>(config.feature_layers.size())});
    head.truncate(0), head.set_target_state(copied);
    const HeadRows end = head_rows_at_end(weights, target, text, 17);
    REQUIRE(end.count() == 17);
    const auto row = last_row(head, Tokens(text).last(18));
    Decoder<float> alone(target_weights, {.capacity = 80});
    const double loss = loss_of(row, best(last_row(alone, text)));
    CHECK((loss == end.losses.back() || std::abs(loss - end.losses.back()) < 1e-4));
  }
}

TEST_CASE("rows of chains are those of the head after what it handed on itself") {
  const auto target_weights = random_weights<float>(small_target(kVocab), 5);
  auto config = small_head(target_weights->config, 23);
  const auto text = random_tokens(30);
  std::vector<HeadRows> both;
  for (const bool normed : {false, true}) {
    config.eagle3->norm_output = normed;
    const auto weights = random_weights<float>(config, 6, target_weights);
    Decoder<float> target(target_weights, {.capacity = 80, .feature_layers = config.feature_layers});
    Decoder<float> head(weights, {.capacity = 80}), alone(target_weights, {.capacity = 80});
    target.append(text);
    both.push_back(chain_rows_at_end(weights, target, text, 29));
    REQUIRE(both.back().count() == 28);  // roots at 1, 3, ... 27
    Decoder<float> reader(target_weights, {.capacity = 80, .feature_layers = config.feature_layers});
    for (const std::size_t root : {1u, 9u, 27u}) {
      reader.truncate(0), reader.append(Tokens(text).first(root));
      head.truncate(0), head.set_target_state(reader.features());
      head.append(Tokens(text).first(root));
      const std::vector<NodeId> chain{kNoParent, 0, 1};
      const LogitsView rows = head.extend(Tokens(text).subspan(root, 3), chain);
      for (const std::size_t d : {1u, 2u}) {
        const auto row = rows.row(static_cast<std::int32_t>(d));
        const auto choice = best(last_row(alone, Tokens(text).first(root + d + 1)));
        const double loss = loss_of(row, choice);
        const double found = both.back().losses[root - 1 + d - 1];
        CHECK((loss == found || std::abs(loss - found) < 1e-4));
      }
    }
    CHECK(chain_rows_at_end(weights, target, Tokens(text).first(3), 64).count() == 0);
    CHECK(chain_rows_at_end(weights, target, Tokens(text).first(4), 64).count() == 2);
  }
  CHECK(both[0].losses != both[1].losses);
}

TEST_CASE("the readings that a file leaves open") {
  Eagle3Config head;
  head.states = {2, 8, 13}, head.states_from = StatesFrom::nested_outputs;
  CHECK(states_of(head_readings(head, 16)) ==
        std::vector<std::vector<std::int32_t>>{{2, 8, 13}, {3, 9, 14}, {1, 7, 12}});
  head.states = {16, 0, 8};
  CHECK(states_of(head_readings(head, 16)) ==
        std::vector<std::vector<std::int32_t>>{{16, 0, 8}, {2, 8, 13}, {0, 8, 16}});
  head.states.clear(), head.states_from = StatesFrom::final_norm;
  CHECK(head_readings(head, 16).size() == 1);
}

TEST_CASE("a reading changes what a head takes, not its matrices") {
  const auto target_weights = random_weights<float>(small_target(kVocab), 5);
  const auto weights =
      random_weights<float>(small_head(target_weights->config, 23, {1, 2, 3}), 6, target_weights);
  auto reading = *weights->config.eagle3;
  reading.states = {2, 3, 4};
  const auto other = with_reading(*weights, reading);
  CHECK(other->config.feature_layers == std::vector<std::int32_t>{2, 3, 4});
  Decoder<float> target(target_weights, {.capacity = 64, .feature_layers = {1, 2, 3, 4}});
  Decoder<float> one(weights, {.capacity = 64}), two(other, {.capacity = 64});
  const auto text = random_tokens(30);
  const HeadRows own = head_rows(one, target, text, 20), moved = head_rows(two, target, text, 20);
  CHECK(own.losses != moved.losses);
  CHECK(head_rows(one, target, text, 20).losses == own.losses);
  reading.states = {2, 3};
  CHECK_THROWS_WITH_AS(with_reading(*weights, reading), "with_reading: expected an EAGLE-3 head of 2 states",
                       std::invalid_argument);
}

TEST_CASE("how surely another reading is worse") {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  CHECK(paired_z({{1, 2, 3, 4}, 0}, {{1, 2, 3, 4}, 0}) == 0);
  CHECK(paired_z({{1, 2, kNever}, 0}, {{2, 3, kNever}, 0}) == kNever);                 // always by one nat
  CHECK(paired_z({{1, 2, 3}, 0}, {{1, 4, 4}, 0}) == doctest::Approx(std::sqrt(3.0)));  // 0, 2, 1
  CHECK(paired_z({{1, 4, 4}, 0}, {{1, 2, 3}, 0}) == doctest::Approx(-std::sqrt(3.0)));
  CHECK(paired_z({{1}, 0}, {{2}, 0}) == 0);
}

TEST_CASE("the rule's reading is taken unless another is better beyond doubt") {
  const auto rows = [](double mean, double apart) {  // 16 losses, `apart` up and down
    HeadRows out;
    for (int i = 0; i < 16; ++i) out.losses.push_back(mean + (i % 2 ? apart : -apart));
    return out;
  };
  const std::vector<HeadRows> all{rows(3, 0), rows(2.5, 0.4), rows(2.6, 0.4), rows(2, 4), rows(4, 0)};
  CHECK(paired_z(all[0], all[2]) == doctest::Approx(-0.4 / (0.4 / std::sqrt(15.0))));  // -3.87
  CHECK(best_reading(all) == 1);  // the fourth may be chance
  CHECK(best_reading(std::span(all).first(1)) == 0);
  CHECK(best_reading(std::vector{all[0], all[2], all[3], all[4]}) == 0);
  CHECK(best_reading(std::vector{all[0], all[1], rows(2.4, 0)}) == 2);
  CHECK_THROWS_AS(best_reading({}), std::invalid_argument);
  HeadRows both = all[0];
  both.right = 3;
  both.add({{1, std::numeric_limits<double>::infinity()}, 1, {5, 6}, {5, 7}});
  CHECK(both.count() == 18);
  CHECK(both.choices == std::vector<Token>{5, 6});
  CHECK(both.targets == std::vector<Token>{5, 7});
  CHECK(both.right == 4);
  CHECK(both.loss() == doctest::Approx(49.0 / 17));
  CHECK(HeadRows().loss() == 0);
}
