// SPDX-License-Identifier: MIT
// EarlyExitDrafter (S2D): which exit each draft token takes.
#include <specula/draft/early_exit_drafter.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "plain_distribution.hpp"
#include "self_models.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using List = std::vector<Token>;
using Drafter = EarlyExitDrafter<ToyExits>;

static_assert(LogitsDrafter<Drafter>);
static_assert(ExitsEarly<ToyExits> && !ExitsEarly<ToyModel>);
static_assert(std::is_constructible_v<Drafter, ToyExits&, std::vector<float>>);
static_assert(!std::is_constructible_v<Drafter, ToyExits, std::vector<float>>);

constexpr NodeId kRoot = kNoParent;

std::vector<float> row_of(const ToyModel& model, Token before, Token last) {
  std::vector<float> row(static_cast<std::size_t>(model.vocab_size()));
  model.row(before, last, row.data());
  return row;
}
double top(const std::vector<float>& row) {
  const std::vector<double> p = plain_distribution(row, {});
  return *std::max_element(p.begin(), p.end());
}

}  // namespace

TEST_CASE("each node leaves at the first exit whose confidence reaches the threshold") {
  ToyExits draft(6, 1, 3);
  const std::vector<float> thresholds{0.5f, 0.6f};
  EarlyExitDrafter drafter{draft, thresholds};
  const List context{0, 1};
  std::vector<std::int64_t> left(3);
  double layers = 0;
  for (Token root = 0; root < 6; ++root) {
    drafter.sync(context, {});
    const List tokens{root, 0, 1, 2, 3, 4, 5};
    const std::vector<NodeId> parents{kRoot, 0, 0, 0, 0, 0, 0};
    const LogitsView rows = drafter.extend(tokens, parents);
    REQUIRE(rows.rows == 7);
    for (std::int32_t r = 0; r < 7; ++r) {
      const Token before = r == 0 ? 1 : root;
      std::size_t exit = 0;
      while (exit < 2 &&
             top(row_of(draft.end(static_cast<std::int32_t>(exit)), before,
                        tokens[static_cast<std::size_t>(r)])) < static_cast<double>(thresholds[exit]))
        ++exit;
      ++left[exit];
      layers += static_cast<double>(exit) + 2;  // exit e is after e + 2 layers
      const auto want =
          row_of(draft.end(static_cast<std::int32_t>(exit)), before, tokens[static_cast<std::size_t>(r)]);
      const auto got = rows.row(r);
      CHECK(std::equal(want.begin(), want.end(), got.begin(), got.end()));
    }
  }
  for (std::size_t e = 0; e < 3; ++e) {
    CHECK(left[e] > 0);
    CHECK(drafter.exit_counts()[e] == left[e]);
  }
  CHECK(drafter.usage().calls == 6);
  CHECK(drafter.usage().nodes == 42);
  CHECK(drafter.usage().layers == doctest::Approx(layers));
}

TEST_CASE("thresholds that fix an exit") {
  ToyExits draft(6, 1, 3);
  const List context{0, 1};
  const Token root = 2;
  const auto row = [&](std::vector<float> thresholds) {
    EarlyExitDrafter drafter{draft, std::move(thresholds)};
    drafter.sync(context, {});
    const auto got = drafter.extend({&root, 1}, {&kRoot, 1}).row(0);
    return std::vector<float>(got.begin(), got.end());
  };
  CHECK(row({}) == row_of(draft.end(0), 1, 2));
  CHECK(row({0.0f, 0.7f}) == row_of(draft.end(0), 1, 2));
  CHECK(row({2.0f}) == row_of(draft.end(1), 1, 2));
  CHECK(row({2.0f, 2.0f}) == row_of(draft.end(2), 1, 2));
  CHECK(draft.goes == 0);  // rows of closed exits are not computed
  CHECK(row({1.0f, 2.0f}) == row_of(draft.end(2), 1, 2));
  CHECK(draft.goes == 1);
  EarlyExitDrafter drafter{draft, {2.0f, 0.0f}};
  drafter.sync(context, {});
  drafter.extend({&root, 1}, {&kRoot, 1});
  CHECK(drafter.exit_counts()[0] == 0);
  CHECK(drafter.exit_counts()[1] == 1);
  CHECK(drafter.usage().layers == 3);
}

TEST_CASE("a token whose confidence equals the threshold leaves") {
  for (const ExitBy by : {ExitBy::confidence, ExitBy::sample}) {
    ToyExits draft(1, 1, 3);  // confidence 1
    EarlyExitDrafter drafter{draft, {1.0f, 1.0f}, by};
    drafter.sync(List{0, 0}, {});
    const Token token = 0;
    drafter.extend({&token, 1}, {&kRoot, 1});
    CHECK(drafter.exit_counts()[0] == 1);
  }
}

