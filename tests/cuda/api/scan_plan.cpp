// SPDX-License-Identifier: MIT
// Launch plans of row scans: cluster size, threads, rows per pass.
#include <doctest/doctest.h>
#include <specula/cuda/api/scan_plan.cuh>
#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/detail/verify/row_scan.cuh>

#include "emulated_gpu.hpp"

using namespace specula::cuda;
using namespace specula::cuda::detail;
using specula_test::EmulatedCluster;

namespace {

constexpr int kVocab = 128256;
constexpr ScanDevice kHopper{132, 227 << 10, 228 << 10, true}, kAmpere{108, 163 << 10, 164 << 10, false},
    kSmall{28, 99 << 10, 100 << 10, false};

ScanPlan plan(const ScanTask& task, const ScanDevice& device, int threads = 256) {
  ScanPlan out;
  const int blocks = plan_scan(
      task, device, threads,
      [](const ScanSize& size, int warps) {
        return SequenceVerifier<RejectionRule, EmulatedCluster, BFloat16,
                                LogitsDraft<BFloat16>>::shared_bytes(size, 64, warps);
      },
      &out);
  REQUIRE(blocks >= device.processors);
  CHECK(blocks <= 512 / out.threads * device.processors);
  CHECK(out.shared_bytes <= device.block_bytes);
  CHECK((out.cluster >= 1 && out.cluster <= 16 && (out.cluster & (out.cluster - 1)) == 0));
  CHECK((out.size.rows >= 1 && out.size.rows <= kMaxRows));
  CHECK((out.size.ring_bytes == 8192 || out.size.ring_bytes == 4096));
  CHECK(out.threads % 32 == 0);
  return out;
}

}  // namespace

TEST_CASE("one block per multiprocessor, in the largest clusters, reads all rows of a chain in one pass") {
  for (const int sequences : {1, 8}) {
    const ScanPlan p = plan({sequences, kVocab, 2, 5, 2}, kHopper, 512);
    CHECK(p.cluster == 16);
    CHECK(p.threads == 512);
    CHECK(p.size.rows == 5);
  }
}

TEST_CASE("two blocks of different sequences per multiprocessor, few rows ahead") {
  const ScanPlan p = plan({64, kVocab, 2, 5, 2}, kHopper);
  CHECK(p.threads == 256);
  CHECK(p.cluster == 4);
  CHECK(p.size.rows == 2);
  CHECK(2 * (p.shared_bytes + 1024) <= kHopper.processor_bytes);
  CHECK(plan({64, kVocab, 2, 5, 1}, kHopper).size.rows == 1);         // greedy
  CHECK(plan({64, kVocab, 2, 5, kMaxRows}, kHopper).size.rows == 5);  // rules that decide from the end
  CHECK(plan({64, 32000, 2, 5, 1}, kHopper).size.rows == 4);          // short rows
  CHECK(plan({1000, kVocab, 2, 5, 2}, kHopper).cluster == 1);
}

TEST_CASE("devices without clusters, and with little shared memory") {
  for (const int sequences : {1, 64}) {
    CHECK(plan({sequences, kVocab, 2, 5, 2}, kAmpere).cluster == 1);
    CHECK(plan({sequences, kVocab, 2, 5, 2}, kSmall).cluster == 1);
    CHECK(plan({sequences, 256000, 4, 8, 8}, kSmall).cluster == 1);
  }
  ScanPlan none;
  CHECK(plan_scan(
            {1, kVocab, 2, 5, 2}, kHopper, 512, [](const ScanSize&, int) { return std::size_t{1} << 20; },
            &none) == 0);
}

TEST_CASE("rows ahead: 112 KB per multiprocessor, and at most the existing rows") {
  CHECK(rows_in_a_pass({1, kVocab, 2, 5, 1}, 132) == 5);
  CHECK(rows_in_a_pass({1, kVocab, 2, 100, 1}, 132) == kMaxRows);
  CHECK(rows_in_a_pass({16, kVocab, 2, 8, 1}, 132) == 4);
  CHECK(rows_in_a_pass({64, kVocab, 2, 8, 1}, 132) == 1);
  CHECK(rows_in_a_pass({128, kVocab, 2, 8, 1}, 132) == 1);
  CHECK(rows_in_a_pass({128, kVocab, 2, 1, 2}, 132) == 1);
}

