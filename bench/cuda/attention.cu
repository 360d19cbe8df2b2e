// SPDX-License-Identifier: MIT
// Tree attention: correctness, replayed graphs, bars, and the sweep of its variants and splits.
//
//   attention check|graph|bars|sweep [--out FILE] [--seed N] [--only NAME] [--tiny] [--once]
// NAME: a bar; for check and graph a kernel, mma.sync or wgmma.
#include "attention.cuh"

int main(int argc, char** argv) {
  using namespace specula_bench;
  return run_section(argc, argv,
                     {{"check", check_attention},
                      {"graph", check_attention_graphs},
                      {"bars", run_attention_bars},
                      {"sweep", sweep_attention}});
}
