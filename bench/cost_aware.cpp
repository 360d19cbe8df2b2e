// SPDX-License-Identifier: MIT
// CostAware in simulated time: speed relative to plain decoding and to the best fixed chain in hindsight,
// with simulated and measured costs of passes. Deterministic. Prints a table; fails if plain decoding is more
// than 2% faster in too many cases. `--all` for every combination, about two minutes.
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "simulated_texts.hpp"

using namespace specula_test;

namespace {

struct Row {
  int trials = 0, losing = 0, gaining = 0, behind = 0;
  double plain = 1e9, first = 1e9, best = 1e9, sum = 0, sum_of_best = 0;

  void add(const Trial& trial) {
    const Run run = write_texts(trial.world, specula::CostAware(specula::Chain<>{.length = 8}));
    const double all = trial.plain(), ratio = all / run.spent, possible = all / trial.best();
    ++trials;
    plain = std::min(plain, ratio);
    losing += ratio < 0.98 ? 1 : 0;
    first = std::min(first, trial.world.tokens / run.first_text);
    if (possible <= 1.05) return;
    ++gaining;
    best = std::min(best, ratio / possible);
    behind += ratio < 0.93 * possible ? 1 : 0;
    sum += ratio, sum_of_best += possible;
  }
  void print(const char* name) const {
    std::printf("| %s | %d | %.3f | %.3f | ", name, trials, plain, first);
    if (gaining == 0)
      std::printf("| | | |\n");
    else
      std::printf("%d | %.2fx of %.2fx | %.2f | %d |\n", gaining, sum / gaining, sum_of_best / gaining, best,
                  behind);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "--all") == 0;
  std::map<std::string, Row> rows;
  Row total;
  for (const Trial& trial : trials(all ? 1 : 29)) {
    rows[trial.machine].add(trial);
    total.add(trial);
  }
  std::puts(
      "| T(n)/T(1) | cases | slowest, of plain | its first text | cases with a gain | mean speedup, of the "
      "best "
      "fixed length's | least of that | below 0.93 |\n|---|---|---|---|---|---|---|---|");
  for (const auto& machine : machines()) rows[machine.name].print(machine.name.c_str());
  total.print("all");
  std::printf("%d of %d cases lose more than 2%%\n", total.losing, total.trials);
  return total.losing * 200 > total.trials ? 1 : 0;
}
