// SPDX-License-Identifier: MIT
// Times of FlashInfer's attention on the shapes of the bars: with a custom mask over prefix and tree, and as
// prefix without mask, tree with mask, and merge. With headers from the user, as in peers.cu.
//
//   peers_attention peers [--out FILE] [--only NAME]
#include <cmath>
#include <cstdio>

#include <cuda_bf16.h>

#include <flashinfer/attention/cascade.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include "program.cuh"
#include "random.cuh"

namespace specula_bench {
namespace {

using specula::cuda::BFloat16;
using Theirs = __nv_bfloat16;

constexpr int kHead = 128, kQueryHeads = 32, kKvHeads = 8, kPage = 16;
constexpr float kScale = 0.08838835f;  // 1 / sqrt(128)

struct Shape {
  const char* name;
  int nodes, sequences, tokens;
};
constexpr Shape kShapes[] = {
    {"8 nodes, B = 1, L = 32k", 8, 1, 32768},   {"16 nodes, B = 1, L = 32k", 16, 1, 32768},
    {"8 nodes, B = 4, L = 8k", 8, 4, 8192},     {"16 nodes, B = 4, L = 8k", 16, 4, 8192},
    {"8 nodes, B = 32, L = 1k", 8, 32, 1024},   {"8 nodes, B = 32, L = 4k", 8, 32, 4096},
    {"16 nodes, B = 32, L = 4k", 16, 32, 4096}, {"8 nodes, B = 1, L = 128k", 8, 1, 131072},
    {"8 nodes, B = 1, L = 8k", 8, 1, 8192},     {"64 nodes, B = 1, L = 32k", 64, 1, 32768},
    {"64 nodes, B = 4, L = 32k", 64, 4, 32768}, {"64 nodes, B = 64, L = 1k", 64, 64, 1024},
};

/// Node i of a tree is a child of (i - 1) / 2.
bool sees(int node, int other) {
  while (node > other) node = (node - 1) / 2;
  return node == other;
}

Theirs* theirs(const DeviceArray<BFloat16>& of, std::size_t at) {
  return reinterpret_cast<Theirs*>(of.data() + at);
}

/// A launch of their kernel over slots `first` to `last` of every sequence, whose pages lie in order; `first`
/// is a multiple of a page.
template <flashinfer::MaskMode kMode>
class Pass {
 public:
  Pass(const Shape& shape, int pages, int first, int last, const Stream& stream) : shape_(shape) {
    const int slots = last - first, used_pages = (slots + kPage - 1) / kPage;
    std::vector<std::int32_t> begin{0}, first_page{0}, page, of_last, mask_begin{0};
    std::vector<unsigned char> mask;
    for (int s = 0; s < shape.sequences; ++s) {
      begin.push_back(begin.back() + shape.nodes);
      first_page.push_back(first_page.back() + used_pages);
      for (int i = 0; i < used_pages; ++i) page.push_back(s * pages + first / kPage + i);
      of_last.push_back(slots - (used_pages - 1) * kPage);
      if (kMode != flashinfer::MaskMode::kCustom) continue;
      const std::size_t base = mask.size();
      mask.resize(base + (static_cast<std::size_t>(shape.nodes) * static_cast<std::size_t>(slots) + 7) / 8);
      for (int i = 0; i < shape.nodes; ++i)
        for (int slot = first; slot < last; ++slot)
          if (slot < shape.tokens || sees(i, slot - shape.tokens)) {
            const auto bit = static_cast<std::size_t>(i) * static_cast<std::size_t>(slots) +
                             static_cast<std::size_t>(slot - first);
            mask[base + bit / 8] = static_cast<unsigned char>(mask[base + bit / 8] | 1 << bit % 8);
          }
      mask_begin.push_back(static_cast<std::int32_t>(mask.size()));
    }
    begin_.upload(begin), first_page_.upload(first_page), page_.upload(page), last_.upload(of_last);
    mask_.upload(mask), mask_begin_.upload(mask_begin);

    floats_.reserve(std::size_t{256} << 20), integers_.reserve(std::size_t{16} << 20);
    void* pinned = nullptr;
    SPECULA_CHECK(cudaMallocHost(&pinned, integers_.bytes()));
    const cudaError_t planned = flashinfer::PrefillPlan<std::int32_t>(
        floats_.data(), floats_.bytes(), integers_.data(), pinned, integers_.bytes(), plan_, begin.data(),
        first_page.data(), static_cast<std::uint32_t>(begin.back()),
        static_cast<std::uint32_t>(shape.sequences), kQueryHeads, kKvHeads, kHead, kHead, kPage,
        /*enable_cuda_graph*/ false, sizeof(Theirs), /*window_left*/ -1, /*fixed_split_size*/ -1,
        /*disable_split_kv*/ false, /*num_colocated_ctas*/ 0, /*uniform_q_len*/ 0, stream);
    stream.wait();
    SPECULA_CHECK(cudaFreeHost(pinned));
    SPECULA_CHECK(planned);
  }

