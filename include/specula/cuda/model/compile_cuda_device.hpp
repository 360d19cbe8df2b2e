// SPDX-License-Identifier: MIT
// Definitions of CudaDevice: include this in one file of a program, which nvcc compiles in C++20, and
// cuda_device.hpp in the others. That program is linked with cuBLASLt.
#pragma once

#include "specula/cuda/model/cuda_device.hpp"
#include "specula/cuda/model/product_table.hpp"

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/cuda/api/compact_kv.cuh"
#include "specula/cuda/api/tree_attention.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula::cuda {

/// A plan of one of the two sizes of heads.
struct CudaAttention {
  int head_size = 64;                      ///< which is made
  TreeAttentionPlan<BFloat16, 64> narrow;  ///< of 64
  TreeAttentionPlan<BFloat16, 128> wide;   ///< of 128
};

/// Private members of CudaDevice.
struct CudaDevice::Impl {
  /// What was allocated; null: given back.
  struct Memory {
    void* at;
    bool of_host;
  };

  explicit Impl(int number) : Impl() {  // an exception destroys what is there by then
    device = number;
    int devices = 0, driver = 0, toolkit = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    cudaDriverGetVersion(&driver), cudaRuntimeGetVersion(&toolkit);
    if (found == cudaErrorInsufficientDriver)
      throw DeviceError((driver == 0 ? std::string("CUDA: there is no driver")
                                     : "CUDA: the driver is of version " + version(driver)) +
                        ", the program needs " + version(toolkit));
    if (found != cudaSuccess || devices == 0)
      throw DeviceError(std::string("CUDA: no device") +
                        (found == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(found)));
    if (device < 0 || device >= devices)
      throw DeviceError("CUDA: device " + std::to_string(device) + ", must be 0 to " +
                        std::to_string(devices - 1));
    expect(cudaSetDevice(device), "cudaSetDevice");
    cudaDeviceProp properties{};
    expect(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    if (properties.major < 8)
      throw DeviceError(std::string("CUDA: ") + properties.name + " has compute capability " +
                        std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                        ", the kernels need 8.0");
    machine = std::string(properties.name) + ", cuBLASLt " + std::to_string(cublasLtGetVersion());
    expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    expect(cublasLtCreate(&blas), "cublasLtCreate");
    product_memory = allocate(kProductBytes, rooms);  // a capture must not allocate
    differences = static_cast<int*>(allocate(sizeof(int), rooms));
  }
  Impl() = default;
  ~Impl() {
    release(memory, 0, memory.size()), release(rooms, 0, rooms.size());
    if (blas) cublasLtDestroy(blas);
    if (stream) cudaStreamDestroy(stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void* allocate(std::size_t bytes, std::vector<Memory>& of) {
    void* p = nullptr;
    if (const cudaError_t error = cudaMalloc(&p, bytes); error != cudaSuccess) {
      cudaGetLastError();
      throw DeviceError("CUDA: no memory for " + std::to_string(bytes) + " bytes, " +
                        std::to_string(free_bytes()) + " are free: " + cudaGetErrorString(error));
    }
    of.push_back({p, false});
    expect(cudaMemsetAsync(p, 0, bytes, stream), "cudaMemset");
    return p;
  }
  /// Frees what the allocations [first, last) of a list gave.
  static void release(std::vector<Memory>& memory, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      Memory& own = memory[i];
      own.of_host ? cudaFreeHost(own.at) : cudaFree(own.at);
      own.at = nullptr;
    }
    while (!memory.empty() && !memory.back().at) memory.pop_back();
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, all = 0;
    return cudaMemGetInfo(&free, &all) == cudaSuccess ? free : 0;
  }
  void wait() { expect(cudaStreamSynchronize(stream), "the device's work"); }
  template <class Body>
  void run(const Body& body) {
    expect(detail::launch(detail::body_kernel<Body>, body.blocks(), 1, Body::kThreads, 0, stream, body),
           "a kernel's launch");
  }

  static constexpr std::size_t kProductBytes = std::size_t{32} << 20;
  static constexpr int kCandidates = 32, kPlaces = 64, kTimed = 20;

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

  static std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  }
  static std::string name(const ProductShape& s) {
    return std::to_string(s.height) + " rows with a matrix (" + std::to_string(s.rows) + ", " +
           std::to_string(s.cols) + ")";
  }
  static void expect(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // else the next launch would report it again
    throw DeviceError(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
  }
  static void expect(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw DeviceError(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
  }

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
    return cublasLtMatmul(blas, p.how, &one, w.data, p.a, x, p.b, &before, out, p.c, out, p.c, &algorithm,
                          product_memory, kProductBytes, stream);
  }
  void multiply(const Product& p, const cublasLtMatmulAlgo_t& algorithm, const DeviceMatrix& w,
                const BFloat16* x, float* out, bool add) {
    expect(try_multiply(p, algorithm, w, x, out, add), "a product");
  }

  void prepare(const DeviceMatrix& w, const ProductShape& shape) {
    const Key key{shape.rows, shape.cols, shape.height, shape.add};
    const auto known = products.find(key);
    if (known != products.end() && (known->second.exact || !shape.exact)) return;
    Product product = describe(shape);
    const ProductAlgorithm words =
        ProductTable::shared().get(machine, shape, [&] { return choose(product, w, shape); });
    std::memcpy(&product.algorithm, words.data(), sizeof words);
    cublasLtMatmulHeuristicResult_t checked{};
    if (cublasLtMatmulAlgoCheck(blas, product.how, product.a, product.b, product.c, product.c,
                                &product.algorithm, &checked) != CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > kProductBytes)
      throw DeviceError("cuBLASLt: the algorithm chosen for a product of " + name(shape) +
                        " is not one of this library; was it read from a file?");
    products.insert_or_assign(key, std::move(product));
  }

  /// The fastest of the library's candidates; if it must be exact, of those that give one row the same bits
  /// in each of the height's places among random rows, and in two calls.
  ProductAlgorithm choose(const Product& product, const DeviceMatrix& w, const ProductShape& s) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
    int count = 0;
    expect(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    std::size_t most = kProductBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                         sizeof most);
    const cublasStatus_t asked =
        cublasLtMatmulAlgoGetHeuristic(blas, product.how, product.a, product.b, product.c, product.c,
                                       preference, kCandidates, results, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    expect(asked, "algorithms of a product");
    const auto height = static_cast<std::size_t>(s.height), cols = static_cast<std::size_t>(s.cols),
               rows = static_cast<std::size_t>(s.rows);
    const Scratch<BFloat16> x(height * cols), probe(cols);
    const Scratch<float> out(height * rows), reference(rows);
    fill(x.data(), height * cols, 1), fill(probe.data(), cols, 2);
    expect(cudaMemsetAsync(out.data(), 0, height * rows * sizeof(float), stream), "cudaMemset");
    const auto seconds = [&](int i) -> std::optional<double> {
      const auto& algorithm = results[i].algo;
      if (results[i].state != CUBLAS_STATUS_SUCCESS) return {};
      for (int warm = 0; warm < 3; ++warm)
        if (try_multiply(product, algorithm, w, x.data(), out.data(), s.add) != CUBLAS_STATUS_SUCCESS) {
          cudaGetLastError();
          return {};
        }
      return timed([&] {
        for (int run = 0; run < kTimed; ++run) multiply(product, algorithm, w, x.data(), out.data(), s.add);
      });
    };
    const auto exact = [&](int i) {
      if (!s.exact) return true;
      expect(cudaMemsetAsync(differences, 0, sizeof(int), stream), "cudaMemset");
      const int places = detail::smaller(s.height, kPlaces);
      for (int n = 0; n < 2 * places; ++n) {            // each place twice
        const int k = n / 2, step = s.height / places;  // all places of a tile of up to `step` rows, too
        const auto place = static_cast<std::size_t>(k * step + k % step);
        BFloat16* const row = x.data() + place * cols;
        float* const result = out.data() + place * rows;
        expect(cudaMemcpyAsync(row, probe.data(), cols * sizeof(BFloat16), cudaMemcpyDeviceToDevice, stream),
               "a copy");
        expect(cudaMemsetAsync(result, 0, rows * sizeof(float), stream), "cudaMemset");
        multiply(product, results[i].algo, w, x.data(), out.data(), s.add);
        if (n == 0)
          expect(cudaMemcpyAsync(reference.data(), result, rows * sizeof(float), cudaMemcpyDeviceToDevice,
                                 stream),
                 "a copy");
        run(detail::CountDifferences{reference.data(), result, s.rows, differences});
        fill(row, cols, static_cast<unsigned>(3 + n));  // another random row in its place
      }
      int count_of = 0;
      expect(cudaMemcpyAsync(&count_of, differences, sizeof(int), cudaMemcpyDeviceToHost, stream), "a copy");
      wait();
      return count_of == 0;
    };
    const std::optional<int> best = choose_product(count, seconds, exact);
    if (!best)
      throw DeviceError(
          "cuBLASLt: none of " + std::to_string(count) + " algorithms for a product of " + name(s) +
          (s.exact ? " gives a row the same bits in every place; FreeProducts do not need it" : " runs"));
    ProductAlgorithm words;
    std::memcpy(words.data(), &results[*best].algo, sizeof words);
    return words;
  }
  /// Device memory for a while.
  template <class T>
  class Scratch {
   public:
    explicit Scratch(std::size_t n) { expect(cudaMalloc(&at_, n * sizeof(T)), "cudaMalloc"); }
    ~Scratch() { cudaFree(at_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T* data() const { return static_cast<T*>(at_); }

   private:
    void* at_ = nullptr;
  };
  /// Random numbers in (-1, 1).
  void fill(BFloat16* to, std::size_t n, unsigned seed) {
    std::minstd_rand random(seed);
    std::vector<BFloat16> values(n);
    for (BFloat16& value : values)
      value = detail::to_bfloat16(
          static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) * 2 - 1);
    expect(cudaMemcpyAsync(to, values.data(), n * sizeof(BFloat16), cudaMemcpyHostToDevice, stream),
           "a copy");
    wait();
  }
  /// Seconds of what run() launches, the best of three: replayed, so that the host's time is not in it.
  template <class F>
  double timed(F run) {
    Event begin, end;
    Recording recording;
    begin_capture();
    run();
    recording.graph_ = end_capture();
    float best = std::numeric_limits<float>::infinity();
    for (int turn = 0; turn < 3; ++turn) {
      float milliseconds = 0;
      expect(cudaEventRecord(begin.it, stream), "an event");
      launch(recording.graph_);
      expect(cudaEventRecord(end.it, stream), "an event");
      expect(cudaEventSynchronize(end.it), "the device's work");
      expect(cudaEventElapsedTime(&milliseconds, begin.it, end.it), "a time");
      best = detail::smaller(best, milliseconds);
    }
    return static_cast<double>(best) / 1e3;
  }
  struct Event {
    cudaEvent_t it = nullptr;
    Event() { expect(cudaEventCreate(&it), "an event"); }
    ~Event() { cudaEventDestroy(it); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
  };

  void begin_capture() {
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture");
  }
  void drop_capture() {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void* end_capture() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t out = nullptr;
    expect(cudaStreamEndCapture(stream, &graph), "a capture");
    const cudaError_t made = cudaGraphInstantiate(&out, graph, 0);
    cudaGraphDestroy(graph);
    expect(made, "a graph");
    return out;
  }
  void launch(void* graph) {
    expect(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream), "a graph's launch");
  }

  int device = 0;
  std::string machine;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  std::vector<Memory> memory,  // of models
      rooms;                   // that they share, while they work
  std::map<Key, Product> products;
  void* product_memory = nullptr;
  int* differences = nullptr;
  Workspace workspace;
};

CudaDevice::Recording::~Recording() {
  if (graph_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}

CudaDevice::CudaDevice(int device) : impl_(std::make_unique<Impl>(device)) {}
CudaDevice::~CudaDevice() = default;

void* CudaDevice::stream() const { return impl_->stream; }
const std::string& CudaDevice::machine() const { return impl_->machine; }
std::size_t CudaDevice::free_bytes() const { return Impl::free_bytes(); }

void* CudaDevice::allocate_bytes(std::size_t bytes) { return impl_->allocate(bytes, impl_->memory); }
void* CudaDevice::allocate_host_bytes(std::size_t bytes) {
  void* p = nullptr;
  Impl::expect(cudaMallocHost(&p, bytes), "cudaMallocHost");
  impl_->memory.push_back({p, true});
  return std::memset(p, 0, bytes);
}
void CudaDevice::copy(void* to, const void* from, std::size_t bytes, bool to_device) {
  Impl::expect(cudaMemcpyAsync(to, from, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                               impl_->stream),
               to_device ? "a copy to the device" : "a copy from the device");
}
void CudaDevice::wait() { impl_->wait(); }

template <class Body>
void CudaDevice::run(const Body& body) {
  impl_->run(body);
}
void CudaDevice::prepare(const DeviceMatrix& w, int height, bool add, bool exact) {
  impl_->prepare(w, {w.rows, w.cols, height, add, exact});
}
void CudaDevice::product(const DeviceMatrix& w, const BFloat16* x, int, int height, float* out, bool add) {
  const auto found = impl_->products.find({w.rows, w.cols, height, add});
  if (found == impl_->products.end()) throw std::logic_error("CudaDevice::product: not prepared");
  impl_->multiply(found->second, found->second.algorithm, w, x, out, add);
}

CudaDevice::Attention CudaDevice::make_attention(const TreeAttentionCapacity& capacity, int head_size) {
  auto out = std::make_shared<CudaAttention>();
  out->head_size = head_size;
  const auto make = [&](auto& plan) {
    Impl::expect(make_tree_attention_plan(&plan, capacity, impl_->device), "a plan of attention");
    // Captured launches keep the memory that they were given.
    Workspace& room = impl_->workspace;
    if (part_bytes(plan) > room.part_bytes) {
      room.parts = impl_->allocate(part_bytes(plan), impl_->rooms);
      room.part_bytes = part_bytes(plan);
    }
    if (counter_bytes(plan) > room.counter_bytes) {
      room.counters = static_cast<std::uint32_t*>(impl_->allocate(counter_bytes(plan), impl_->rooms));
      room.counter_bytes = counter_bytes(plan);
    }
  };
  head_size == 64 ? make(out->narrow) : make(out->wide);
  return out;
}
void CudaDevice::attend(const Attention& plan, const TreeAttentionArgs<BFloat16>& args) {
  Impl::expect(plan->head_size == 64 ? tree_attention(plan->narrow, args, impl_->workspace, impl_->stream)
                                     : tree_attention(plan->wide, args, impl_->workspace, impl_->stream),
               "attention");
}
void CudaDevice::compact(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows* rows,
                         int count) {
  Impl::expect(compact_slots(paths, pages, rows, count, impl_->stream), "compaction");
}

std::size_t CudaDevice::allocations() const { return impl_->memory.size(); }
void CudaDevice::release(std::size_t first, std::size_t last) { Impl::release(impl_->memory, first, last); }

void CudaDevice::begin_capture() { impl_->begin_capture(); }
void CudaDevice::drop_capture() { impl_->drop_capture(); }
void* CudaDevice::end_capture() { return impl_->end_capture(); }
void CudaDevice::launch(void* graph) { impl_->launch(graph); }

template void CudaDevice::run(const detail::Embed& body);
template void CudaDevice::run(const detail::Norm& body);
template void CudaDevice::run(const detail::FinalNorm& body);
template void CudaDevice::run(const detail::PlaceHeads<64>& body);
template void CudaDevice::run(const detail::PlaceHeads<128>& body);
template void CudaDevice::run(const detail::SiluProduct& body);
template void CudaDevice::run(const detail::CountDifferences& body);

}  // namespace specula::cuda

#endif
