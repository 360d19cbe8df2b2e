// SPDX-License-Identifier: MIT
// What Round needs of CudaDevice, on a fake runtime: plans for the device, launches by them, signals, and
// errors that say what failed. Kernels do not run here.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <fake_device.hpp>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"  // of kernels for Hopper alone
#pragma GCC diagnostic ignored "-Wshadow"            // of shared memory, which is a global here
#include <specula/cuda/model/compile_cuda_rounds.hpp>
#pragma GCC diagnostic pop

using namespace specula::cuda;
using specula_test::FakeCuda;

namespace {

/// One sequence's arrays.
struct Arrays {
  std::vector<float> logits = std::vector<float>(8 * 100);
  std::vector<std::int32_t> begin{0, 3}, position = std::vector<std::int32_t>(8), count{0};
  std::vector<specula::Token> token = std::vector<specula::Token>(8);
  std::vector<specula::NodeId> parent{-1, 0, 0}, accepted = std::vector<specula::NodeId>(8);
  std::vector<std::uint64_t> seed{1}, words = std::vector<std::uint64_t>(8);
  std::vector<specula::Status> status{specula::Status::ok};
  std::vector<specula::SamplingParams> params{{}};
  std::vector<RowStats> stats = std::vector<RowStats>(8);
  std::vector<double> room = std::vector<double>(4096);

  Trees trees(bool chain) {
    Trees out{};
    out.begin = begin.data(), out.token = token.data(), out.parent = chain ? nullptr : parent.data();
    out.position = position.data(), out.seed = seed.data();
    return out;
  }
  TargetRows<float> rows() {
    TargetRows<float> out{logits.data(), 100};
    out.params = params.data();
    return out;
  }
  VerifyResults results() { return {token.data(), accepted.data(), count.data(), status.data(), nullptr}; }
};

}  // namespace

TEST_CASE("each rule has a plan, and is one launch") {
  FakeCuda runtime;
  runtime.runs_kernels = false;
  CudaDevice device;
  Arrays on;
  const VerifyCapacity capacity{1, 3, 2, 100};
  const auto check = [&](auto plan, auto draft, bool chain) {
    device.make_plan(plan, capacity);
    const std::size_t before = runtime.launches.size();
    device.verify(plan, on.trees(chain), on.rows(), draft, on.results());
    CHECK(runtime.launches.size() == before + 1);
  };
  const LogitsDraft<float> drawn{on.logits.data(), 100, on.stats.data()};
  check(GreedyPlan<float>{}, ChosenDraft{}, false);
  check(SampleAndMatchPlan<float>{}, ChosenDraft{}, true);
  check(RejectionPlan<float, ChosenDraft>{}, ChosenDraft{}, false);
  check(RejectionPlan<float, LogitsDraft<float>>{}, drawn, false);
  check(TraversalPlan<float, ChosenDraft>{}, ChosenDraft{}, false);
  check(TraversalPlan<float, LogitsDraft<float>>{}, drawn, false);
  check(BlockPlan<float, LogitsDraft<float>>{}, drawn, true);
  BlockPlan<float, LogitsDraft<float>> block;
  device.make_plan(block, capacity);
  CHECK_THROWS_WITH_AS(device.verify(block, on.trees(false), on.rows(), drawn, on.results()),
                       "CUDA: verification: an error", DeviceError);
}

TEST_CASE("growth and sampling") {
  FakeCuda runtime;
  runtime.runs_kernels = false;
  CudaDevice device;
  Arrays on;
  SamplePlan<float> draws;
  device.make_plan(draws, 1, 1, 100);
  SampleArgs<float> args{};
  args.logits = on.logits.data(), args.stride = 100, args.seed = on.seed.data(),
  args.position = on.position.data();
  args.token = on.token.data();
  device.draw(draws, args);
  args.token = nullptr;
  CHECK_THROWS_WITH_AS(device.draw(draws, args), "CUDA: sampling: an error", DeviceError);

  const Roots roots{on.token.data(), on.position.data()};
  const DraftRows<float> rows{on.logits.data(), 100};
  GrownTrees tree{};
  tree.token = on.token.data() + 1, tree.parent = on.parent.data();
  CapePlan<float> cape;
  device.make_plan(cape, CapeCapacity{1, 2, 4, 100, {}});
  const CapeSpine spine{on.token.data(), on.position.data()};
  device.grow(cape, 0, roots, rows, spine, on.room.data());
  device.finish(cape, roots, tree, on.room.data());
  CHECK_THROWS_WITH_AS(device.grow(cape, 2, roots, rows, spine, on.room.data()),
                       "CUDA: a step of CAPE: an error", DeviceError);
  DynamicTreePlan<float> dynamic;
  device.make_plan(dynamic, DynamicTreeCapacity{1, 2, 2, 4, 100});
  const DraftLevels levels{on.token.data(), on.parent.data(), on.position.data(), on.words.data()};
  device.grow(dynamic, 0, roots, rows, levels, on.room.data());
  device.finish(dynamic, roots, tree, on.room.data());
  CHECK_THROWS_WITH_AS(device.make_plan(dynamic, DynamicTreeCapacity{1, 33, 2, 4, 100}),
                       "CUDA: a plan of a dynamic tree: an error", DeviceError);
  CHECK(runtime.launches.size() == 5);
}

TEST_CASE("a signal is an event, which is given back") {
  FakeCuda runtime;
  {
    CudaDevice device;
    CudaDevice::Signal signal;
    const int made = runtime.made;
    device.signal(signal), device.signal(signal);
    CHECK(runtime.made == made + 1);
    device.await(signal);
  }
  CHECK(runtime.made == 0);
}
