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

/// Sets of inputs of random numbers, made on the device; trees are bushes.
class BarWork {
 public:
  BarWork(const BarShape& shape, const Device& device)
      : shape_(shape), slots_(shape.tokens + shape.nodes), words_((shape.nodes + 63) / 64) {
    const std::int64_t cache = static_cast<std::int64_t>(shape.sequences) * slots_ * kBarKvHeads * kBarHead;
    const std::int64_t queries =
        static_cast<std::int64_t>(shape.sequences) * shape.nodes * kBarQueryHeads * kBarHead;
    sets_ = device.sets_beyond_cache(4.0 * static_cast<double>(cache), 32);
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
    SPECULA_CHECK(cudaDeviceSynchronize());
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

using BarKernels = AttentionKernels<BFloat16, kBarHead>;

}  // namespace

void run_attention_bars(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  const double bandwidth = options.once ? 1e12 : measure_copy_kernel(device, stream).first;
  Bars bars(options, "attention", bandwidth);
  report.json.field("copy_bytes_per_second", bandwidth);
  std::printf("%s", table_head().c_str());
  for (const BarShape& shape : kBars) {
    if (!bars.wants(shape.name)) continue;
    report.part(shape.name, [&](Json& json) {
      const BarWork work(shape, device);
      device::TreeAttentionPlan plan;
      SPECULA_CHECK(BarKernels::plan(&plan, work.capacity(), device.id));
      const Workspace workspace(plan);
      const Twice time = bars.time(work.sets(), [&](int set, cudaStream_t s) {
        return BarKernels::run(plan, work.args(set), workspace.data(), s);
      });
      Bar bar = time_bar(shape.name, 0, time, work.bytes(), bandwidth);
      bar.flops = work.flops();
      bar.limit = shape.limit;
      if (shape.goal == BarShape::Goal::us) bar.kind = Bar::Kind::at_most;
      if (shape.goal == BarShape::Goal::bandwidth) {
        bar.kind = Bar::Kind::at_least;
        bar.value = bar.floor / time.slower();
        bar.unit = "of copy";
      }
      if (shape.goal == BarShape::Goal::tflops) {
        bar.kind = Bar::Kind::at_least;
        bar.value = work.flops() / time.slower() * 1e-6;
        bar.unit = "TFLOP/s";
      }
      bar.note = "rows " + std::to_string(plan.rows) + ", splits " + std::to_string(plan.splits) +
                 ", cluster " + std::to_string(plan.cluster) + ", " + std::to_string(work.sets()) + " sets";
      json.key("bar");
      bars.add(json, bar);
    });
  }
  if (!options.only.empty()) return;
  report.part("peers", [&](Json& json) {
    json.key("bars").begin_array();
    bars.add(json, missing_bar("FlashInfer's custom-mask path, 8-16 nodes", 1.2, "x", "needs the peer"));
    bars.add(json, missing_bar("FlashInfer's custom-mask path, 64 nodes", 1.5, "x", "needs the peer"));
    bars.add(json, missing_bar("unmasked FA3-style prefix + masked tail + merge", 1, "x", "needs the peer"));
    json.end();
  });
}

/// Every variant and number of splits on every shape.
void sweep_attention(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  std::printf("| attention | planned rows x splits | us | best | us | |\n|---|---|---|---|---|---|\n");
  for (const BarShape& shape : kBars) {
    if (!options.only.empty() && options.only != shape.name) continue;
    report.part(shape.name, [&](Json& json) {
      const BarWork work(shape, device);
      const auto time = [&](const device::TreeAttentionPlan& plan) {
        const Workspace workspace(plan);
        SPECULA_CHECK(BarKernels::run(plan, work.args(0), workspace.data(), stream));
        stream.wait();
        return time_in_graph(
            stream, work.sets(),
            [&](int set, cudaStream_t s) {
              return BarKernels::run(plan, work.args(set), workspace.data(), s);
            },
            8, 7);
      };
      device::TreeAttentionPlan planned;
      SPECULA_CHECK(BarKernels::plan(&planned, work.capacity(), device.id));
      const double planned_us = time(planned);
      json.field("planned_rows", planned.rows).field("planned_splits", planned.splits);
      json.field("planned_cluster", planned.cluster).field("planned_us", planned_us);
      json.key("variants").begin_array();
      double best = 1e30;
      std::string best_name;
      for (const int rows : {16, 32, 64, 128})
        for (const int splits : {1, 2, 4, 8, 16, 32, 64, 128}) {
          const int packed = shape.nodes * (kBarQueryHeads / kBarKvHeads);
          if (rows > 16 && rows >= 2 * packed) continue;
          device::TreeAttentionCapacity capacity = work.capacity();
          capacity.splits = splits;
          device::TreeAttentionPlan plan;
          SPECULA_CHECK(BarKernels::plan(&plan, capacity, device.id));
          if (plan.splits != splits) continue;  // more than there are keys for
          SPECULA_CHECK(BarKernels::force_rows(&plan, rows));
          const double blocks = 1.0 * shape.sequences * kBarKvHeads * plan.row_tiles * splits;
          // Neither a handful of blocks nor many times what fits.
          if (blocks * 4 < device.properties.multiProcessorCount && splits < 8) continue;
          if (blocks > 16.0 * device.properties.multiProcessorCount && splits > 1) continue;
          const double us = time(plan);
          json.begin_object().field("rows", rows).field("splits", plan.splits).field("cluster", plan.cluster);
          json.field("us", us).end();
          if (us < best) best = us, best_name = std::to_string(rows) + " x " + std::to_string(plan.splits);
        }
      json.end().field("best_us", best).field("best", best_name);
      std::printf("| %s | %d x %d | %.2f | %s | %.2f | %.2f |\n", shape.name, planned.rows, planned.splits,
                  planned_us, best_name.c_str(), best, planned_us / best);
    });
  }
}

}  // namespace specula_bench
