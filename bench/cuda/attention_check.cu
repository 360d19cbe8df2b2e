// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "attention_batch.cuh"
#include "tally.cuh"

namespace specula_bench {
namespace {

using device::BFloat16;
using device::Float8E4M3;
using device::Half;

template <class Element>
bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0);
}

struct Errors {
  double out = 0, lse = 0;
  bool good(double limit) const { return out <= limit && lse <= 2e-3; }
};
template <class Element>
Errors errors_of(const std::vector<Element>& out, const std::vector<float>& lse,
                 const std::vector<double>& want, const std::vector<double>& want_lse) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double difference = 0, size = 0;
  Errors e;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double x = as_double(out[i]);
    difference += (x - want[i]) * (x - want[i]);
    size += want[i] * want[i];
  }
  e.out = size > 0 ? std::sqrt(difference / size) : difference > 0 ? nan : difference;  // keeps NaN
  for (std::size_t i = 0; i < want_lse.size(); ++i) {
    const auto x = static_cast<double>(lse[i]);
    e.lse = worse(e.lse, !std::isinf(want_lse[i]) ? std::abs(x - want_lse[i]) : x == want_lse[i] ? 0 : nan);
  }
  return e;
}

template <int kHead, class Element, class Stored>
void check_shape(const AttentionKernels<Element, kHead, Stored>& kernels, const Shape& shape,
                 const std::string& name, double limit, std::uint64_t seed, const Device& device,
                 const Stream& stream, Json& json, Report& report) {
  const Batch<Element, kHead, Stored> batch(shape, seed);
  std::vector<double> want, want_lse;
  batch.reference(want, want_lse);
  DeviceBatch<Element, kHead, Stored> on_device(batch);
  using Plan = typename AttentionKernels<Element, kHead, Stored>::Plan;
  Workspace memory;  // of all plans below, one after the other
  const auto run = [&](const Plan& plan) {
    on_device.poison();
    SPECULA_CHECK(kernels.run(plan, on_device.args(), memory.of(plan), stream));
    stream.wait();
  };
  const Plan plan = kernels.plan(on_device.capacity(), device);
  run(plan);
  const std::vector<Element> out = on_device.out();
  const std::vector<float> lse = on_device.lse();
  const auto same = [&] { return same_bits(on_device.out(), out) && same_bits(on_device.lse(), lse); };
  const Errors e = errors_of(out, lse, want, want_lse);
  bool again = true;  // the counters are unchanged
  for (int i = 0; i < 3; ++i) {
    run(plan);
    again = again && same();
  }
  // In batch-invariant mode a sequence alone has the same bits.
  bool alone = true;
  if (shape.batch_invariant) {
    on_device.poison();
    device::TreeAttentionCapacity one = on_device.capacity();
    one.sequences = 1;
    const Plan single = kernels.plan(one, device);
    const device::Workspace workspace = memory.of(single);
    for (int b = 0; b < shape.sequences; ++b)
      SPECULA_CHECK(kernels.run(single, on_device.args(b), workspace, stream));
    stream.wait();
    alone = same();
  }
  // Other variants, splits and clusters of the same batch.
  Errors other;
  int variants = 0;
  for (const int rows : kernels.rows)
    for (const int splits : {1, 3, 16}) {
      if (shape.batch_invariant || !kernels.has_variant(on_device.capacity(), rows, device)) continue;
      device::TreeAttentionCapacity capacity = on_device.capacity();
      capacity.splits = splits;
      Plan variant = kernels.plan_of_variant(capacity, rows, device);
      for (const int cluster : {1, 2, 4, 8}) {
        if (variant.splits % cluster != 0 || (cluster > 1 && device.properties.major < 9)) continue;
        variant.cluster = cluster;
        run(variant);
        const Errors now = errors_of(on_device.out(), on_device.lse(), want, want_lse);
        other = {worse(other.out, now.out), worse(other.lse, now.lse)};
        ++variants;
      }
    }
  const bool good = e.good(limit) && other.good(limit) && again && alone;
  if (!good) report.fail();
  json.key(name).begin_object().field("error", e.out).field("lse_error", e.lse).field("limit", limit);
  json.field("variants", variants).field("variants_error", other.out).field("variants_lse_error", other.lse);
  json.field("replays_same_bits", again).field("alone_same_bits", alone).field("splits", plan.splits);
  json.field("rows", plan.rows).field("pass", good).end();
  std::printf("| %s | error %.2g | lse %.2g | variants %.2g | same bits: again %s, alone %s | %s |\n",
              name.c_str(), e.out, e.lse, other.out, again ? "yes" : "NO", alone ? "yes" : "NO",
              good ? "pass" : "FAIL");
}

