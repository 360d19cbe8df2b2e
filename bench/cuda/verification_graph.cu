// SPDX-License-Identifier: MIT
#include <cstdio>

#include "device_cases.cuh"
#include "tally.cuh"

namespace specula_bench {
namespace {

/// Batches through one captured graph whose arrays are changed in between: against fresh launches, and the
/// CPU.
template <class Element>
void check_graph(Rule rule, const char* element, const Options& options, const Device& device,
                 const Stream& stream, Json& json, Report& report) {
  const RuleKernels<Element> kernels = kernels_of<Element>(rule);
  CaseShape shape;
  shape.trees = 24;
  shape.vocab = 600;
  shape.stride = 601;
  const auto make = [&](int i) {
    return make_cases<Element>(rule, shape, options.seed * 613 + static_cast<std::uint64_t>(i));
  };
  const int rounds = options.tiny ? 2 : 12;
  std::vector<CaseBatch<Element>> all;
  for (int i = 0; i < rounds; ++i) all.push_back(make(i));
  const auto nodes = static_cast<std::size_t>(shape.trees * shape.nodes);
  DeviceCases<Element> cases;
  cases.reserve(static_cast<std::size_t>(shape.trees), nodes, nodes * 601 + 8, nodes * 601 + 8);
  cases.upload(all[0]);
  RulePlan plan;
  SPECULA_CHECK(kernels.plan(&plan, {shape.trees, shape.nodes, shape.nodes - 1, shape.vocab}, device.id));
  const DeviceWorkspace workspace(plan, stream);
  DeviceResults results(shape.trees, plan.width);
  // Sampling of the root's rows in the same graph, with the trees' seeds and positions.
  device::SamplePlan<Element> sample_plan;
  SPECULA_CHECK(plan_sample(&sample_plan, shape.trees, 1, shape.vocab, device.id));
  DeviceArray<std::int32_t> token(static_cast<std::size_t>(shape.trees));
  const auto sample_args = [&](const DeviceCases<Element>& c, const DeviceArray<std::int32_t>& to) {
    device::SampleArgs<Element> args{};
    args.logits = c.target().logits;
    args.stride = c.target().stride;
    args.seed = c.trees().seed;
    args.position = c.trees().position;
    args.params = c.target().params;
    args.token = to.data();
    return args;
  };
  device::LogitsDraft<Element> draft = cases.draft();
  draft.rows = static_cast<std::int64_t>(nodes);  // those of the batches to come
  const Graph graph(stream, [&](cudaStream_t s) {
    const cudaError_t error =
        kernels.run(plan, cases.trees(), cases.target(), draft, results.args(), workspace.args(), s);
    return error != cudaSuccess ? error : run_sample(sample_plan, sample_args(cases, token), s);
  });
  Tally same, right;
  for (int i = 0; i < rounds; ++i) {
    const CaseBatch<Element>& batch = all[static_cast<std::size_t>((i * 5 + 1) % rounds)];
    cases.upload(batch);
    results.poison();
    token.fill_bytes(kPoison);
    graph.launch(stream);
    stream.wait();
    const HostResults replayed = results.download();
    const auto replayed_token = token.download();

    DeviceCases<Element> fresh;
    fresh.upload(batch);
    DeviceResults fresh_results(shape.trees, plan.width);
    DeviceArray<std::int32_t> fresh_token(token.size());
    fresh_token.fill_bytes(kPoison + 1);
    SPECULA_CHECK(kernels.run(plan, fresh.trees(), fresh.target(), fresh.draft(), fresh_results.args(),
                              workspace.args(), stream));
    SPECULA_CHECK(run_sample(sample_plan, sample_args(fresh, fresh_token), stream));
    stream.wait();
    same.add(replayed == fresh_results.download() && replayed_token == fresh_token.download(), 1,
             "replay " + std::to_string(i));
    for (std::size_t b = 0; b < batch.position.size(); ++b) {
      const std::string wrong = difference(batch, replayed, b, plan.width);
      right.add(wrong.empty(), batch.margin[b], "replay " + std::to_string(i) + ": " + wrong);
    }
  }
  const std::string name = std::string(name_of(rule)) + " " + element;
  write(json, report, name + ": replays are fresh launches", same);
  write(json, report, name + ": replays are the CPU's", right);
}

}  // namespace

void check_verification_graphs(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  for (const Rule rule : kRules)
    report.part(name_of(rule), [&](Json& json) {
      check_graph<device::BFloat16>(rule, "bf16", options, device, stream, json, report);
      check_graph<float>(rule, "f32", options, device, stream, json, report);
    });
}

}  // namespace specula_bench
