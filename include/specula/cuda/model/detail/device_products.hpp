// SPDX-License-Identifier: MIT
// Products of a model's matrices by cuBLASLt: which algorithm, and its launch. For nvcc.
#pragma once

#include "specula/cuda/model/detail/cuda_calls.hpp"
#include "specula/cuda/model/device.hpp"
#include "specula/cuda/model/product_table.hpp"

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/model/detail/pass_bodies.cuh"

namespace specula::cuda::detail {

/// Products in a stream. An algorithm is chosen once for each shape in the process (ProductTable::shared()).
class DeviceProducts {
 public:
  /// `machine` names the device and the library's version.
  DeviceProducts(cudaStream_t stream, std::string machine) : stream_(stream), machine_(std::move(machine)) {
    void* p = nullptr;
    expect(cudaMalloc(&p, kBytes), "memory for products");  // a capture must not allocate
    memory_.reset(static_cast<unsigned char*>(p));
    expect(cublasLtCreate(&blas_), "cublasLtCreate");
  }
  ~DeviceProducts() {
    products_.clear();
    if (blas_) cublasLtDestroy(blas_);
  }
  DeviceProducts(const DeviceProducts&) = delete;
  DeviceProducts& operator=(const DeviceProducts&) = delete;

  /// Before the first product of a shape. Throws DeviceError if no algorithm is exact where it must be.
  void prepare(const DeviceMatrix& w, const ProductShape& shape) {
    const Key key{w.rows, w.cols, shape.height, shape.add};
    const auto known = products_.find(key);
    if (known != products_.end() && (known->second.exact || !shape.exact)) return;
    Product product = describe(shape);
    const ProductAlgorithm words =
        ProductTable::shared().get(machine_, shape, [&] { return choose(product, w, shape); });
    std::memcpy(&product.algorithm, words.data(), sizeof words);
    cublasLtMatmulHeuristicResult_t checked{};
    if (cublasLtMatmulAlgoCheck(blas_, product.how, product.a, product.b, product.c, product.c,
                                &product.algorithm, &checked) != CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > kBytes)
      throw DeviceError("cuBLASLt: the algorithm chosen for a product of " + name(shape) +
                        " is not one of this library; was it read from a file?");
    products_.insert_or_assign(key, std::move(product));
  }

