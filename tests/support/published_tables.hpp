// SPDX-License-Identifier: MIT
// Published tables of papers, for the tests and bench/theory_tables.cpp to compare with.
#pragma once

#include <array>
#include <cstdint>

namespace specula_test {

/// GLIDE with a CAPE, table 1: five draft tokens; speedups as printed, to two decimals.
struct GlideRow {
  const char *target, *draft;
  double cost;                       // draft call / target call
  std::array<double, 4> acceptance;  // GSM8K, Finance-Alpaca, Spider, Code
  std::array<double, 4> printed;
};
inline constexpr std::int32_t kGlideLength = 5;
inline constexpr std::array<GlideRow, 11> kGlideTable = {{
    {"Vicuna-7B", "LLaMA-68m", .077, {.516, .497, .192, .348}, {1.46, 1.41, 0.89, 1.11}},
    {"Vicuna-7B", "LLaMA-160m", .490, {.580, .571, .251, .400}, {0.66, 0.65, 0.38, 0.48}},
    {"Vicuna-7B", "GLIDE", .067, {.648, .632, .557, .670}, {1.97, 1.90, 1.64, 2.06}},
    {"Vicuna-13B", "LLaMA-68m", .062, {.502, .493, .190, .327}, {1.51, 1.48, 0.94, 1.13}},
    {"Vicuna-13B", "LLaMA-160m", .393, {.568, .568, .254, .383}, {0.75, 0.75, 0.45, 0.54}},
    {"Vicuna-13B", "GLIDE", .055, {.671, .650, .571, .686}, {2.16, 2.07, 1.77, 2.24}},
    {"Vicuna-33B", "LLaMA-68m", .046, {.491, .465, .300, .315}, {1.57, 1.50, 1.16, 1.19}},
    {"Vicuna-33B", "LLaMA-160m", .295, {.561, .531, .314, .367}, {0.89, 0.84, 0.59, 0.64}},
    {"Vicuna-33B", "GLIDE", .068, {.693, .643, .627, .689}, {2.16, 1.94, 1.87, 2.14}},
    {"Mistral-7B", "LLaMA-45m", .049, {.367, .402, .419, .445}, {1.27, 1.34, 1.38, 1.44}},
    {"Mistral-7B", "GLIDE", .066, {.601, .564, .598, .626}, {1.80, 1.67, 1.79, 1.89}},
}};
inline constexpr double kGlideTolerance = 0.01;  // rates and costs are printed to three digits

/// Cascade Speculative Drafting, table 1: a base and a small drafter, alone or one after the other.
struct CascadeDataset {
  const char* name;
  double base, little;  // acceptance of their draft tokens
};
inline constexpr double kBaseCost = 0.022, kSmallCost = 0.0069;
inline constexpr std::array<CascadeDataset, 2> kCascadeDatasets = {{{"CNNDM", .73, .65}, {"EnDe", .80, .75}}};
struct CascadeRow {
  std::int32_t dataset;
  std::int32_t base_count, small_count;
  double printed;
  std::int32_t best_base, best_small;  // the optimum; all rows but one print it
};
inline constexpr std::array<CascadeRow, 6> kCascadeTable = {{
    {0, 0, 9, 2.65, 0, 9},
    {0, 8, 0, 2.96, 8, 0},
    {0, 5, 3, 3.03, 5, 5},
    {1, 0, 12, 3.61, 0, 12},
    {1, 11, 0, 3.75, 11, 0},
    {1, 5, 8, 3.93, 5, 8},
}};

}  // namespace specula_test