  /// `lse`, (N, Hq), may be null.
  cudaError_t launch(Theirs* q, Theirs* k, Theirs* v, Theirs* out, float* lse, cudaStream_t stream) const {
    const flashinfer::paged_kv_t<Theirs, std::int32_t> kv(
        kKvHeads, kPage, kHead, static_cast<std::uint32_t>(shape_.sequences), flashinfer::QKVLayout::kNHD, k,
        v, page_.data(), first_page_.data(), last_.data());
    Params params(q, kv, mask_.data(), begin_.data(), mask_begin_.data(), nullptr, out, lse, nullptr,
                  kQueryHeads, kQueryHeads * kHead, kHead, -1, 0.0f, kScale, 1.0f, 1e4f);
    params.request_indices = integers(plan_.request_indices_offset);
    params.qo_tile_indices = integers(plan_.qo_tile_indices_offset);
    params.kv_tile_indices = integers(plan_.kv_tile_indices_offset);
    params.o_indptr = integers(plan_.o_indptr_offset);
    params.kv_chunk_size_ptr = integers(plan_.kv_chunk_size_ptr_offset);
    params.padded_batch_size = static_cast<std::uint32_t>(plan_.padded_batch_size);
    params.max_total_num_rows = static_cast<std::uint32_t>(plan_.total_num_rows);
    params.partition_kv = plan_.split_kv;
    Theirs* parts = nullptr;
    float* sums = nullptr;
    if (plan_.split_kv) {
      params.merge_indptr = integers(plan_.merge_indptr_offset);
      parts = reinterpret_cast<Theirs*>(floats_.data() + plan_.v_offset);
      sums = reinterpret_cast<float*>(floats_.data() + plan_.s_offset);
    }
    if (plan_.cta_tile_q == 16) return run<16>(params, parts, sums, stream);
    if (plan_.cta_tile_q == 64) return run<64>(params, parts, sums, stream);
    if (plan_.cta_tile_q == 128) return run<128>(params, parts, sums, stream);
    return cudaErrorNotSupported;
  }

 private:
  using Params = flashinfer::BatchPrefillPagedParams<Theirs, Theirs, Theirs, std::int32_t>;

  std::int32_t* integers(std::int64_t offset) const {
    return reinterpret_cast<std::int32_t*>(integers_.data() + offset);
  }
  template <std::uint32_t kRows>
  static cudaError_t run(const Params& params, Theirs* parts, float* sums, cudaStream_t stream) {
    using Variant = flashinfer::DefaultAttention<kMode == flashinfer::MaskMode::kCustom, false, false, false>;
    return flashinfer::BatchPrefillWithPagedKVCacheDispatched</*SAME_KV_STRIDES*/ true, kRows, kHead, kHead,
                                                              flashinfer::PosEncodingMode::kNone, false,
                                                              kMode, Variant, Params>(
        params, parts, sums, /*enable_pdl*/ false, stream);
  }

  Shape shape_;
  DeviceArray<std::int32_t> begin_, first_page_, page_, last_, mask_begin_;
  DeviceArray<unsigned char> mask_, floats_, integers_;
  flashinfer::PrefillPlanInfo plan_;
};

/// Trees over caches of random numbers.
class TreeWork {
 public:
  TreeWork(const Shape& shape, const Device& device, const Stream& stream)
      : shape_(shape),
        slots_(shape.tokens + shape.nodes),
        pages_((slots_ + kPage - 1) / kPage),
        masked_(shape, pages_, 0, slots_, stream),
        prefix_(shape, pages_, 0, shape.tokens, stream),
        tail_(shape, pages_, shape.tokens, slots_, stream) {
    const auto b = static_cast<std::size_t>(shape.sequences);
    const auto rows = b * static_cast<std::size_t>(shape.nodes) * kQueryHeads;
    cache_ = b * static_cast<std::size_t>(pages_) * kPage * kKvHeads * kHead;
    queries_ = rows * kHead;
    sets_ = device.sets_beyond_cache(4.0 * static_cast<double>(cache_));
    const auto n = static_cast<std::size_t>(sets_);
    k_.reserve(n * cache_), v_.reserve(n * cache_), q_.reserve(n * queries_), out_.reserve(n * queries_);
    tail_out_.reserve(queries_), lse_.reserve(rows), tail_lse_.reserve(rows);
    fill_normal(k_.data(), nullptr, static_cast<std::int64_t>(k_.size()), 1, 1);
    fill_normal(v_.data(), nullptr, static_cast<std::int64_t>(v_.size()), 2, 1);
    fill_normal(q_.data(), nullptr, static_cast<std::int64_t>(q_.size()), 3, 1);
  }

