#include <cstdio>
#include <memory>

#include "growth.cuh"

namespace specula_bench {
namespace {

constexpr int kBarVocab = 128256;

/// Sets of one proposal each, all levels grown.
class BarWork {
 public:
  BarWork(const Device& device, const Stream& stream) {
    device::DynamicTreeCapacity capacity;
    capacity.vocab = kBarVocab;
    SPECULA_CHECK(device::make_dynamic_tree_plan(&plan, capacity, device.id));
    sets = device.sets_beyond_cache(bytes());
    rows_.reserve(static_cast<std::size_t>(sets) * 51 * kBarVocab);
    fill_normal(rows_.data(), nullptr, static_cast<std::int64_t>(rows_.size()), 5, 2);
    for (int s = 0; s < sets; ++s) runs_.push_back(std::make_unique<DynamicTreeRun>(plan, kBarVocab));
    for (int s = 0; s < sets; ++s) {
      for (int level = 0; level <= plan.expansions; ++level)
        SPECULA_CHECK(runs_[static_cast<std::size_t>(s)]->step(plan, level, rows_of(s, level), stream));
      SPECULA_CHECK(runs_[static_cast<std::size_t>(s)]->rerank(stream));
    }
    stream.wait();
  }
  double bytes() const { return 2.0 * 10 * kBarVocab; }
  /// Level 1: ten rows, and the ten best of a hundred.
  cudaError_t step(const DynamicTreePlan& with, int set, cudaStream_t stream) const {
    return runs_[static_cast<std::size_t>(set)]->step(with, 1, rows_of(set, 1), stream);
  }
  cudaError_t rerank(int set, cudaStream_t stream) const {
    return runs_[static_cast<std::size_t>(set)]->rerank(stream);
  }

  DynamicTreePlan plan;
  int sets = 1;

 private:
  const BFloat16* rows_of(int set, int level) const {
    const std::int64_t row = static_cast<std::int64_t>(set) * 51 + (level == 0 ? 0 : 1 + (level - 1) * 10);
    return rows_.data() + row * kBarVocab;
  }
  DeviceArray<BFloat16> rows_;
  std::vector<std::unique_ptr<DynamicTreeRun>> runs_;
};

const char* const kStepBar = "growth of one dynamic-tree step (10 rows, top 10, best 10 of 100, links)";
const char* const kRerankBar = "rerank 510 -> 59";

}  // namespace

void run_growth_bars(const Options& options, Report& report) {
  Bars bars(options, report, "growth");
  const BarWork work(bars.device, bars.stream);
  bars.run(kStepBar, [&] {
    Bar bar = bars.timed(12, work.bytes(), work.sets,
                         [&](int set, cudaStream_t s) { return work.step(work.plan, set, s); });
    bar.note = "cluster " + std::to_string(work.plan.cluster) + ", " + std::to_string(work.sets) + " sets";
    return bar;
  });
  bars.run(kRerankBar, [&] {
    return bars.timed(6, 510 * 20 + 60 * 32, work.sets,
                      [&](int set, cudaStream_t s) { return work.rerank(set, s); });
  });
}

void sweep_growth(const Options&, Report& report) {
  const Device device;
  const Stream stream;
  Sweep::print_head();
  report.part(kStepBar, [&](Json& json) {
    const BarWork work(device, stream);
    const auto time = [&](const DynamicTreePlan& plan) {
      return time_in_graph(
          stream, work.sets, [&](int set, cudaStream_t s) { return work.step(plan, set, s); }, 24, 9);
    };
    const auto name = [](int cluster) { return "cluster of " + std::to_string(cluster); };
    Sweep sweep(json, name(work.plan.cluster), time(work.plan));
    for (const int cluster : device.clusters()) {
      DynamicTreePlan plan = work.plan;
      plan.cluster = cluster;
      if (!launched(work.step(plan, 0, stream), cluster)) continue;
      stream.wait();
      sweep.add(name(cluster), time(plan));
    }
    sweep.finish(kStepBar);
  });
}

}  // namespace specula_bench
