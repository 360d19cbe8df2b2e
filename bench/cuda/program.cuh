// SPDX-License-Identifier: MIT
// Shared by the programs of this folder: arguments, sections that continue after failures, JSON, and the
// measurement of bars and sweeps.
#pragma once

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <limits>

#include "gpu.cuh"

namespace specula_bench {

struct Options {
  std::string section, out;
  std::string only;  // bar, shape or kernel
  std::string part;  // of a section; its blanks may be hyphens
  std::uint64_t seed = 1;
  bool tiny = false;  // for compute-sanitizer
  bool once = false;  // launches without a graph, between profiler marks
  int trees = 10000;

  bool wants(const std::string& name) const { return only.empty() || only == name; }
};

/// PROGRAM SECTION [--out FILE] [--seed N] [--trees N] [--only NAME] [--part NAME] [--tiny] [--once]
inline Options read_options(int argc, char** argv) {
  Options out;
  if (argc > 1) out.section = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    const bool more = i + 1 < argc;
    if (name == "--tiny")
      out.tiny = true;
    else if (name == "--once")
      out.once = true;
    else if (name == "--out" && more)
      out.out = argv[++i];
    else if (name == "--only" && more)
      out.only = argv[++i];
    else if (name == "--part" && more)
      out.part = argv[++i];
    else if (name == "--seed" && more)
      out.seed = std::stoull(argv[++i]);
    else if (name == "--trees" && more)
      out.trees = std::stoi(argv[++i]);
    else
      throw std::runtime_error("unknown option: " + name);
  }
  return out;
}

/// Results of a section, saved after each of its parts; a part that throws is an error in them.
class Report {
 public:
  explicit Report(const Options& options) : out_(options.out), part_(options.part) {
    json.begin_object().field("seed", static_cast<unsigned long long>(options.seed));
  }

  /// Whether all went well.
  bool ok() const { return failed_ == 0; }
  /// Whether the part that was asked for, if one was, is there.
  bool found() const { return part_.empty() || found_; }
  void fail() { ++failed_; }
  void save() {
    if (out_.empty() || json.save(out_)) return;
    std::fprintf(stderr, "cannot write %s\n", out_.c_str());
    fail();
  }
  /// `part` writes fields into an object of this name, if it is wanted. After an error that the device does
  /// not recover from no further part is run.
  void part(const std::string& name, const std::function<void(Json&)>& part) {
    if (dead_ || !wanted(name)) return;
    found_ = true;
    std::printf("-- %s\n", name.c_str());
    Json before = json;
    try {
      json.key(name).begin_object();
      part(json);
      json.end();
    } catch (const std::exception& error) {
      json = std::move(before);
      failed(name, error.what());
    }
    save();
  }
  void failed(const std::string& name, const std::string& why) {
    std::printf("| %s | ERROR: %s |\n", name.c_str(), why.c_str());
    fail();
    dead_ = cudaDeviceSynchronize() != cudaSuccess;
    json.key(name).begin_object().field("error", why).field("device_lost", dead_).end();
  }

  Json json;

 private:
  bool wanted(std::string name) const {
    if (part_.empty() || name == part_) return true;
    std::replace(name.begin(), name.end(), ' ', '-');
    return name == part_;
  }

  std::string out_, part_;
  int failed_ = 0;
  bool dead_ = false, found_ = false;
};

/// A section of a program.
struct Section {
  const char* name;
  void (*run)(const Options&, Report&);
};

/// A program's main: runs the requested section. 0: success, 1: something failed, 2: bad usage.
inline int run_section(int argc, char** argv, std::initializer_list<Section> sections) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);  // a time limit may end us at any time
  try {
    const Options options = read_options(argc, argv);
    for (const Section& section : sections) {
      if (options.section != section.name) continue;
      Report report(options);
      try {
        section.run(options, report);
      } catch (const std::exception& error) {
        report.failed("section", error.what());
      }
      report.save();
      if (!report.found()) std::fprintf(stderr, "no such part: %s\n", options.part.c_str());
      return report.ok() && report.found() ? 0 : 1;
    }
    throw std::runtime_error("no such section: " + options.section);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}

/// Runs bars: measures them, or with --once launches each a single time between the profiler's marks.
class Bars {
 public:
  Bars(const Options& options, Report& report, const char* program)
      : options_(options),
        report_(report),
        program_(program),
        bandwidth_(options.once ? 1e12 : measure_copy_kernel(device, stream).first) {
    report.json.field("copy_bytes_per_second", bandwidth_);
    std::printf("%s", table_head().c_str());
  }

  const Device device;
  const Stream stream;

  /// The bar that `measure` returns, as a part of the report; also, for scripts, a line `BAR ratio program
  /// name`.
  void run(const std::string& name, const std::function<Bar()>& measure) {
    if (!options_.wants(name)) return;
    report_.part(name, [&](Json& json) {
      Bar bar = measure();
      bar.name = name;
      json.key("bar");
      write_bar(json, bar);
      std::printf("%s", table_row(bar).c_str());
      if (bar.has_limit()) std::printf("BAR\t%.4f\t%s\t%s\n", bar.ratio(), program_, name.c_str());
    });
  }
  /// A launch against `limit_us` (0: none), where `bytes` must be moved.
  Bar timed(double limit_us, double bytes, int sets, const Launch& launch) const {
    return time_bar("", limit_us, time(sets, launch), bytes, bandwidth_);
  }
  /// A bar that cannot be measured here.
  void missing(const std::string& name, double limit, const char* unit) {
    run(name, [&] { return missing_bar("", limit, unit, "needs the peer"); });
  }

 private:
  Twice time(int sets, const Launch& launch) const {
    if (!options_.once) return time_twice(stream, sets, launch);
    for (int set = 0; set < sets; ++set) SPECULA_CHECK(launch(set, stream));  // warms up
    stream.wait();
    SPECULA_CHECK(cudaProfilerStart());
    SPECULA_CHECK(launch(0, stream));
    stream.wait();
    SPECULA_CHECK(cudaProfilerStop());
    return {1, 1};
  }

  const Options& options_;
  Report& report_;
  const char* program_;
  double bandwidth_;
};

/// The times of a work's variants next to what the plan chose.
class Sweep {
 public:
  Sweep(Json& json, const std::string& planned, double planned_us)
      : json_(json), planned_(planned), best_(planned), planned_us_(planned_us), best_us_(planned_us) {
    json.field("planned", planned).field("planned_us", planned_us).key("variants").begin_array();
  }
  static void print_head() {
    std::printf("| work | planned | us | best | us | planned / best |\n|---|---|---|---|---|---|\n");
  }
  void add(const std::string& variant, double us) {
    json_.begin_object().field("variant", variant).field("us", us).end();
    if (us < best_us_) best_ = variant, best_us_ = us;
  }
  void finish(const std::string& work) {
    json_.end().field("best", best_).field("best_us", best_us_);
    std::printf("| %s | %s | %.2f | %s | %.2f | %.2f |\n", work.c_str(), planned_.c_str(), planned_us_,
                best_.c_str(), best_us_, planned_us_ / best_us_);
  }

 private:
  Json& json_;
  std::string planned_, best_;
  double planned_us_, best_us_;
};

}  // namespace specula_bench
