// SPDX-License-Identifier: MIT
// A GPU as a Device (device.hpp): a stream, cuBLASLt and this library's kernels. Declared here for any
// compiler, and compiled in the one file of a program that includes compile_cuda_device.hpp, by nvcc.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "specula/cuda/api/grow_cape.cuh"
#include "specula/cuda/api/grow_dynamic_tree.cuh"
#include "specula/cuda/api/sample.cuh"
#include "specula/cuda/api/verify.cuh"
#include "specula/cuda/api/verify_matching.cuh"
#include "specula/cuda/args/attention.cuh"
#include "specula/cuda/args/slots.cuh"
#include "specula/cuda/model/detail/pass_bodies.cuh"
#include "specula/cuda/model/detail/round_bodies.cuh"
#include "specula/cuda/model/device.hpp"

namespace specula::cuda {

/// A GPU, and the memory of what runs on it: it must outlive the models. All calls go into one stream; a pass
/// is captured when it runs a second time. Models of one device run one after the other. Not for concurrent
/// calls. The device must be the thread's current one in every call; the constructor makes it that. Members
/// throw DeviceError where the device, the driver or cuBLASLt fails; see device.hpp.
class CudaDevice {
 public:
  /// A plan for heads of 64 or 128.
  using Attention = std::shared_ptr<const struct CudaAttention>;
  /// What replay() captured.
  class Recording {
   public:
    Recording() = default;
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    friend CudaDevice;
    void* graph_ = nullptr;
    bool ran_ = false;
  };

  /// A place in the order of the launches, which the host can wait for.
  class Signal {
   public:
    Signal() = default;
    ~Signal();
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;

   private:
    friend CudaDevice;
    void* event_ = nullptr;
  };

  bool captures = true;  ///< false: replay() launches each time

  /// Throws DeviceError, with the reason, if there is no such device, its compute capability is below 8.0, or
  /// the driver is older than the toolkit.
  explicit CudaDevice(int device = 0);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void* stream() const;                ///< a cudaStream_t, of all launches
  const std::string& machine() const;  ///< name of the device, and version of the library of products
  std::size_t free_bytes() const;      ///< of memory

