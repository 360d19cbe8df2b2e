// Tree attention: correctness, replayed graphs, bars, and the sweep of its variants and splits.
//
//   attention check|graph|bars|sweep [--out FILE] [--seed N] [--only BAR] [--tiny] [--once]
#include <cstdio>

#include "attention.cuh"

int main(int argc, char** argv) {
  using namespace specula_bench;
  try {
    const Options options = read_options(argc, argv);
    Report report(options);
    report.json.field("seed", static_cast<unsigned long long>(options.seed));
    if (options.section == "check")
      check_attention(options, report);
    else if (options.section == "graph")
      check_attention_graphs(options, report);
    else if (options.section == "bars")
      run_attention_bars(options, report);
    else if (options.section == "sweep")
      sweep_attention(options, report);
    else
      throw std::runtime_error("no such section: " + options.section);
    report.save();
    return report.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
