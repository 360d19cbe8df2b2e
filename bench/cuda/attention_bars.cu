// SPDX-License-Identifier: MIT
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
  double limit;           // us
  int page_size = 0;      // 0: a contiguous cache
  bool by_flops = false;  // its value is TFLOP/s, else TB/s of K and V
};
/// 134 MB of K and V in 60 us, for any number of sequences; pages may cost 3%.
const BarShape kBars[] = {
    {"8 nodes, B = 1, L = 32k", 8, 1, 32768, 60},
    {"16 nodes, B = 1, L = 32k", 16, 1, 32768, 60},
    {"8 nodes, B = 4, L = 8k", 8, 4, 8192, 60},
    {"16 nodes, B = 4, L = 8k", 16, 4, 8192, 60},
    {"8 nodes, B = 32, L = 1k", 8, 32, 1024, 60},
    {"8 nodes, B = 32, L = 4k", 8, 32, 4096, 195},
    {"16 nodes, B = 32, L = 4k", 16, 32, 4096, 240},
    {"8 nodes, B = 1, L = 128k", 8, 1, 131072, 195},
    {"8 nodes, B = 1, L = 8k", 8, 1, 8192, 22},
    {"64 nodes, B = 1, L = 32k", 64, 1, 32768, 75, 0, true},
    {"64 nodes, B = 4, L = 32k", 64, 4, 32768, 270, 0, true},
    {"64 nodes, B = 64, L = 1k", 64, 64, 1024, 185, 0, true},
    {"8 nodes, B = 4, L = 8k, pages of 16", 8, 4, 8192, 61.8, 16},
    {"64 nodes, B = 4, L = 32k, pages of 16", 64, 4, 32768, 278, 16, true},
};
/// Half of the bytes: the same excess over the floor for 67 MB and 268 MB, with as many products.
const BarShape kBarsOfBytes[] = {
    {"8 nodes, B = 4, L = 8k", 8, 4, 8192, 36},
    {"8 nodes, B = 32, L = 4k", 8, 32, 4096, 105},
    {"64 nodes, B = 4, L = 32k", 64, 4, 32768, 270, 0, true},
};

/// Sets of inputs of random numbers, made on the device; trees are bushes. Pages are in order.
template <class Stored>
class BarWork {
 public:
  BarWork(const BarShape& shape, const Device& device)
      : shape_(shape), slots_(shape.tokens + shape.nodes), words_((shape.nodes + 63) / 64) {
    if (shape.page_size > 0) slots_ = (slots_ + shape.page_size - 1) / shape.page_size * shape.page_size;
    const std::int64_t cache = static_cast<std::int64_t>(shape.sequences) * slots_ * kBarKvHeads * kBarHead;
    const std::int64_t queries =
        static_cast<std::int64_t>(shape.sequences) * shape.nodes * kBarQueryHeads * kBarHead;
    sets_ = device.sets_beyond_cache(2.0 * sizeof(Stored) * static_cast<double>(cache));
    const auto n = static_cast<std::size_t>(sets_);
    k_.reserve(n * static_cast<std::size_t>(cache)), v_.reserve(n * static_cast<std::size_t>(cache));
    q_.reserve(n * static_cast<std::size_t>(queries)), out_.reserve(n * static_cast<std::size_t>(queries));
    // Any bytes will do, for example those of bf16 numbers.
    constexpr int kTwo = 2 / static_cast<int>(sizeof(Stored));
    fill_normal(reinterpret_cast<BFloat16*>(k_.data()), nullptr, sets_ * cache / kTwo, 1, 1);
    fill_normal(reinterpret_cast<BFloat16*>(v_.data()), nullptr, sets_ * cache / kTwo, 2, 1);
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
    scale_.upload(std::vector<float>(kBarKvHeads, sizeof(Stored) == 1 ? 0.02f : 1.0f));
    std::vector<std::int32_t> pages;
    for (int p = 0; shape.page_size > 0 && p < shape.sequences * pages_of_sequence(); ++p) pages.push_back(p);
    pages_.upload(pages);
  }