  /// Memory of the device, zeros.
  template <class T>
  T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(n * sizeof(T)));
  }
  /// Pinned memory of the host, zeros.
  template <class T>
  T* allocate_host(std::size_t n) {
    return static_cast<T*>(allocate_host_bytes(n * sizeof(T)));
  }
  std::size_t allocations() const;  ///< calls of both, of which the last ones may have been released
  /// Frees what the allocations [first, last) gave.
  void release(std::size_t first, std::size_t last);
  /// Copies to the device, and waits.
  template <class T>
  void put(T* to, const T* from, std::size_t n) {
    send(to, from, n), wait();
  }
  /// Copies to the host, and waits.
  template <class T>
  void get(T* to, const T* from, std::size_t n) {
    fetch(to, from, n), wait();
  }
  /// Copies to the device, in the order of the launches.
  template <class T>
  void send(T* to, const T* from, std::size_t n) {
    copy(to, from, n * sizeof(T), true);
  }
  /// Copies to the host, in the order of the launches.
  template <class T>
  void fetch(T* to, const T* from, std::size_t n) {
    copy(to, from, n * sizeof(T), false);
  }
  void wait();                       ///< for all that was asked for
  void signal(Signal& signal);       ///< puts it after all that was asked for
  void await(const Signal& signal);  ///< waits for what was asked for before it, and for nothing else

  /// Launches a kernel body, one of those in pass_bodies.cuh.
  template <class Body>
  void run(const Body& body);
  /// Chooses the algorithm of a product, if it was not chosen before in this process
  /// (ProductTable::shared()). Throws DeviceError if no algorithm is exact where it must be.
  void prepare(const DeviceMatrix& w, int height, bool add, bool exact);
  /// Of a prepared shape; std::logic_error for another.
  void product(const DeviceMatrix& w, const BFloat16* x, int n, int height, float* out, bool add);
  Attention make_attention(const TreeAttentionCapacity& capacity, int head_size);  ///< a plan
  void attend(const Attention& plan, const TreeAttentionArgs<BFloat16>& args);     ///< by a plan
  void compact(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows* rows,
               int count);  ///< see compact_slots()

  /// A plan of sampling, of a rule or of growth, for this device.
  void make_plan(SamplePlan<float>& plan, int rows, int draws, int vocab);
  void make_plan(CapePlan<float>& plan, const CapeCapacity& capacity);                ///< the same
  void make_plan(DynamicTreePlan<float>& plan, const DynamicTreeCapacity& capacity);  ///< the same
  /// The same of a rule: those of SPECULA_FOR_ROUND_RULES below.
  template <class Plan>
  void make_plan(Plan& plan, const VerifyCapacity& capacity);
  void draw(const SamplePlan<float>& plan, const SampleArgs<float>& args);  ///< see sample()
  /// See verify_trees().
  template <class Plan, class Draft>
  void verify(const Plan& plan, const Trees& trees, const TargetRows<float>& target, const Draft& draft,
              const VerifyResults& out);
  void grow(const CapePlan<float>& plan, int step, const Roots& roots, const DraftRows<float>& rows,
            const CapeSpine& out, void* room);  ///< see cape_step()
  void grow(const DynamicTreePlan<float>& plan, int level, const Roots& roots, const DraftRows<float>& rows,
            const DraftLevels& out, void* room);  ///< see dynamic_tree_step()
  void finish(const CapePlan<float>& plan, const Roots& roots, const GrownTrees& out,
              void* room);  ///< see cape_finish()
  void finish(const DynamicTreePlan<float>& plan, const Roots& roots, const GrownTrees& out,
              void* room);  ///< see dynamic_tree_rerank()

  /// Launches what enqueue() launches: at first as it is, so that kernels are loaded, then captured.
  template <class F>
  void replay(Recording& recording, F enqueue) {
    if (!captures || !std::exchange(recording.ran_, true)) return enqueue();
    replay(
        recording, [](void* of) { (*static_cast<F*>(of))(); }, &enqueue);
  }

 private:
  struct Impl;
  void* allocate_bytes(std::size_t bytes);
  void* allocate_host_bytes(std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes, bool to_device);
  void replay(Recording& recording, void (*enqueue)(void*), void* of);

  std::unique_ptr<Impl> impl_;
};

/// X(draft, plan) for each rule of a Round, and the form of the draft's distributions.
#define SPECULA_FOR_ROUND_RULES(X)                                \
  X(ChosenDraft, GreedyPlan<float>)                               \
  X(ChosenDraft, SampleAndMatchPlan<float>)                       \
  X(ChosenDraft, RejectionPlan<float, ChosenDraft>)               \
  X(LogitsDraft<float>, RejectionPlan<float, LogitsDraft<float>>) \
  X(ChosenDraft, TraversalPlan<float, ChosenDraft>)               \
  X(LogitsDraft<float>, TraversalPlan<float, LogitsDraft<float>>) \
  X(LogitsDraft<float>, BlockPlan<float, LogitsDraft<float>>)

/// @cond
#define SPECULA_ROUND_RULE(draft, ...)                                                              \
  extern template void CudaDevice::make_plan(__VA_ARGS__& plan, const VerifyCapacity& capacity);    \
  extern template void CudaDevice::verify(const __VA_ARGS__& plan, const Trees& trees,              \
                                          const TargetRows<float>& target, const draft& draft_rows, \
                                          const VerifyResults& out);
SPECULA_FOR_ROUND_RULES(SPECULA_ROUND_RULE)
#undef SPECULA_ROUND_RULE
/// @endcond

extern template void CudaDevice::run(const detail::Embed& body);
extern template void CudaDevice::run(const detail::Gather& body);
extern template void CudaDevice::run(const detail::Spread& body);
extern template void CudaDevice::run(const detail::ReadText& body);
extern template void CudaDevice::run(const detail::BeginRound& body);
extern template void CudaDevice::run(const detail::EndRound& body);
extern template void CudaDevice::run(const detail::Norm& body);
extern template void CudaDevice::run(const detail::FinalNorm& body);
extern template void CudaDevice::run(const detail::PlaceHeads<64>& body);
extern template void CudaDevice::run(const detail::PlaceHeads<128>& body);
extern template void CudaDevice::run(const detail::SiluProduct& body);

}  // namespace specula::cuda
