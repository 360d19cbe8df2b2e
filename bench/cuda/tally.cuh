// SPDX-License-Identifier: MIT
// Counts of checks and their report.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "program.cuh"

namespace specula_bench {

/// Results that differ from what they should be.
struct Tally {
  int cases = 0, differ = 0, unexplained = 0;
  int allowed = 5;                // that may differ, in 10,000
  std::vector<std::string> list;  // the first of them
  std::vector<double> margins;

  bool good() const { return cases > 0 && unexplained == 0 && differ * 10000LL <= 1LL * allowed * cases; }
  /// `margin`: how far the nearest uniform draw was from a boundary; 1 where no uniform draw may explain a
  /// difference.
  void add(bool equal, double margin, const std::string& what) {
    ++cases;
    if (equal) return;
    ++differ;
    if (!(margin <= 1e-5)) ++unexplained;
    if (list.size() < 40) {
      list.push_back(what);
      margins.push_back(margin);
    }
  }
};

/// Errors that are answers: what calls should return and what they did.
class Refusals {
 public:
  Refusals() { tally_.allowed = 0; }
  void expect(cudaError_t want, cudaError_t got, const std::string& what) {
    tally_.add(got == want, 1, what + ": " + cudaGetErrorName(got));
  }
  const Tally& tally() const { return tally_; }

 private:
  Tally tally_;
};

inline void write(Json& json, Report& report, const std::string& name, const Tally& t) {
  json.key(name).begin_object().field("cases", t.cases).field("differ", t.differ);
  json.field("unexplained", t.unexplained).field("pass", t.good()).values("differing", t.list);
  json.values("distance_to_boundary", t.margins).end();
  if (!t.good()) report.fail();
  double farthest = 0;
  for (const double m : t.margins) farthest = std::max(farthest, m);
  std::printf("| %s | %d of %d equal | unexplained %d | farthest %.2g | %s |\n", name.c_str(),
              t.cases - t.differ, t.cases, t.unexplained, farthest, t.good() ? "pass" : "FAIL");
  for (std::size_t i = 0; i < t.list.size() && i < 5; ++i) std::printf("   %s\n", t.list[i].c_str());
}

inline int host_threads() {
  return static_cast<int>(std::max(1u, std::min(32u, std::thread::hardware_concurrency())));
}

/// run(i) for i in [0, n), on all cores.
template <class Run>
void for_all(int n, Run run) {
  const int count = std::min(n, host_threads());
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      try {
        for (int i = t; i < n; i += count) run(i);
      } catch (...) {
        errors[static_cast<std::size_t>(t)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}
/// make(i) for i in [0, n), on all cores.
template <class T, class Make>
std::vector<T> make_all(int n, Make make) {
  std::vector<T> out(static_cast<std::size_t>(n));
  for_all(n, [&](int i) { out[static_cast<std::size_t>(i)] = make(i); });
  return out;
}

}  // namespace specula_bench