template <int kHead, class Element, class Stored>
void check_all(const AttentionKernels<Element, kHead, Stored>& kernels, const char* element, double limit,
               const Options& options, const Device& device, const Stream& stream, Report& report) {
  struct Named {
    const char* name;
    Shape shape;
  };
  std::vector<Named> shapes;
  const auto add = [&](const char* name, auto change) {
    Named one{name, {}};
    change(one.shape);
    shapes.push_back(one);
  };
  add("contiguous", [](Shape&) {});
  add("pages of 16", [](Shape& s) { s.layout = Layout::pages; });
  if (!options.tiny) {
    add("groups of 1", [](Shape& s) { s.query_heads = s.kv_heads = 3; });
    add("groups of 7, pages of 1",
        [](Shape& s) { s.query_heads = 14, s.layout = Layout::pages, s.page_size = 1; });
    add("groups of 8, K beside V", [](Shape& s) { s.query_heads = 16, s.layout = Layout::side_by_side; });
    add("pages by head, of 48", [](Shape& s) { s.layout = Layout::pages_by_head, s.page_size = 48; });
    add("100 nodes", [](Shape& s) { s.max_nodes = 100, s.max_tokens = 700; });
    add("200 nodes, groups of 5", [](Shape& s) { s.max_nodes = 200, s.query_heads = 10, s.full = true; });
    add("window of 50", [](Shape& s) { s.window = 50; });
    add("window of 7", [](Shape& s) { s.window = 7, s.layout = Layout::pages; });
    add("softcap 30", [](Shape& s) { s.softcap = 30; });
    add("softcap 3, window of 100", [](Shape& s) { s.softcap = 3, s.window = 100; });
    add("no tail", [](Shape& s) { s.tail = false; });
    add("batch-invariant, 5,000 tokens", [](Shape& s) { s.batch_invariant = true, s.max_tokens = 5000; });
    add("12,000 tokens",
        [](Shape& s) { s.max_tokens = 12000, s.full = true, s.sequences = 2, s.max_nodes = 9; });
    add("32,768 tokens, one sequence",
        [](Shape& s) { s.max_tokens = 32768, s.full = true, s.sequences = 1, s.max_nodes = 8; });
    add("7 sequences of one node", [](Shape& s) { s.max_nodes = 1, s.sequences = 7, s.max_tokens = 2000; });
    add("no tokens at all", [](Shape& s) { s.max_tokens = 0; });
  }
  const std::string heads = std::string(element) + (sizeof(Stored) == 1 ? ", cache of e4m3" : "") +
                            ", heads of " + std::to_string(kHead) + ", " + kernels.name;
  report.part(heads, [&](Json& json) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      check_shape<kHead>(kernels, shapes[i].shape, heads + ": " + shapes[i].name, limit,
                         options.seed * 4049 + i, device, stream, json, report);
  });
}