  int sets() const { return sets_; }
  double bytes() const {  // K and V once, queries and results
    return 2.0 * sizeof(Stored) * shape_.sequences * (shape_.tokens + shape_.nodes) * kBarKvHeads * kBarHead +
           4.0 * shape_.sequences * shape_.nodes * kBarQueryHeads * kBarHead;
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
  device::TreeAttentionArgs<BFloat16, Stored> args(int set) const {
    const std::int64_t cache =
        static_cast<std::int64_t>(set) * shape_.sequences * slots_ * kBarKvHeads * kBarHead;
    const std::int64_t first =
        static_cast<std::int64_t>(set) * shape_.sequences * shape_.nodes * kBarQueryHeads * kBarHead;
    const std::int64_t token = kBarKvHeads * kBarHead;
    device::TreeAttentionArgs<BFloat16, Stored> out{};
    out.q = q_.data() + first;
    out.q_stride = kBarQueryHeads * kBarHead;
    const int page = shape_.page_size > 0 ? shape_.page_size : slots_;
    const std::int32_t* pages = shape_.page_size > 0 ? pages_.data() : nullptr;
    out.kv.k = {k_.data() + cache, page * token, token, kBarHead, pages};
    out.kv.v = {v_.data() + cache, page * token, token, kBarHead, pages};
    out.kv.page_size = page;
    if (pages) out.kv.max_pages = pages_of_sequence();
    if (sizeof(Stored) == 1) out.k_scale = out.v_scale = scale_.data();
    out.kv.length = length_.data();
    out.begin = begin_.data();
    out.mask = mask_.data();
    out.words = words_;
    out.out = out_.data() + first;
    out.out_stride = kBarQueryHeads * kBarHead;
    out.scale = 0.08838834764f;
    return out;
  }

 private:
  int pages_of_sequence() const { return slots_ / shape_.page_size; }

  BarShape shape_;
  int slots_, words_, sets_ = 1;
  DeviceArray<BFloat16> q_, out_;
  DeviceArray<Stored> k_, v_;
  DeviceArray<float> scale_;
  DeviceArray<std::int32_t> begin_, length_, pages_;
  DeviceArray<std::uint64_t> mask_;
};

template <class Stored>
using KernelsOf = AttentionKernels<BFloat16, kBarHead, Stored>;
using Kernels = KernelsOf<BFloat16>;

template <class Stored>
std::string name_of(const BarShape& shape, const KernelsOf<Stored>& kernels) {
  return std::string(shape.name) + (sizeof(Stored) == 1 ? ", cache of e4m3, " : ", ") + kernels.name;
}

/// The bar applies to the kernel that tree_attention() selects; the other one is shown, too.
template <class Stored>
Bar measure(const BarShape& shape, const KernelsOf<Stored>& kernels, const Bars& bars) {
  const BarWork<Stored> work(shape, bars.device);
  const auto plan = kernels.plan(work.capacity(), bars.device);
  Workspace memory;
  const device::Workspace workspace = memory.of(plan);
  Bar bar = bars.timed(0, work.bytes(), work.sets(), [&](int set, cudaStream_t s) {
    return kernels.run(plan, work.args(set), workspace, s);
  });
  bar.flops = work.flops();
  const bool wgmma = bars.device.has_wgmma() && device::detail::wants_wgmma(work.capacity());
  if (wgmma == kernels.only_hopper) {
    bar.kind = Bar::Kind::at_most;
    bar.limit = shape.limit;
  }
  const double rate = (shape.by_flops ? work.flops() : work.bytes()) / bar.time.slower() * 1e-6;
  char text[40];
  std::snprintf(text, sizeof text, shape.by_flops ? "%.0f TFLOP/s" : "%.2f TB/s", rate);
  bar.note = std::string(text) + ", rows " + std::to_string(plan.rows) + ", splits " +
             std::to_string(plan.splits) + ", cluster " + std::to_string(plan.cluster) + ", " +
             std::to_string(work.sets()) + " sets";
  return bar;
}

void sweep(const BarShape& shape, const Kernels& kernels, const Device& device, const Stream& stream,
           Json& json) {
  const BarWork<BFloat16> work(shape, device);
  Workspace memory;
  const auto time = [&](const Kernels::Plan& plan) {
    const device::Workspace workspace = memory.of(plan);
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
    if (!kernels.has_variant(work.capacity(), rows, device)) continue;
    Kernels::Plan plan = kernels.plan_of_variant(work.capacity(), rows, device);
    const double units = 1.0 * shape.sequences * kBarKvHeads * plan.row_tiles;
    const int processors = device.properties.multiProcessorCount;
    for (const int splits : {1, 2, 4, 8, 16, 32, 64, 128}) {
      const double blocks = units * splits;
      if (256 * splits > shape.tokens && splits > 1) continue;  // more than there are keys for
      // Neither very few blocks nor many times more than fit.
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
  sweep.finish(name_of<BFloat16>(shape, kernels));
}

/// wgmma last, in case it hangs.
template <class Stored>
std::vector<KernelsOf<Stored>> all_kernels(const Device& device) {
  std::vector<KernelsOf<Stored>> out{mma_kernels<BFloat16, kBarHead, Stored>()};
  const KernelsOf<Stored> wgmma = wgmma_kernels<BFloat16, kBarHead, Stored>();
  if (wgmma.runs_on(device)) out.push_back(wgmma);
  return out;
}

}  // namespace

void run_attention_bars(const Options& options, Report& report) {
  Bars bars(options, report, "attention");
  bars.missing("FlashInfer's custom-mask path, 8-16 nodes", 1.2, "x");
  bars.missing("FlashInfer's custom-mask path, 64 nodes", 1.5, "x");
  bars.missing("unmasked FA3-style prefix + masked tail + merge", 1, "x");
  for (const Kernels& kernels : all_kernels<BFloat16>(bars.device))
    for (const BarShape& shape : kBars)
      bars.run(name_of<BFloat16>(shape, kernels), [&] { return measure<BFloat16>(shape, kernels, bars); });
  for (const auto& kernels : all_kernels<device::Float8E4M3>(bars.device))
    for (const BarShape& shape : kBarsOfBytes)
      bars.run(name_of<device::Float8E4M3>(shape, kernels),
               [&] { return measure<device::Float8E4M3>(shape, kernels, bars); });
}

/// Every variant and number of splits on every shape.
void sweep_attention(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  Sweep::print_head();
  for (const Kernels& kernels : all_kernels<BFloat16>(device))
    for (const BarShape& shape : kBars) {
      if (shape.page_size > 0) continue;  // cut as the contiguous ones
      const std::string name = name_of<BFloat16>(shape, kernels);
      if (options.wants(name))
        report.part(name, [&](Json& json) { sweep(shape, kernels, device, stream, json); });
    }
}

}  // namespace specula_bench
