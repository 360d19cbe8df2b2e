// Sampling and verification: correctness, replayed graphs, bars, and the sweep of their variants.
//
//   verification check|graph|bars|sweep [--out FILE] [--seed N] [--trees N] [--only BAR] [--tiny] [--once]
#include <cstdio>

#include "device_cases.cuh"

int main(int argc, char** argv) {
  using namespace specula_bench;
  try {
    const Options options = read_options(argc, argv);
    Report report(options);
    report.json.field("seed", static_cast<unsigned long long>(options.seed));
    if (options.section == "check")
      check_verification(options, report);
    else if (options.section == "graph")
      check_verification_graphs(options, report);
    else if (options.section == "bars")
      run_verification_bars(options, report);
    else if (options.section == "sweep")
      sweep_verification(options, report);
    else
      throw std::runtime_error("no such section: " + options.section);
    report.save();
    return report.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
