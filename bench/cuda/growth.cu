// SPDX-License-Identifier: MIT
// Growth of proposals, CAPE and the dynamic tree: correctness, replayed graphs, bars, and the sweep.
//
//   growth check|graph|bars|sweep [--out FILE] [--seed N] [--only BAR] [--tiny] [--once]
#include "growth.cuh"

int main(int argc, char** argv) {
  using namespace specula_bench;
  return run_section(argc, argv,
                     {{"check", check_growth},
                      {"graph", check_growth_graphs},
                      {"bars", run_growth_bars},
                      {"sweep", sweep_growth}});
}
