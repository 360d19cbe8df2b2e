#include <algorithm>
#include <cstdio>

#include "attention.cuh"

namespace specula_bench {
namespace {

using device::BFloat16;

constexpr int kBarHead = 128, kBarQueryHeads = 32, kBarKvHeads = 8;

struct BarShape {
  const char* name;
  int nodes, sequences, tokens;
  enum class Goal { bandwidth, us, tflops, shown } goal;
  double limit;
};
const BarShape kBars[] = {
    {"8 nodes, B = 1, L = 32k", 8, 1, 32768, BarShape::Goal::bandwidth, .8},
    {"16 nodes, B = 1, L = 32k", 16, 1, 32768, BarShape::Goal::bandwidth, .8},
    {"8 nodes, B = 4, L = 8k", 8, 4, 8192, BarShape::Goal::bandwidth, .8},
    {"16 nodes, B = 4, L = 8k", 16, 4, 8192, BarShape::Goal::bandwidth, .8},
    {"8 nodes, B = 32, L = 1k", 8, 32, 1024, BarShape::Goal::bandwidth, .8},
    {"8 nodes, B = 32, L = 4k", 8, 32, 4096, BarShape::Goal::bandwidth, .8},
    {"16 nodes, B = 32, L = 4k", 16, 32, 4096, BarShape::Goal::bandwidth, .8},
    {"8 nodes, B = 1, L = 128k", 8, 1, 131072, BarShape::Goal::bandwidth, .8},
    {"8 nodes, B = 1, L = 8k", 8, 1, 8192, BarShape::Goal::us, 13},
    {"64 nodes, B = 1, L = 32k", 64, 1, 32768, BarShape::Goal::tflops, 380},
    {"64 nodes, B = 4, L = 32k", 64, 4, 32768, BarShape::Goal::tflops, 380},
    {"64 nodes, B = 64, L = 1k", 64, 64, 1024, BarShape::Goal::shown, 0},
};
constexpr double kNextTflops = 450;

/// Sets of inputs of random numbers, made on the device; trees are bushes.
class BarWork {
 public:
  BarWork(const BarShape& shape, const Device& device)
      : shape_(shape), slots_(shape.tokens + shape.nodes), words_((shape.nodes + 63) / 64) {
    const std::int64_t cache = static_cast<std::int64_t>(shape.sequences) * slots_ * kBarKvHeads * kBarHead;
    const std::int64_t queries =
        static_cast<std::int64_t>(shape.sequences) * shape.nodes * kBarQueryHeads * kBarHead;
    sets_ = device.sets_beyond_cache(4.0 * static_cast<double>(cache));
    const auto n = static_cast<std::size_t>(sets_);
    k_.reserve(n * static_cast<std::size_t>(cache)), v_.reserve(n * static_cast<std::size_t>(cache));
    q_.reserve(n * static_cast<std::size_t>(queries)), out_.reserve(n * static_cast<std::size_t>(queries));
    fill_normal(k_.data(), nullptr, sets_ * cache, 1, 1);
    fill_normal(v_.data(), nullptr, sets_ * cache, 2, 1);
    fill_normal(q_.data(), nullptr, sets_ * queries, 3, 1);
    out_.fill_bytes(0xFF);
    std::vector<std::int32_t> begin, length;
    std::vector<std::uint64_t> mask;
    for (int b = 0; b <= shape.sequences; ++b) begin.push_back(b * shape.nodes);
    for (int b = 0; b < shape.sequences; ++b) {
      length.push_back(shape.tokens);
      const std::size_t first = mask.size();
      for (int i = 0; i < shape.nodes; ++i)
        for (int w = 0; w < words_; ++w) {
          const std::size_t above = first + static_cast<std::size_t>((i - 1) / 2 * words_ + w);
          mask.push_back((i > 0 ? mask[above] : 0) | (i / 64 == w ? std::uint64_t{1} << (i % 64) : 0));
        }
    }
    begin_.upload(begin), length_.upload(length), mask_.upload(mask);
  }