/// A captured launch whose batch is changed: against a fresh one.
void check_graph(const AttentionKernels<BFloat16, 128>& kernels, const Options& options, const Device& device,
                 const Stream& stream, Json& json, Report& report) {
  Shape shape;
  shape.max_tokens = 3000;
  shape.max_nodes = 40;
  Shape full = shape;
  full.full = true;
  DeviceBatch<BFloat16, 128> on_device(Batch<BFloat16, 128>(full, 1));  // all that is ever needed
  const auto plan = kernels.plan(on_device.capacity(), device);
  Workspace memory, fresh_memory;
  const device::Workspace workspace = memory.of(plan);
  const auto args = on_device.args();
  const Graph graph(stream, [&](cudaStream_t s) { return kernels.run(plan, args, workspace, s); });
  bool same = true;
  const int rounds = options.tiny ? 2 : 10;
  for (int i = 0; i < rounds; ++i) {
    const Batch<BFloat16, 128> batch(shape, options.seed * 211 + static_cast<std::uint64_t>(i));
    on_device.upload(batch);
    graph.launch(stream);
    stream.wait();
    DeviceBatch<BFloat16, 128> fresh(batch);
    SPECULA_CHECK(kernels.run(plan, fresh.args(), fresh_memory.of(plan), stream));
    stream.wait();
    same = same && same_bits(on_device.out(), fresh.out()) && same_bits(on_device.lse(), fresh.lse());
  }
  if (!same) report.fail();
  json.field("replays", rounds).field("pass", same);
  std::printf("| attention by %s: %d replays are fresh launches | %s |\n", kernels.name, rounds,
              same ? "pass" : "FAIL");
}

/// Errors that the host detects.
void check_refusals(const Device& device, const Stream& stream, Json& json, Report& report) {
  Refusals refusals;
  const auto kernels = mma_kernels<BFloat16, 128>();
  device::TreeAttentionCapacity capacity;
  capacity.max_nodes = 8, capacity.query_heads = 8, capacity.kv_heads = 8, capacity.max_tokens = 1000;
  device::TreeAttentionPlan<BFloat16, 128> plan;
  refusals.expect(cudaErrorInvalidDevice, kernels.make_plan(&plan, capacity, device.id + 1),
                  "a plan for another device");
  refusals.expect(cudaErrorInvalidValue, kernels.run(plan, {}, {}, stream), "a plan that was not made");
  SPECULA_CHECK(kernels.make_plan(&plan, capacity, device.id));
  refusals.expect(cudaErrorInvalidValue, kernels.run(plan, {}, {}, stream), "null arrays");
  refusals.expect(cudaSuccess, cudaGetLastError(), "nothing was launched, nothing lingers");
  write(json, report, "errors that the host sees", refusals.tally());
}

}  // namespace

void check_attention(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  const auto check = [&](const auto& bf16_128, const auto& bf16_128_e4m3, const auto& f16_64,
                         const auto& f16_64_e4m3, const auto& bf16_64, const auto& f16_128) {
    if (!options.wants(bf16_128.name) || !bf16_128.runs_on(device)) return;
    check_all<128>(bf16_128, "bf16", 6e-3, options, device, stream, report);
    check_all<64>(f16_64, "f16", 1.5e-3, options, device, stream, report);
    check_all<128>(bf16_128_e4m3, "bf16", 6e-3, options, device, stream, report);
    check_all<64>(f16_64_e4m3, "f16", 1.5e-3, options, device, stream, report);
    if (options.tiny) return;
    check_all<64>(bf16_64, "bf16", 6e-3, options, device, stream, report);
    check_all<128>(f16_128, "f16", 1.5e-3, options, device, stream, report);
  };
  check(mma_kernels<BFloat16, 128>(), mma_kernels<BFloat16, 128, Float8E4M3>(), mma_kernels<Half, 64>(),
        mma_kernels<Half, 64, Float8E4M3>(), mma_kernels<BFloat16, 64>(), mma_kernels<Half, 128>());
  if (options.wants("refusals"))
    report.part("refusals", [&](Json& json) { check_refusals(device, stream, json, report); });
  // Last, in case it hangs.
  check(wgmma_kernels<BFloat16, 128>(), wgmma_kernels<BFloat16, 128, Float8E4M3>(), wgmma_kernels<Half, 64>(),
        wgmma_kernels<Half, 64, Float8E4M3>(), wgmma_kernels<BFloat16, 64>(), wgmma_kernels<Half, 128>());
}

void check_attention_graphs(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  for (const auto& kernels : {mma_kernels<BFloat16, 128>(), wgmma_kernels<BFloat16, 128>()})
    if (options.wants(kernels.name) && kernels.runs_on(device))
      report.part(kernels.name,
                  [&](Json& json) { check_graph(kernels, options, device, stream, json, report); });
}

}  // namespace specula_bench