  int sets() const { return sets_; }
  cudaError_t run_masked(int set, cudaStream_t stream) const {
    return masked_.launch(q(set), k(set), v(set), out(set), nullptr, stream);
  }
  cudaError_t run_merged(int set, cudaStream_t stream) const {
    Theirs* const tail = theirs(tail_out_, 0);
    cudaError_t error = prefix_.launch(q(set), k(set), v(set), out(set), lse_.data(), stream);
    if (error == cudaSuccess) error = tail_.launch(q(set), k(set), v(set), tail, tail_lse_.data(), stream);
    if (error == cudaSuccess)
      error = flashinfer::MergeStateInPlace(out(set), lse_.data(), tail, tail_lse_.data(),
                                            static_cast<std::uint32_t>(shape_.sequences * shape_.nodes),
                                            kQueryHeads, kHead, nullptr, stream);
    return error;
  }

  /// ||out - reference|| / ||reference|| of a head of the last node of the last sequence, after `launch` of
  /// set 0.
  double error(const Launch& launch, const Stream& stream) const {
    out_poison();
    SPECULA_CHECK(launch(0, stream));
    stream.wait();
    const int head = 5, kv_head = head / (kQueryHeads / kKvHeads), node = shape_.nodes - 1;
    const auto row =
        (static_cast<std::size_t>(shape_.sequences - 1) * static_cast<std::size_t>(shape_.nodes) +
         static_cast<std::size_t>(node)) *
            kQueryHeads * kHead +
        std::size_t{head} * kHead;
    const std::vector<BFloat16> q = part(q_, row, kHead), got = part(out_, row, kHead);
    const std::size_t all = static_cast<std::size_t>(pages_) * kPage * kKvHeads * kHead,
                      first = static_cast<std::size_t>(shape_.sequences - 1) * all;
    const std::vector<BFloat16> k = part(k_, first, all), v = part(v_, first, all);
    std::vector<double> want(kHead, 0.0);
    double total = 0;
    for (int slot = 0; slot < slots_; ++slot) {
      if (slot >= shape_.tokens && !sees(node, slot - shape_.tokens)) continue;
      const auto at = (static_cast<std::size_t>(slot) * kKvHeads + static_cast<std::size_t>(kv_head)) * kHead;
      double score = 0;
      for (std::size_t d = 0; d < kHead; ++d) score += as_double(q[d]) * as_double(k[at + d]);
      const double weight = std::exp(score * static_cast<double>(kScale));
      total += weight;
      for (std::size_t d = 0; d < kHead; ++d) want[d] += weight * as_double(v[at + d]);
    }
    double off = 0, size = 0;
    for (std::size_t d = 0; d < kHead; ++d) {
      const double w = want[d] / total, e = as_double(got[d]) - w;
      off += e * e, size += w * w;
    }
    return std::sqrt(off / size);
  }

 private:
  Theirs* q(int set) const { return theirs(q_, static_cast<std::size_t>(set) * queries_); }
  Theirs* k(int set) const { return theirs(k_, static_cast<std::size_t>(set) * cache_); }
  Theirs* v(int set) const { return theirs(v_, static_cast<std::size_t>(set) * cache_); }
  Theirs* out(int set) const { return theirs(out_, static_cast<std::size_t>(set) * queries_); }
  void out_poison() const {
    SPECULA_CHECK(cudaMemset(out_.data(), 0xFF, out_.bytes()));
    SPECULA_CHECK(cudaDeviceSynchronize());
  }
  static std::vector<BFloat16> part(const DeviceArray<BFloat16>& of, std::size_t at, std::size_t count) {
    std::vector<BFloat16> out(count);
    SPECULA_CHECK(cudaMemcpy(out.data(), of.data() + at, count * sizeof(BFloat16), cudaMemcpyDeviceToHost));
    return out;
  }

  Shape shape_;
  int slots_, pages_, sets_ = 0;
  Pass<flashinfer::MaskMode::kCustom> masked_;
  Pass<flashinfer::MaskMode::kNone> prefix_;
  Pass<flashinfer::MaskMode::kCustom> tail_;
  std::size_t cache_ = 0, queries_ = 0;  // elements of a set
  DeviceArray<BFloat16> k_, v_, q_, out_, tail_out_;
  DeviceArray<float> lse_, tail_lse_;
};

void run_peers(const Options& options, Report& report) {
  Bars bars(options, report, "peers");
  for (const Shape& shape : kShapes)
    for (const bool merged : {false, true})
      bars.run(std::string("FlashInfer, ") + (merged ? "prefix + masked tail + merge: " : "custom mask: ") +
                   shape.name,
               [&] {
                 const TreeWork work(shape, bars.device, bars.stream);
                 const Launch launch = [&](int set, cudaStream_t stream) {
                   return merged ? work.run_merged(set, stream) : work.run_masked(set, stream);
                 };
                 const double error = work.error(launch, bars.stream);
                 if (!(error < 0.02))
                   throw std::runtime_error("it computes something else: error " + std::to_string(error));
                 Bar bar = bars.timed(0, 0, work.sets(), launch);
                 bar.note = "error " + std::to_string(error);
                 return bar;
               });
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  return specula_bench::run_section(argc, argv, {{"peers", specula_bench::run_peers}});
}
