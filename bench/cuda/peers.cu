// SPDX-License-Identifier: MIT
// Times of FlashInfer on the work of the bars, with headers from the user (scripts/gpu --peers DIRS).
//
// FlashInfer takes float probabilities, so its way from bf16 logits is a cast, a softmax and a kernel. Its
// intermediate buffers are reused, not rotated.
//
//   peers peers [--out FILE] [--only NAME]
#include <cmath>
#include <cstdio>

#include <flashinfer/sampling.cuh>

#include "program.cuh"

namespace specula_bench {
namespace {

namespace peer = flashinfer::sampling;
using specula::cuda::BFloat16;

constexpr int kVocab = 128256;
constexpr float kSpread = 2.0f;  // standard deviation of the logits, as in our bars

__global__ void cast_kernel(float* out, const BFloat16* in, std::int64_t n) {  // n: a multiple of 4
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n / 4;
       i += step) {
    const uint2 raw = reinterpret_cast<const uint2*>(in)[i];
    reinterpret_cast<float4*>(out)[i] =
        make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xFFFF0000u),
                    __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xFFFF0000u));
  }
}

/// Probabilities of rows of bf16 logits.
class Softmax {
 public:
  explicit Softmax(int rows)
      : logits_(static_cast<std::size_t>(rows) * kVocab), workspace_(std::size_t{1} << 22) {}

  cudaError_t operator()(const BFloat16* rows, int count, float* out, cudaStream_t stream) const {
    cast_kernel<<<2048, 256, 0, stream>>>(logits_.data(), rows, static_cast<std::int64_t>(count) * kVocab);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    return peer::OnlineSoftmax<float>(logits_.data(), out, static_cast<std::uint32_t>(count), kVocab, nullptr,
                                      1.0f, workspace_.data(), workspace_.bytes(), /*enable_pdl*/ false,
                                      stream);
  }

 private:
  DeviceArray<float> logits_;
  DeviceArray<unsigned char> workspace_;
};

/// Chains of draft tokens whose draft agrees with the target in `alpha` of its mass, as those of our bars.
class Chains {
 public:
  Chains(int sequences, int draft_tokens, double alpha, const Device& device, const Stream& stream)
      : sequences_(sequences),
        draft_tokens_(draft_tokens),
        sets_(device.sets_beyond_cache(2.0 * kVocab * sequences * (draft_tokens + 1))),
        softmax_(sequences * (draft_tokens + 1)) {
    double sigma = 0;  // q = softmax(l + sigma n) agrees with p = softmax(l) in 2 Phi(-sigma / 2) of its mass
    if (alpha < 1) {
      double low = 0, high = 20;
      for (int i = 0; i < 60; ++i) {
        sigma = (low + high) / 2;
        (std::erfc(sigma / 2 / std::sqrt(2.0)) > alpha ? low : high) = sigma;
      }
    }
    const std::size_t b = static_cast<std::size_t>(sequences), k = static_cast<std::size_t>(draft_tokens);
    const auto sets = static_cast<std::size_t>(sets_);
    target_.reserve(sets * b * (k + 1) * kVocab);
    fill_normal(target_.data(), nullptr, static_cast<std::int64_t>(target_.size()), 11, kSpread);
    draft_.reserve(sets * b * k * kVocab), token_.reserve(sets * b * k);
    probs_.reserve(b * (k + 1) * kVocab);
    out_.reserve(b * (k + 1)), accepted_.reserve(b), emitted_.reserve(b);
    accepted_.fill_bytes(0), emitted_.fill_bytes(0);  // the kernel adds to them
    DeviceArray<BFloat16> draft(b * k * kVocab);
    DeviceArray<bool> valid(b * k);
    for (std::size_t s = 0; s < sets; ++s) {
      for (std::size_t i = 0; i < b; ++i)
        fill_normal(draft.data() + i * k * kVocab, target_.data() + (s * b + i) * (k + 1) * kVocab,
                    static_cast<std::int64_t>(k) * kVocab, 900 + s * b + i, static_cast<float>(sigma));
      const auto rows = static_cast<std::uint32_t>(b * k);
      float* const distribution = draft_.data() + s * b * k * kVocab;
      SPECULA_CHECK(softmax_(draft.data(), static_cast<int>(rows), distribution, stream));
      SPECULA_CHECK(
          (peer::SamplingFromProb<float, int>(distribution, token_.data() + s * b * k, valid.data(), nullptr,
                                              rows, kVocab, true, nullptr, 77 + s, nullptr, 0, stream)));
      stream.wait();
    }
  }

