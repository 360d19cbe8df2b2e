// SPDX-License-Identifier: MIT
#include <cub/block/block_radix_sort.cuh>

#include <cstdio>
#include <memory>

#include "growth.cuh"
#include "growth_cub.cuh"

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

  const BFloat16* rows_of(int set, int level) const {
    const std::int64_t row = static_cast<std::int64_t>(set) * 51 + (level == 0 ? 0 : 1 + (level - 1) * 10);
    return rows_.data() + row * kBarVocab;
  }

  DynamicTreePlan plan;
  int sets = 1;

 private:
  DeviceArray<BFloat16> rows_;
  std::vector<std::unique_ptr<DynamicTreeRun>> runs_;
};

const char* const kStepBar = "growth of one dynamic-tree step (10 rows, top 10, best 10 of 100, links)";
const char* const kRerankBar = "rerank 510 -> 59";
const char* const kStepPeer = "peer of the step: CUB sorts the same 10 rows";
const char* const kRerankPeer = "peer of the rerank: CUB sorts 510 numbers in a block, no trees";

/// The best of up to 512 numbers in [0, 1] by a block's sort: what a rerank would do instead of
/// counting. `out`, (B, k), gets their places, ties to the lower one.
__global__ void __launch_bounds__(256)
    block_sort_kernel(const double* numbers, std::int32_t* out, int n, int k) {
  using Sort = cub::BlockRadixSort<std::uint64_t, 256, 2, std::int32_t>;
  __shared__ typename Sort::TempStorage shared;
  std::uint64_t key[2];
  std::int32_t place[2];
  for (int i = 0; i < 2; ++i) {
    place[i] = static_cast<std::int32_t>(2 * threadIdx.x) + i;
    key[i] = 0;
    if (place[i] < n)
      key[i] = 1 + static_cast<std::uint64_t>(
                       __double_as_longlong(numbers[static_cast<std::int64_t>(blockIdx.x) * n + place[i]]));
  }
  Sort(shared).SortDescending(key, place, 0, 62);
  for (int i = 0; i < 2; ++i) {
    const int at = static_cast<int>(2 * threadIdx.x) + i;
    if (at < k) out[static_cast<std::int64_t>(blockIdx.x) * k + at] = place[i];
  }
}

/// 1, 1/2, 1/3 ...; how long a radix sort takes does not depend on them.
std::vector<double> falling_numbers(int n) {
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(1.0 / (i + 1));
  return out;
}

}  // namespace

void run_growth_bars(const Options& options, Report& report) {
  Bars bars(options, report, "growth");
  const BarWork work(bars.device, bars.stream);
  bars.run(kStepBar, [&] {
    Bar bar = bars.timed(12, work.bytes(), work.sets,
                         [&](int set, cudaStream_t s) { return work.step(work.plan, set, s); });
    bar.note =
        "cluster " + std::to_string(work.plan.scan.cluster) + ", " + std::to_string(work.sets) + " sets";
    return bar;
  });
  bars.run(kRerankBar, [&] {
    return bars.timed(6, 510 * 20 + 60 * 32, work.sets,
                      [&](int set, cudaStream_t s) { return work.rerank(set, s); });
  });
  bars.run("nodes of a budget: 256 of 64 x 63", [&] {
    constexpr int kSequences = 64, kNodes = 64;
    std::vector<std::int32_t> begin{0}, parent;
    std::vector<double> reach;
    for (int b = 0; b < kSequences; ++b) {
      for (int i = 0; i < kNodes; ++i) {
        parent.push_back(i == 0 ? -1 : (i - 1) / 2);
        reach.push_back(i == 0 ? 1
                               : reach[static_cast<std::size_t>(begin.back() + parent.back())] *
                                     (0.3 + 0.001 * ((b * 37 + i * 101) % 600)));
      }
      begin.push_back(static_cast<std::int32_t>(parent.size()));
    }
    const DeviceArray<std::int32_t> begins(begin), parents(parent), budget(std::vector<std::int32_t>{256});
    const DeviceArray<double> reaches(reach);
    DeviceArray<std::int32_t> b(begin.size()), t(parent.size()), p(parent.size()), r(parent.size());
    return bars.timed(0, static_cast<double>(parent.size()) * 12 + 320 * 8, 1, [&](int, cudaStream_t s) {
      return device::select_nodes(
          kSequences, {begins.data(), parents.data(), parents.data(), reaches.data(), budget.data()},
          {b.data(), t.data(), p.data(), r.data()}, s);
    });
  });
  bars.run(kStepPeer, [&] {
    SortedRows sorted(10, kBarVocab);
    Bar bar = bars.timed(0, work.bytes(), work.sets,
                         [&](int set, cudaStream_t s) { return sorted.sort(work.rows_of(set, 1), s); });
    bar.note = "DeviceSegmentedRadixSort, " + cub_version();
    return bar;
  });
  bars.run(kRerankPeer, [&] {
    const DeviceArray<double> numbers(falling_numbers(510));
    const DeviceArray<std::int32_t> out(59);
    Bar bar = bars.timed(0, 510 * 8 + 59 * 4, 1, [&](int, cudaStream_t s) {
      block_sort_kernel<<<1, 256, 0, s>>>(numbers.data(), out.data(), 510, 59);
      return cudaGetLastError();
    });
    bar.note = "BlockRadixSort, " + cub_version();
    return bar;
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
    Sweep sweep(json, name(work.plan.scan.cluster), time(work.plan));
    for (const int cluster : device.clusters()) {
      DynamicTreePlan plan = work.plan;
      plan.scan.cluster = cluster;
      if (!launched(work.step(plan, 0, stream), cluster)) continue;
      stream.wait();
      sweep.add(name(cluster), time(plan));
    }
    sweep.finish(kStepBar);
  });
}

}  // namespace specula_bench