TEST_CASE("bad thresholds are refused") {
  ToyExits draft(6, 1, 3);
  CHECK_THROWS_WITH_AS(
      EarlyExitDrafter(draft, {0.5f, 0.5f, 0.0f}),
      "EarlyExitDrafter: 3 thresholds, must be fewer than the draft's 3 exits: at the last one every token "
      "leaves",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(EarlyExitDrafter(draft, {0.5f, -0.1f}),
                       "EarlyExitDrafter: threshold 1 is -0.1, must be at least 0", std::invalid_argument);
  CHECK_THROWS_AS(EarlyExitDrafter(draft, {std::numeric_limits<float>::quiet_NaN()}), std::invalid_argument);
}

namespace {
/// Its last extend_to_exit() or resume_to_exit() has a NaN in its last row, or one row too few, or rows that
/// overlap.
struct Spoilt : ToyExits {
  using ToyExits::ToyExits;
  std::int32_t at_exit = 0, missing = 0;
  std::ptrdiff_t stride = 6;
  std::vector<float> copy = {};
  LogitsView extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit) {
    return spoil(ToyExits::extend_to_exit(tokens, parents, exit), exit);
  }
  LogitsView resume_to_exit(std::span<const std::int32_t> rows, std::int32_t exit) {
    return spoil(ToyExits::resume_to_exit(rows, exit), exit);
  }
  LogitsView spoil(LogitsView rows, std::int32_t exit) {
    if (exit != at_exit) return rows;
    copy.assign(rows.data, rows.data + rows.rows * rows.vocab);
    if (missing == 0) copy.back() = std::numeric_limits<float>::quiet_NaN();
    return {copy.data(), rows.rows - missing, rows.vocab, stride};
  }
};
}  // namespace

TEST_CASE("a bad row of an exit: the error names the node and the exit") {
  for (const ExitBy by : {ExitBy::confidence, ExitBy::sample})
    for (const std::int32_t exit : {0, 1}) {
      Spoilt draft(6, 1, 3);
      draft.at_exit = exit;
      EarlyExitDrafter drafter{draft, {1.0f, 1.0f}, by};
      drafter.sync(List{0, 1}, {});
      const std::string message = "the draft's row after node 1, at exit " + std::to_string(exit) +
                                  ": a row of logits holds NaN or +infinity at token 5";
      CHECK_THROWS_WITH_AS(drafter.extend(List{2, 3}, std::vector<NodeId>{kNoParent, 0}), message.c_str(),
                           std::runtime_error);
      draft.missing = 1;
      drafter.sync(List{0, 1}, {});
      const std::string few = "EarlyExitDrafter: the draft gave 1 rows of 6 logits at exit " +
                              std::to_string(exit) + " for 2 nodes over 6 tokens";
      CHECK_THROWS_WITH_AS(drafter.extend(List{2, 3}, std::vector<NodeId>{kNoParent, 0}), few.c_str(),
                           std::invalid_argument);
      draft.missing = 0, draft.stride = 0;
      drafter.sync(List{0, 1}, {});
      CHECK_THROWS_WITH_AS(drafter.extend(List{2, 3}, std::vector<NodeId>{kNoParent, 0}),
                           "EarlyExitDrafter: the draft's rows of 6 logits are 0 floats apart: they overlap",
                           std::invalid_argument);
    }
}

TEST_CASE("an error between two exits ends drafting, and the next text drafts again") {
  ToyModel target(5, 1);
  ToyExits draft(5, 2, 3);
  Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0}}, EarlyExitDrafter{draft, {1.0f, 1.0f}},
                 Chain<>{.length = 3}};
  run.start(List{0, 1, 2});
  PhiloxRandom rng(1);
  run.step(rng);
  const List before(run.text().begin(), run.text().end());
  draft.throw_go = draft.goes + 2;
  run.step(rng);
  CHECK(run.stats().failed_drafts == 1);
  run.start(before);
  CHECK(run.draft_error().empty());
  ToyModel other(5, 1);
  Speculator plain{TreeVerifier{other, Sampling{}, {.temperature = 0}}, NoDrafter{5}, Chain<>{.length = 0}};
  plain.start(List{0, 1, 2});
  while (run.text().size() < 30) run.step(rng);
  while (plain.text().size() < 30) plain.step(rng);
  CHECK(List(run.text().begin(), run.text().begin() + 30) ==
        List(plain.text().begin(), plain.text().begin() + 30));
}

TEST_CASE("rounds allocate nothing") {
  ToyModel target(5, 1, 2.0f, 400);
  ToyExits draft(5, 2, 3, 2.0f, 400);
  Speculator run{TreeVerifier{target, Rejection{}}, EarlyExitDrafter{draft, {0.6f, 0.6f}},
                 Chain<Draw::sampled>{.length = 3}};
  run.start(List{0, 1, 2});
  PhiloxRandom rng(1);
  run.step(rng);
  AllocationCount allocated;
  for (int i = 0; i < 20; ++i) run.step(rng);
  const auto n = allocated.count();
  CHECK(n == 0);
}
