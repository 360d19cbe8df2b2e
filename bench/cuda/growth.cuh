// SPDX-License-Identifier: MIT
// Growth of proposals on the device: arrays, and whole runs. Its kernels are compiled apart.
#pragma once

#include <algorithm>
#include <memory>

#include <specula/cuda/api/grow.cuh>

#include "program.cuh"

namespace specula {
namespace cuda {
extern template cudaError_t make_dynamic_tree_plan(DynamicTreePlan<BFloat16>*, const DynamicTreeCapacity&,
                                                   int);
extern template cudaError_t dynamic_tree_step(const DynamicTreePlan<BFloat16>&, int, const Roots&,
                                              const DraftRows<BFloat16>&, const DraftLevels&, void*,
                                              std::size_t, cudaStream_t);
extern template cudaError_t make_cape_plan(CapePlan<BFloat16>*, const CapeCapacity&, int);
extern template cudaError_t cape_step(const CapePlan<BFloat16>&, int, const Roots&,
                                      const DraftRows<BFloat16>&, const CapeSpine&, void*, std::size_t,
                                      cudaStream_t);
}  // namespace cuda
}  // namespace specula

namespace specula_bench {

namespace device = specula::cuda;
using device::BFloat16;
using DynamicTreePlan = device::DynamicTreePlan<BFloat16>;
using CapePlan = device::CapePlan<BFloat16>;

class GrownArrays {
 public:
  GrownArrays(int sequences, int width) : sequences_(sequences), width_(width) {
    const auto n = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(width);
    for (DeviceArray<std::int32_t>* a : {&token_, &parent_, &position_, &first_child_, &next_sibling_})
      a->reserve(n);
    ancestors_.reserve(n * static_cast<std::size_t>(device::mask_words(width)));
    confidence_.reserve(n), reach_.reserve(n);
    begin_.reserve(static_cast<std::size_t>(sequences) + 1);
    size_.reserve(static_cast<std::size_t>(sequences));
    status_.reserve(static_cast<std::size_t>(sequences));
    poison();
  }
  void poison() {
    for (DeviceArray<std::int32_t>* a :
         {&token_, &parent_, &position_, &first_child_, &next_sibling_, &begin_, &size_})
      a->fill_bytes(kPoison);
    ancestors_.fill_bytes(kPoison), confidence_.fill_bytes(kPoison), status_.fill_bytes(kPoison);
    reach_.fill_bytes(kPoison);
  }
  device::GrownTrees args() const {
    device::GrownTrees out{};
    out.token = token_.data();
    out.parent = parent_.data();
    out.begin = begin_.data();
    out.size = size_.data();
    out.position = position_.data();
    out.confidence = confidence_.data();
    out.reach = reach_.data();
    out.ancestors = ancestors_.data();
    out.first_child = first_child_.data();
    out.next_sibling = next_sibling_.data();
    return out;
  }
  device::Status* status() const { return status_.data(); }

  struct Host {
    std::vector<std::int32_t> token, parent, position, first_child, next_sibling, begin, size, status;
    std::vector<std::uint64_t> ancestors;
    std::vector<float> confidence;
    std::vector<double> reach;
    bool same(const Host& o) const {
      return token == o.token && parent == o.parent && position == o.position &&
             first_child == o.first_child && next_sibling == o.next_sibling && begin == o.begin &&
             size == o.size && status == o.status && ancestors == o.ancestors &&
             std::memcmp(confidence.data(), o.confidence.data(), confidence.size() * sizeof(float)) == 0 &&
             std::memcmp(reach.data(), o.reach.data(), reach.size() * sizeof(double)) == 0;
    }
  };
  Host download() const {
    Host out{token_.download(),        parent_.download(),     position_.download(), first_child_.download(),
             next_sibling_.download(), begin_.download(),      size_.download(),     {},
             ancestors_.download(),    confidence_.download(), reach_.download()};
    for (const device::Status s : status_.download()) out.status.push_back(static_cast<std::int32_t>(s));
    return out;
  }

