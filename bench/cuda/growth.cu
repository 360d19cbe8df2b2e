// Growth of proposals, CAPE and the dynamic tree: correctness, replayed graphs, bars, and the sweep.
//
//   growth check|graph|bars|sweep [--out FILE] [--seed N] [--only BAR] [--tiny] [--once]
#include <cstdio>

#include "growth.cuh"

int main(int argc, char** argv) {
  using namespace specula_bench;
  try {
    const Options options = read_options(argc, argv);
    Report report(options);
    report.json.field("seed", static_cast<unsigned long long>(options.seed));
    if (options.section == "check")
      check_growth(options, report);
    else if (options.section == "graph")
      check_growth_graphs(options, report);
    else if (options.section == "bars")
      run_growth_bars(options, report);
    else if (options.section == "sweep")
      sweep_growth(options, report);
    else
      throw std::runtime_error("no such section: " + options.section);
    report.save();
    return report.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