  int sets() const { return sets_; }
  double bytes() const {  // K and V once, queries and results
    return 4.0 * (static_cast<double>(shape_.sequences) * slots_ * kBarKvHeads * kBarHead +
                  static_cast<double>(shape_.sequences) * shape_.nodes * kBarQueryHeads * kBarHead);
  }
  double flops() const {  // two products with all committed tokens; the tail is left out
    return 4.0 * shape_.sequences * shape_.nodes * kBarQueryHeads * static_cast<double>(shape_.tokens) *
           kBarHead;
  }
  device::TreeAttentionCapacity capacity() const {
    device::TreeAttentionCapacity out;
    out.sequences = shape_.sequences;
    out.max_nodes = shape_.nodes;
    out.query_heads = kBarQueryHeads;
    out.kv_heads = kBarKvHeads;
    out.max_tokens = shape_.tokens;
    return out;
  }
  device::TreeAttentionArgs<BFloat16> args(int set) const {
    const std::int64_t cache =
        static_cast<std::int64_t>(set) * shape_.sequences * slots_ * kBarKvHeads * kBarHead;
    const std::int64_t first =
        static_cast<std::int64_t>(set) * shape_.sequences * shape_.nodes * kBarQueryHeads * kBarHead;
    const std::int64_t token = kBarKvHeads * kBarHead;
    device::TreeAttentionArgs<BFloat16> out{};
    out.q = q_.data() + first;
    out.q_stride = kBarQueryHeads * kBarHead;
    out.kv.k = {k_.data() + cache, slots_ * token, token, kBarHead, nullptr};
    out.kv.v = {v_.data() + cache, slots_ * token, token, kBarHead, nullptr};
    out.kv.length = length_.data();
    out.kv.page_size = slots_;
    out.begin = begin_.data();
    out.mask = mask_.data();
    out.words = words_;
    out.out = out_.data() + first;
    out.out_stride = kBarQueryHeads * kBarHead;
    out.scale = 0.08838834764f;
    return out;
  }