  int sets() const { return sets_; }
  cudaError_t launch(int set, cudaStream_t stream) const {
    const auto first = static_cast<std::size_t>(set) * static_cast<std::size_t>(sequences_);
    const auto k = static_cast<std::size_t>(draft_tokens_);
    const cudaError_t error = softmax_(target_.data() + first * (k + 1) * kVocab,
                                       sequences_ * (draft_tokens_ + 1), probs_.data(), stream);
    if (error != cudaSuccess) return error;
    return peer::ChainSpeculativeSampling<float, int>(
        draft_.data() + first * k * kVocab, token_.data() + first * k, probs_.data(), out_.data(),
        accepted_.data(), emitted_.data(), static_cast<std::uint32_t>(sequences_),
        static_cast<std::uint32_t>(draft_tokens_), kVocab, true, nullptr,
        500 + static_cast<std::uint64_t>(set), nullptr, 0, stream);
  }
  /// Draft tokens accepted per sequence, on average over all sets.
  double accepted(const Stream& stream) const {
    double tokens = 0;
    for (int set = 0; set < sets_; ++set) {
      SPECULA_CHECK(launch(set, stream));
      stream.wait();
      for (const int token : out_.download()) {
        if (token < -1 || token >= kVocab) throw std::runtime_error("a token outside of the vocabulary");
        tokens += token >= 0;
      }
    }
    return tokens / sets_ / sequences_ - 1;
  }

 private:
  int sequences_, draft_tokens_, sets_;
  Softmax softmax_;
  DeviceArray<BFloat16> target_;
  DeviceArray<float> draft_, probs_;
  DeviceArray<int> token_, out_, accepted_, emitted_;
};

void run_peers(const Options& options, Report& report) {
  Bars bars(options, report, "peers");
  for (const int sequences : {1, 64})
    for (const double alpha : {1.0, 0.7}) {
      const std::string name = "FlashInfer, cast + softmax + chain kernel: B = " + std::to_string(sequences) +
                               ", 4 drafts, rejection, " + (alpha < 1 ? "alpha .7" : "all accepted");
      bars.run(name, [&] {
        const Chains chains(sequences, 4, alpha, bars.device, bars.stream);
        const double accepted = chains.accepted(bars.stream);
        Bar bar =
            bars.timed(0, 0, chains.sets(), [&](int set, cudaStream_t s) { return chains.launch(set, s); });
        bar.note = std::to_string(accepted) + " draft tokens accepted per sequence";
        return bar;
      });
    }
  for (const int rows : {1, 64})
    for (const float top_p : {1.0f, 0.95f}) {
      if (rows == 1 && top_p < 1) continue;  // no bar of ours
      const std::string name = "FlashInfer, cast + softmax + sample, " + std::to_string(rows) +
                               (rows == 1 ? " row" : " rows") + (top_p < 1 ? ", top-p .95" : "");
      bars.run(name, [&] {
        const int sets = bars.device.sets_beyond_cache(2.0 * kVocab * rows);
        const Softmax softmax(rows);
        const auto cells = static_cast<std::size_t>(rows) * kVocab;
        DeviceArray<BFloat16> logits(static_cast<std::size_t>(sets) * cells);
        fill_normal(logits.data(), nullptr, static_cast<std::int64_t>(logits.size()), 11, kSpread);
        DeviceArray<float> probs(cells);
        DeviceArray<int> token(static_cast<std::size_t>(rows));
        DeviceArray<bool> valid(static_cast<std::size_t>(rows));
        return bars.timed(0, 0, sets, [&](int set, cudaStream_t s) {
          const cudaError_t error =
              softmax(logits.data() + static_cast<std::size_t>(set) * cells, rows, probs.data(), s);
          if (error != cudaSuccess) return error;
          const auto n = static_cast<std::uint32_t>(rows);
          const auto seed = 500 + static_cast<std::uint64_t>(set);
          if (top_p < 1)
            return peer::TopPSamplingFromProb<float, int>(probs.data(), token.data(), valid.data(), nullptr,
                                                          nullptr, n, top_p, kVocab, true, nullptr, seed,
                                                          nullptr, 0, s);
          return peer::SamplingFromProb<float, int>(probs.data(), token.data(), valid.data(), nullptr, n,
                                                    kVocab, true, nullptr, seed, nullptr, 0, s);
        });
      });
    }
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  return specula_bench::run_section(argc, argv, {{"peers", specula_bench::run_peers}});
}
