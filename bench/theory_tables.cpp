// SPDX-License-Identifier: MIT
// The papers' tables beside the values of study/. Exits with 1 if a value differs.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include <specula/study/cascade_model.hpp>
#include <specula/study/speedup.hpp>
#include <specula/study/tuner.hpp>

#include "published_tables.hpp"

using namespace specula;

namespace {

int wrong = 0;

/// "" or a mark, and counts.
const char* mark(bool right) {
  wrong += right ? 0 : 1;
  return right ? "" : "  WRONG";
}
bool same_to(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance; }

void glide() {
  std::printf("GLIDE with a CAPE, table 1: expected speedup with %d draft tokens, computed (printed)\n",
              specula_test::kGlideLength);
  std::printf("  %-11s %-10s %6s  %14s %14s %14s %14s\n", "target", "draft", "cost", "GSM8K", "Finance",
              "Spider", "Code");
  double worst = 0;
  int cells = 0;
  for (const auto& row : specula_test::kGlideTable) {
    std::printf("  %-11s %-10s %5.1f%% ", row.target, row.draft, 100 * row.cost);
    bool right = true;
    for (std::size_t i = 0; i < row.printed.size(); ++i, ++cells) {
      const double computed = speedup(row.acceptance[i], specula_test::kGlideLength, row.cost);
      const double off = std::abs(computed - row.printed[i]);
      worst = std::max(worst, off);
      right = right && off < specula_test::kGlideTolerance;
      std::printf("  %.4f (%.2f)", computed, row.printed[i]);
    }
    std::printf("%s\n", mark(right));
  }
  std::printf("  %d cells, largest difference %.4f, allowed %.2f%s\n\n", cells, worst,
              specula_test::kGlideTolerance, mark(cells == 44));
}

void cascades() {
  std::printf("Cascade Speculative Drafting, table 1: expected speedup; costs %.4f (base), %.4f (small)\n",
              specula_test::kBaseCost, specula_test::kSmallCost);
  std::printf("  %-6s %-13s %9s %9s %8s   %s\n", "data", "counts", "computed", "printed", "optimum",
              "its counts");
  const CostCurve base({specula_test::kBaseCost}), little({specula_test::kSmallCost});
  for (const auto& row : specula_test::kCascadeTable) {
    const auto& data = specula_test::kCascadeDatasets[static_cast<std::size_t>(row.dataset)];
    const CascadeRates rates{.acceptance = {{data.base, data.little}, {0, 0}}, .draft_costs = {base, little}};
    const std::array<std::int32_t, 2> counts = {row.base_count, row.small_count};
    const double computed = forecast_horizontal(rates, counts).speedup;
    TunerOptions options;  // the row's drafters only
    options.max_length = {row.base_count > 0 ? 30 : 0, row.small_count > 0 ? 30 : 0};
    const TunedHorizontal best = best_horizontal(rates, options);
    const bool right = std::round(100 * computed) == std::round(100 * row.printed) &&
                       best.counts == std::vector<std::int32_t>{row.best_base, row.best_small};
    std::printf("  %-6s base %2d sm. %2d  %8.4f %9.2f %8.4f   %2d, %2d%s%s\n", data.name, row.base_count,
                row.small_count, computed, row.printed, best.forecast.speedup, best.counts[0], best.counts[1],
                best.counts[0] == counts[0] && best.counts[1] == counts[1] ? "" : "  (not the printed ones)",
                mark(right));
  }
  std::printf("\n");
}

void value(const char* name, double computed, double expected, double tolerance) {
  std::printf("  %-68s %9.6f  %9.6f%s\n", name, computed, expected,
              mark(same_to(computed, expected, tolerance)));
}

void single_values() {
  std::printf("Single values: computed, expected\n");
  const CascadeRates rates{.acceptance = {{0.8, 0.0}, {0, 0.5}},
                           .draft_costs = {CostCurve({0.04}), CostCurve({0.0})}};
  value("chain of 5, alpha .8, c .04", speedup(0.8, 5, 0.04), 3.0744, 1e-9);
  value("  by forecast", forecast_chain(rates, 5).speedup, speedup(0.8, 5, 0.04), 1e-12);
  value("vertical, 5 reviews of 10, alpha .8 and .5, c .04 and 0", vertical_ewif(0.8, 0.5, 10, 5, 0.04, 0),
        3.727663, 5e-7);
  value("  by forecast", forecast_vertical(rates, 5, 10).speedup, vertical_ewif(0.8, 0.5, 10, 5, 0.04, 0),
        1e-12);
  value("the same drafters, reviews until there are 10 tokens",
        forecast_cascade(rates, {{10, 0}, {0, 10}}).speedup, 3.804863, 5e-7);
  const TunedVertical reviews = best_vertical(rates, {.max_length = {20, 10}});
  const TunedCascade tokens = best_cascade(rates, {.max_length = {20}, .last_column = {0, 10}});
  std::printf("  the tuner's best: %d reviews of %d, %.6f; or reviews until there are %d tokens, %.6f\n",
              reviews.reviews, reviews.length, reviews.forecast.speedup, tokens.limits[0][0],
              tokens.forecast.speedup);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const std::string_view option = argv[1];
    const bool helps = option == "--help" || option == "-h";
    std::fprintf(
        helps ? stdout : stderr,
        "usage: bench_theory_tables\n\nPrints the tables of the papers beside what <specula/study/...> "
        "computes, and ends with 1 if a value is off. Takes no options.\n");
    return helps ? 0 : 2;
  }
  glide();
  cascades();
  single_values();
  if (wrong > 0) std::printf("\n%d wrong\n", wrong);
  return wrong > 0 ? 1 : 0;
}