 private:
  BarShape shape_;
  int slots_, words_, sets_ = 1;
  DeviceArray<BFloat16> q_, k_, v_, out_;
  DeviceArray<std::int32_t> begin_, length_;
  DeviceArray<std::uint64_t> mask_;
};

using Kernels = AttentionKernels<BFloat16, kBarHead>;

std::string name_of(const BarShape& shape, const Kernels& kernels) {
  return std::string(shape.name) + ", " + kernels.name;
}

/// Products of large trees are wgmma's to make fast where there is wgmma, all else mma.sync's; what is not is
/// shown beside.
bool has_goal(const BarShape& shape, const Kernels& kernels, const Device& device) {
  return (shape.goal == BarShape::Goal::tflops && device.has_wgmma()) == kernels.only_hopper;
}

Bar measure(const BarShape& shape, const Kernels& kernels, const Bars& bars) {
  const BarWork work(shape, bars.device);
  const Kernels::Plan plan = kernels.plan(work.capacity(), bars.device);
  Workspace memory;
  const device::TreeAttentionWorkspace workspace = memory.of(plan);
  Bar bar = bars.timed(0, work.bytes(), work.sets(), [&](int set, cudaStream_t s) {
    return kernels.run(plan, work.args(set), workspace, s);
  });
  const double us = bar.time.slower();
  bar.flops = work.flops();
  const bool judged = has_goal(shape, kernels, bars.device);
  if (shape.goal == BarShape::Goal::bandwidth) {
    if (judged) bar.kind = Bar::Kind::at_least;
    bar.value = bar.floor / us;
    bar.unit = "of copy";
  }
  if (shape.goal == BarShape::Goal::us && judged) bar.kind = Bar::Kind::at_most;
  if (shape.goal == BarShape::Goal::tflops) {
    if (judged) bar.kind = Bar::Kind::at_least, bar.next = kNextTflops;
    bar.value = work.flops() / us * 1e-6;
    bar.unit = "TFLOP/s";
  }
  if (judged) bar.limit = shape.limit;
  bar.note = "rows " + std::to_string(plan.rows) + ", splits " + std::to_string(plan.splits) + ", cluster " +
             std::to_string(plan.cluster) + ", " + std::to_string(work.sets()) + " sets";
  return bar;
}

void sweep(const BarShape& shape, const Kernels& kernels, const Device& device, const Stream& stream,
           Json& json) {
  const BarWork work(shape, device);
  Workspace memory;
  const auto time = [&](const Kernels::Plan& plan) {
    const device::TreeAttentionWorkspace workspace = memory.of(plan);
    const Launch launch = [&](int set, cudaStream_t s) {
      return kernels.run(plan, work.args(set), workspace, s);
    };
    SPECULA_CHECK(launch(0, stream));
    stream.wait();
    return time_in_graph(stream, work.sets(), launch, 8, 7);
  };
  const auto variant_name = [](const Kernels::Plan& plan) {
    return std::to_string(plan.rows) + " rows x " + std::to_string(plan.splits) + " splits in clusters of " +
           std::to_string(plan.cluster);
  };
  const Kernels::Plan planned = kernels.plan(work.capacity(), device);
  Sweep sweep(json, variant_name(planned), time(planned));
  const int packed = shape.nodes * (kBarQueryHeads / kBarKvHeads);
  for (const int rows : kernels.rows) {
    if (rows > kernels.rows.front() && rows >= 2 * packed) continue;
    Kernels::Plan plan = kernels.plan_of_variant(work.capacity(), rows, device);
    const double units = 1.0 * shape.sequences * kBarKvHeads * plan.row_tiles;
    const int processors = device.properties.multiProcessorCount;
    for (const int splits : {1, 2, 4, 8, 16, 32, 64, 128}) {
      const double blocks = units * splits;
      if (256 * splits > shape.tokens && splits > 1) continue;  // more than there are keys for
      // Neither a handful of blocks nor many times what fits.
      if (blocks * 4 < processors && splits < 8) continue;
      if (blocks > 6.0 * processors && splits > 1) continue;
      for (int cluster = 1; cluster <= std::min(8, splits); cluster *= 2) {
        if (cluster > 1 && device.properties.major < 9) continue;
        plan.splits = splits;
        plan.cluster = cluster;
        sweep.add(variant_name(plan), time(plan));
      }
    }
  }
  sweep.finish(name_of(shape, kernels));
}

/// wgmma last: should it hang, everything else is there.
std::vector<Kernels> all_kernels(const Device& device) {
  std::vector<Kernels> out{mma_kernels<BFloat16, kBarHead>()};
  const Kernels wgmma = wgmma_kernels<BFloat16, kBarHead>();
  if (wgmma.runs_on(device)) out.push_back(wgmma);
  return out;
}

}  // namespace

void run_attention_bars(const Options& options, Report& report) {
  Bars bars(options, report, "attention");
  bars.missing("FlashInfer's custom-mask path, 8-16 nodes", 1.2, "x");
  bars.missing("FlashInfer's custom-mask path, 64 nodes", 1.5, "x");
  bars.missing("unmasked FA3-style prefix + masked tail + merge", 1, "x");
  for (const Kernels& kernels : all_kernels(bars.device))
    for (const BarShape& shape : kBars)
      bars.run(name_of(shape, kernels), [&] { return measure(shape, kernels, bars); });
}

/// Every variant and number of splits on every shape.
void sweep_attention(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  Sweep::print_head();
  for (const Kernels& kernels : all_kernels(device))
    for (const BarShape& shape : kBars) {
      const std::string name = name_of(shape, kernels);
      if (options.wants(name))
        report.part(name, [&](Json& json) { sweep(shape, kernels, device, stream, json); });
    }
}

}  // namespace specula_bench
