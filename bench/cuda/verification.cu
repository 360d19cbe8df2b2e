// SPDX-License-Identifier: MIT
// Sampling and verification: correctness, replayed graphs, bars, and the sweep of their variants.
//
//   verification check|graph|bars|sweep [--out FILE] [--seed N] [--trees N] [--only BAR] [--tiny] [--once]
#include "device_cases.cuh"

int main(int argc, char** argv) {
  using namespace specula_bench;
  return run_section(argc, argv,
                     {{"check", check_verification},
                      {"graph", check_verification_graphs},
                      {"bars", run_verification_bars},
                      {"sweep", sweep_verification}});
}