 private:
  int sequences_, width_;
  DeviceArray<std::int32_t> token_, parent_, position_, first_child_, next_sibling_, begin_, size_;
  DeviceArray<std::uint64_t> ancestors_;
  DeviceArray<float> confidence_;
  DeviceArray<double> reach_;
  DeviceArray<device::Status> status_;
};

/// Roots, rows of all levels, and what growth writes on its way.
class DynamicTreeRun {
 public:
  DynamicTreeRun(const DynamicTreePlan& plan, int vocab)
      : plan_(plan), vocab_(vocab), grown(plan.sequences, plan.width) {
    const auto slots = static_cast<std::size_t>(plan.sequences) *
                       static_cast<std::size_t>(plan.top_k * std::max(1, plan.expansions));
    for (DeviceArray<std::int32_t>* a : {&token_, &parent_, &position_})
      a->reserve(slots), a->fill_bytes(kPoison);
    ancestors_.reserve(slots * static_cast<std::size_t>(plan.draft_words));
    ancestors_.fill_bytes(kPoison);
    workspace_.reserve(device::workspace_bytes(plan));
    workspace_.fill_bytes(kPoison);
    std::vector<std::int32_t> token, position, limit;
    for (int b = 0; b < plan.sequences; ++b) {
      token.push_back(b % vocab);
      position.push_back(70 + 3 * b);
      limit.push_back(b % 4 == 3 ? 1 + plan.width / 3 : plan.width);
    }
    root_.upload(token), root_position_.upload(position), limit_.upload(limit);
  }
  device::Roots roots() const { return {root_.data(), root_position_.data(), limit_.data()}; }
  static int limit_of(const DynamicTreePlan& plan, int b) {
    return b % 4 == 3 ? 1 + plan.width / 3 : plan.width;
  }
  /// (levels) rows: of level 0 (B), of others (B, K).
  cudaError_t step(const DynamicTreePlan& plan, int level, const BFloat16* rows, cudaStream_t stream) const {
    const device::DraftLevels levels{token_.data(), parent_.data(), position_.data(), ancestors_.data()};
    return device::dynamic_tree_step(plan, level, roots(), device::DraftRows<BFloat16>{rows, vocab_}, levels,
                                     workspace_.data(), workspace_.size(), stream);
  }
  cudaError_t rerank(cudaStream_t stream) const {
    return device::dynamic_tree_rerank(plan_, roots(), grown.args(), grown.status(), workspace_.data(),
                                       workspace_.size(), stream);
  }
  const BFloat16* rows_of(const DeviceArray<BFloat16>& rows, int level) const {
    const std::int64_t first =
        level == 0 ? 0 : plan_.sequences * (1 + static_cast<std::int64_t>(level - 1) * plan_.top_k);
    return rows.data() + first * vocab_;
  }
  std::int64_t row_count() const {
    return plan_.sequences * (1 + static_cast<std::int64_t>(plan_.expansions) * plan_.top_k);
  }
  cudaError_t all(const DeviceArray<BFloat16>& rows, cudaStream_t stream) const {
    for (int level = 0; level <= plan_.expansions; ++level) {
      const cudaError_t error = step(plan_, level, rows_of(rows, level), stream);
      if (error != cudaSuccess) return error;
    }
    return rerank(stream);
  }

 private:
  DynamicTreePlan plan_;
  int vocab_;
  DeviceArray<std::int32_t> root_, root_position_, limit_, token_, parent_, position_;
  DeviceArray<std::uint64_t> ancestors_;
  DeviceArray<unsigned char> workspace_;

 public:
  GrownArrays grown;
};

/// The sections of the program `growth`.
void check_growth(const Options& options, Report& report);
void check_growth_graphs(const Options& options, Report& report);
void run_growth_bars(const Options& options, Report& report);
void sweep_growth(const Options& options, Report& report);

}  // namespace specula_bench