TEST_CASE("plans that were not made, or cannot be launched") {
  const ScanPlan good = plan({64, kVocab, 2, 5, 2}, kHopper);
  CHECK(is_plan(good, true));
  CHECK_FALSE(is_plan({}, false));
  const auto changed = [&](auto change) {
    ScanPlan out = good;
    change(out);
    return out;
  };
  CHECK_FALSE(is_plan(changed([](ScanPlan& p) { p.shared_bytes = 0; }), true));
  CHECK_FALSE(is_plan(changed([](ScanPlan& p) { p.cluster = 3; }), true));
  CHECK_FALSE(is_plan(changed([](ScanPlan& p) { p.threads = 48; }), false));
  const ScanPlan a_warp = changed([](ScanPlan& p) { p.threads = 32; });
  CHECK(is_plan(a_warp, false));
  CHECK_FALSE(is_plan(a_warp, true));  // one warp verifies, so none is left to read rows
}

TEST_CASE("invalid arguments are refused on the host") {
  int something = 0;
  const Trees trees{&something, &something, nullptr, &something, reinterpret_cast<std::uint64_t*>(16)};
  CHECK(valid_trees(trees));
  for (int i = 0; i < 4; ++i) {
    Trees bad = trees;
    (i == 0 ? bad.begin : i == 1 ? bad.token : bad.position) = nullptr;
    if (i == 3) bad = trees, bad.seed = nullptr;
    CHECK_FALSE(valid_trees(bad));
  }
  Trees misaligned = trees;
  misaligned.seed = reinterpret_cast<std::uint64_t*>(12);
  CHECK_FALSE(valid_trees(misaligned));
  const auto at = [](auto* p, std::uintptr_t address) { return reinterpret_cast<decltype(p)>(address); };
  const BFloat16* rows = at(static_cast<const BFloat16*>(nullptr), 2);
  CHECK(valid_rows(TargetRows<BFloat16>{rows, 10}));
  CHECK_FALSE(valid_rows(TargetRows<BFloat16>{nullptr, 10}));
  CHECK_FALSE(valid_rows(TargetRows<BFloat16>{at(rows, 3), 10}));
  const RowStats* stats = at(static_cast<const RowStats*>(nullptr), 64);
  CHECK(valid_draft(LogitsDraft<BFloat16>{rows, 10, stats}));
  CHECK_FALSE(valid_draft(LogitsDraft<BFloat16>{rows, 10, nullptr}));
  CHECK_FALSE(valid_draft(LogitsDraft<BFloat16>{rows, 10, stats, nullptr, nullptr, -1}));
  CHECK_FALSE(valid_draft(ProbsDraft{nullptr, 10}));
  CHECK_FALSE(valid_draft(SparseDraft{&something, nullptr, 3}));
  float prob = 0;
  CHECK(valid_draft(SparseDraft{&something, &prob, 3}));
  CHECK_FALSE(valid_draft(SparseDraft{&something, &prob, 0}));
  Status status{};
  CHECK(valid_results({&something, &something, &something, &status}));
  CHECK_FALSE(valid_results({&something, nullptr, &something, &status}));
  CHECK_FALSE(valid_capacity({1, 0, 3, 10}));
  CHECK_FALSE(valid_capacity({1, 4, -1, 10}));
  CHECK(valid_capacity({1, 4, 0, 10}));

  const Workspace room{at(static_cast<void*>(nullptr), 32), 100, at(static_cast<std::uint32_t*>(nullptr), 8),
                       8};
  CHECK(is_room({}, 0, 0));
  CHECK(is_room(room, 100, 8));
  CHECK_FALSE(is_room(room, 101, 8));
  CHECK_FALSE(is_room(room, 100, 9));
  CHECK_FALSE(is_room({}, 1, 0));
  Workspace odd = room;
  odd.parts = at(static_cast<void*>(nullptr), 8);
  CHECK_FALSE(is_room(odd, 100, 8));
}
