// SPDX-License-Identifier: MIT
// Batches of proposals on the device, and their results.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "cases.hpp"
#include "program.cuh"
#include "verification.cuh"

namespace specula_bench {

/// Verification results as they lie on the device, comparable to the bit.
struct HostResults {
  std::vector<std::int32_t> token, accepted, count, status;
  std::vector<float> log_prob;

  friend bool operator==(const HostResults& a, const HostResults& b) {
    return a.token == b.token && a.accepted == b.accepted && a.count == b.count && a.status == b.status &&
           a.log_prob == b.log_prob;
  }
};

class DeviceResults {
 public:
  DeviceResults(int sequences, int width) : width_(width) {
    const auto b = static_cast<std::size_t>(sequences), n = b * static_cast<std::size_t>(width);
    token_.reserve(n), path_.reserve(n), count_.reserve(b), status_.reserve(b), log_prob_.reserve(n);
    poison();
  }
  void poison() {
    token_.fill_bytes(kPoison), path_.fill_bytes(kPoison);
    count_.fill_bytes(kPoison), status_.fill_bytes(kPoison), log_prob_.fill_bytes(kPoison);
  }
  /// From sequence `first` on.
  device::VerifyResults args(int first = 0) const {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(first) * width_;
    return {token_.data() + at, path_.data() + at, count_.data() + first, status_.data() + first,
            log_prob_.data() + at};
  }
  HostResults download() const {
    HostResults out{token_.download(), path_.download(), count_.download(), {}, log_prob_.download()};
    for (const device::Status s : status_.download()) out.status.push_back(static_cast<std::int32_t>(s));
    return out;
  }

 private:
  int width_;
  DeviceArray<std::int32_t> token_, path_, count_;
  DeviceArray<device::Status> status_;
  DeviceArray<float> log_prob_;
};

/// The workspace of a plan.
class DeviceWorkspace {
 public:
  DeviceWorkspace(const RulePlan& plan, const Stream& stream)
      : parts_(plan.part_bytes), counters_(plan.counter_bytes / sizeof(std::uint32_t)) {
    parts_.fill_bytes(kPoison), counters_.fill_bytes(kPoison);
    SPECULA_CHECK(device::zero_counters(args(), stream));
    stream.wait();
  }
  device::Workspace args() const {
    return {parts_.data(), parts_.bytes(), counters_.data(), counters_.bytes()};
  }

 private:
  DeviceArray<unsigned char> parts_;
  DeviceArray<std::uint32_t> counters_;
};

/// A CaseBatch on the device. upload() keeps the addresses where reserve() made room before.
template <class Element>
class DeviceCases {
 public:
  void reserve(std::size_t sequences, std::size_t nodes, std::size_t target, std::size_t draft) {
    begin_.reserve(sequences + 1), position_.reserve(sequences), seed_.reserve(sequences);
    params_.reserve(sequences), token_.reserve(nodes), parent_.reserve(nodes), draft_row_.reserve(nodes);
    scale_.reserve(nodes), target_.reserve(target), draft_.reserve(draft), stats_.reserve(nodes);
  }
  void upload(const CaseBatch<Element>& batch) {
    stride_ = batch.stride, offset_ = batch.offset, chains_ = batch.chains;
    begin_.upload(batch.begin), position_.upload(batch.position), seed_.upload(batch.seed);
    params_.upload(batch.params), token_.upload(batch.token), parent_.upload(batch.parent);
    draft_row_.upload(batch.draft_row), scale_.upload(batch.scale), target_.upload(batch.target);
    draft_.reserve(1),
        stats_.reserve(1);  // where all draft tokens were chosen: no row is looked at, but null is refused
    if (batch.draft.size() > static_cast<std::size_t>(batch.offset)) draft_.upload(batch.draft);
    if (!batch.stats.empty()) stats_.upload(batch.stats);
    draft_rows_ = static_cast<std::int64_t>(batch.stats.size());
  }
  device::Trees trees(int first = 0) const {
    return {begin_.data() + first,    token_.data(),        chains_ ? nullptr : parent_.data(),
            position_.data() + first, seed_.data() + first, nullptr};
  }
  device::TargetRows<Element> target(int first = 0) const {
    return {target_.data() + offset_, stride_, nullptr, params_.data() + first};
  }
  device::LogitsDraft<Element> draft() const {
    return {draft_.data() + offset_, stride_, stats_.data(), draft_row_.data(), scale_.data(), draft_rows_};
  }
  bool chains() const { return chains_; }
  const std::int32_t* draft_rows() const { return draft_row_.data(); }
  const double* scales() const { return scale_.data(); }