  /// out (height, w.rows) = x W^T, or is added to. Throws std::logic_error for a shape that was not prepared.
  void run(const DeviceMatrix& w, const BFloat16* x, int height, float* out, bool add) {
    const auto found = products_.find({w.rows, w.cols, height, add});
    if (found == products_.end()) throw std::logic_error("CudaDevice::product: not prepared");
    multiply(found->second, found->second.algorithm, w, x, out, add);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  static constexpr int kCandidates = 32, kPlaces = 64, kTimed = 20;

  struct Free {
    void operator()(void* p) const { cudaFree(p); }
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Free>;

  static std::string name(const ProductShape& s) {
    return std::to_string(s.height) + " rows with a matrix (" + std::to_string(s.rows) + ", " +
           std::to_string(s.cols) + ")";
  }

  struct Key {
    int rows, cols, height;
    bool add;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Product {
    cublasLtMatmulDesc_t how = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    bool exact = false;

    Product() = default;
    Product(Product&& other) noexcept { *this = std::move(other); }
    Product& operator=(Product&& other) noexcept {
      std::swap(how, other.how), std::swap(a, other.a), std::swap(b, other.b), std::swap(c, other.c);
      algorithm = other.algorithm, exact = other.exact;
      return *this;
    }
    ~Product() {
      for (const cublasLtMatrixLayout_t layout : {a, b, c})
        if (layout) cublasLtMatrixLayoutDestroy(layout);
      if (how) cublasLtMatmulDescDestroy(how);
    }
  };
  static_assert(sizeof(ProductAlgorithm) == sizeof(cublasLtMatmulAlgo_t));

  /// Row-major out = x W^T is column-major out^T = W x^T, W as it lies being W^T.
  Product describe(const ProductShape& s) {
    Product out;
    out.exact = s.exact;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto cols = static_cast<std::uint64_t>(s.cols), rows = static_cast<std::uint64_t>(s.rows),
               height = static_cast<std::uint64_t>(s.height);
    expect(cublasLtMatmulDescCreate(&out.how, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    expect(
        cublasLtMatmulDescSetAttribute(out.how, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
        "a product");
    expect(cublasLtMatrixLayoutCreate(&out.a, CUDA_R_16BF, cols, rows, s.cols), "a layout");
    expect(cublasLtMatrixLayoutCreate(&out.b, CUDA_R_16BF, cols, height, s.cols), "a layout");
    expect(cublasLtMatrixLayoutCreate(&out.c, CUDA_R_32F, rows, height, s.rows), "a layout");
    return out;
  }
  cublasStatus_t try_multiply(const Product& p, const cublasLtMatmulAlgo_t& algorithm, const DeviceMatrix& w,
                              const BFloat16* x, float* out, bool add) {
    const float one = 1, before = add ? 1.0f : 0.0f;
    return cublasLtMatmul(blas_, p.how, &one, w.data, p.a, x, p.b, &before, out, p.c, out, p.c, &algorithm,
                          memory_.get(), kBytes, stream_);
  }
  void multiply(const Product& p, const cublasLtMatmulAlgo_t& algorithm, const DeviceMatrix& w,
                const BFloat16* x, float* out, bool add) {
    expect(try_multiply(p, algorithm, w, x, out, add), "a product");
  }

  /// The library's candidates for a product, best guess first. (An array, since nvcc 13.0 fails on a vector
  /// of a struct without a name.)
  struct Candidates {
    cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
    int count = 0;
  };
  Candidates candidates(const Product& product) {
    cublasLtMatmulPreference_t preference = nullptr;
    Candidates out;
    expect(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    std::size_t most = kBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                         sizeof most);
    const cublasStatus_t asked =
        cublasLtMatmulAlgoGetHeuristic(blas_, product.how, product.a, product.b, product.c, product.c,
                                       preference, kCandidates, out.results, &out.count);
    cublasLtMatmulPreferenceDestroy(preference);
    expect(asked, "algorithms of a product");
    return out;
  }
  /// Device memory for a while.
  template <class T>
  class Scratch {
   public:
    explicit Scratch(std::size_t n) {
      void* p = nullptr;
      expect(cudaMalloc(&p, n * sizeof(T)), "memory to try products in");
      at_.reset(static_cast<T*>(p));
    }
    T* data() const { return at_.get(); }

   private:
    std::unique_ptr<T, Free> at_;
  };
  /// A product to try algorithms with: random rows, and memory for what comes out.
  struct Trial {
    Trial(const Product& p, const DeviceMatrix& matrix, const ProductShape& s)
        : product(p),
          w(matrix),
          shape(s),
          cols(static_cast<std::size_t>(s.cols)),
          rows(static_cast<std::size_t>(s.rows)),
          x(static_cast<std::size_t>(s.height) * cols),
          probe(cols),
          out(static_cast<std::size_t>(s.height) * rows) {}
    const Product& product;
    const DeviceMatrix& w;
    const ProductShape& shape;
    std::size_t cols, rows;
    Scratch<BFloat16> x, probe;  // (height, cols), (cols)
    Scratch<float> out;          // (height, rows)
  };
  /// Seconds of kTimed products, the best of three turns; nothing if the algorithm does not run.
  std::optional<double> seconds_of(const Trial& t, const cublasLtMatmulHeuristicResult_t& candidate) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) return {};
    for (int warm = 0; warm < 3; ++warm)
      if (try_multiply(t.product, candidate.algo, t.w, t.x.data(), t.out.data(), t.shape.add) !=
          CUBLAS_STATUS_SUCCESS) {
        cudaGetLastError();
        return {};
      }
    Graph graph(captured(stream_, [&] {
      for (int run = 0; run < kTimed; ++run)
        multiply(t.product, candidate.algo, t.w, t.x.data(), t.out.data(), t.shape.add);
    }));
    Event begin, end;
    float best = std::numeric_limits<float>::infinity();
    for (int turn = 0; turn < 3; ++turn) {  // replayed, so that the host's time is not in it
      begin.record(stream_);
      expect(cudaGraphLaunch(graph.get(), stream_), "a graph's launch");
      end.record(stream_);
      best = smaller(best, end.milliseconds_since(begin));
    }
    return static_cast<double>(best) / 1e3;
  }
  /// Whether a row has the same bits in each of the height's places among random rows, and in two calls.
  bool is_exact(const Trial& t, const cublasLtMatmulHeuristicResult_t& candidate) {
    std::vector<float> first(t.rows), other(t.rows);
    const int places = smaller(t.shape.height, kPlaces);
    for (int n = 0; n < 2 * places; ++n) {                  // each place twice
      const int k = n / 2, step = t.shape.height / places;  // all places of a tile of up to `step` rows, too
      const auto place = static_cast<std::size_t>(k * step + k % step);
      BFloat16* const row = t.x.data() + place * t.cols;
      float* const result = t.out.data() + place * t.rows;
      expect(
          cudaMemcpyAsync(row, t.probe.data(), t.cols * sizeof(BFloat16), cudaMemcpyDeviceToDevice, stream_),
          "a copy");
      expect(cudaMemsetAsync(result, 0, t.rows * sizeof(float), stream_), "cudaMemset");
      multiply(t.product, candidate.algo, t.w, t.x.data(), t.out.data(), t.shape.add);
      std::vector<float>& got = n == 0 ? first : other;
      expect(cudaMemcpyAsync(got.data(), result, t.rows * sizeof(float), cudaMemcpyDeviceToHost, stream_),
             "a copy");
      fill(row, t.cols, static_cast<unsigned>(3 + n));  // waits; another random row in its place
      if (n > 0 && std::memcmp(first.data(), other.data(), t.rows * sizeof(float)) != 0) return false;
    }
    return true;
  }
  /// The fastest of the library's candidates; if it must be exact, of those that are.
  ProductAlgorithm choose(const Product& product, const DeviceMatrix& w, const ProductShape& s) {
    const Candidates all = candidates(product);
    const Trial trial(product, w, s);
    fill(trial.x.data(), static_cast<std::size_t>(s.height) * trial.cols, 1);
    fill(trial.probe.data(), trial.cols, 2);
    expect(cudaMemsetAsync(trial.out.data(), 0,
                           static_cast<std::size_t>(s.height) * trial.rows * sizeof(float), stream_),
           "cudaMemset");
    const std::optional<int> best = choose_product(
        all.count, [&](int i) { return seconds_of(trial, all.results[i]); },
        [&](int i) { return !s.exact || is_exact(trial, all.results[i]); });
    if (!best)
      throw DeviceError(
          "cuBLASLt: none of " + std::to_string(all.count) + " algorithms for a product of " + name(s) +
          (s.exact ? " gives a row the same bits in every place; FreeProducts do not need it" : " runs"));
    ProductAlgorithm words;
    std::memcpy(words.data(), &all.results[*best].algo, sizeof words);
    return words;
  }
  /// Random numbers in (-1, 1).
  void fill(BFloat16* to, std::size_t n, unsigned seed) {
    std::minstd_rand random(seed);
    std::vector<BFloat16> values(n);
    for (BFloat16& value : values)
      value = to_bfloat16(static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) * 2 - 1);
    expect(cudaMemcpyAsync(to, values.data(), n * sizeof(BFloat16), cudaMemcpyHostToDevice, stream_),
           "a copy");
    expect(cudaStreamSynchronize(stream_), "the device's work");
  }

  cudaStream_t stream_;
  std::string machine_;
  cublasLtHandle_t blas_ = nullptr;
  std::unique_ptr<unsigned char, Free> memory_;  // to work in
  std::map<Key, Product> products_;
};

}  // namespace specula::cuda::detail

#endif