 private:
  std::ptrdiff_t stride_ = 0, offset_ = 0;
  std::int64_t draft_rows_ = 0;
  bool chains_ = false;
  DeviceArray<std::int32_t> begin_, position_, token_, parent_, draft_row_;
  DeviceArray<std::uint64_t> seed_;
  DeviceArray<device::SamplingParams> params_;
  DeviceArray<Element> target_, draft_;
  DeviceArray<device::RowStats> stats_;
  DeviceArray<double> scale_;
};

template <class Element>
RuleKernels<Element> kernels_of(Rule rule) {
  switch (rule) {
    case Rule::greedy:
      return greedy_kernels<Element>();
    case Rule::sample_and_match:
      return sample_and_match_kernels<Element>();
    case Rule::rejection:
      return rejection_kernels<Element>();
    case Rule::traversal:
      return traversal_kernels<Element>();
    case Rule::block:
      break;
  }
  return block_kernels<Element>();
}

/// For tables.
inline std::string name_of(const Geometry& geometry) {
  return "clusters of " + std::to_string(geometry.cluster) + " x " + std::to_string(geometry.threads) + ", " +
         std::to_string(geometry.size.rows) + (geometry.size.rows == 1 ? " row" : " rows") + ", rings of " +
         std::to_string(geometry.size.ring_bytes);
}
/// `planned` otherwise spread.
inline Geometry spread(Geometry planned, int cluster, int threads, int rows, int ring_bytes) {
  planned.cluster = cluster, planned.threads = threads;
  planned.size.rows = rows, planned.size.ring_bytes = ring_bytes;
  return planned;
}

/// The difference of a sequence's result from the CPU's; empty if there is none.
template <class Element>
std::string difference(const CaseBatch<Element>& batch, const HostResults& got, std::size_t b, int width) {
  const auto w = static_cast<std::size_t>(width);
  if (got.status[b] != 0) return "status " + std::to_string(got.status[b]);
  const auto& want = batch.want_token[b];
  if (got.count[b] != static_cast<std::int32_t>(want.size()))
    return "count " + std::to_string(got.count[b]) + " instead of " + std::to_string(want.size());
  for (std::size_t i = 0; i < w; ++i) {
    const bool inside = i < want.size();
    const std::int32_t token = inside ? want[i] : -1, node = inside ? batch.want_path[b][i] : -1;
    if (got.token[b * w + i] != token || got.accepted[b * w + i] != node)
      return "element " + std::to_string(i) + ": token " + std::to_string(got.token[b * w + i]) + ", node " +
             std::to_string(got.accepted[b * w + i]) + " instead of " + std::to_string(token) + ", " +
             std::to_string(node);
    const double log_prob = inside ? batch.want_log_prob[b][i] : 0.0;
    if (!(std::abs(static_cast<double>(got.log_prob[b * w + i]) - log_prob) <= 1e-4 * (1 - log_prob)))
      return "element " + std::to_string(i) + ": log-probability " + std::to_string(got.log_prob[b * w + i]) +
             " instead of " + std::to_string(log_prob);
  }
  return "";
}

/// The sections of the program `verification`.
void check_verification(const Options& options, Report& report);
void check_distributions(const Options&, const Device&, const Stream&, Json&, Report&);
void check_sharded(const Options&, const Device&, const Stream&, Json&, Report&);
void check_verification_graphs(const Options& options, Report& report);
void run_verification_bars(const Options& options, Report& report);
void sweep_verification(const Options& options, Report& report);

}  // namespace specula_bench
