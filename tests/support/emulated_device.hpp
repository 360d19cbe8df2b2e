// SPDX-License-Identifier: MIT
// The Device of specula/cuda/model/decoder.hpp on the emulated GPU: kernel bodies thread by thread, attention
// by emulated tensor cores, products by loops, in the order in which a GPU's graph has them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <set>
#include <specula/cuda/api/compact_kv.cuh>
#include <specula/cuda/api/grow_cape.cuh>
#include <specula/cuda/api/grow_dynamic_tree.cuh>
#include <specula/cuda/api/sample.cuh>
#include <specula/cuda/api/tree_attention_mma.cuh>
#include <specula/cuda/api/tree_attention_wgmma.cuh>
#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/api/verify_matching.cuh>
#include <specula/cuda/model/decoder.hpp>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "emulated_gpu.hpp"
#include "emulated_mma.hpp"
#include "emulated_wgmma.hpp"

namespace specula_test {

class EmulatedDevice {
 public:
  struct Attention {
    specula::cuda::TreeAttentionGeometry geometry;
  };
  struct Recording {
    int runs = 0;
  };
  struct Signal {
    std::size_t copies = 0;  // that were asked for before it
  };

  bool hopper = false;  // attention of more than 32 rows of a head by wgmma
  /// The order in which a product adds depends on its number of rows, as that of a library's kernels.
  bool order_depends_on_rows = false;
  Engine engine = Engine::fibers;
  std::size_t memory = std::numeric_limits<std::size_t>::max();  // bytes that there are
  int failing_allocation = -1;                                   // which allocation fails
  int failing_launch = -1;                                       // which launch fails

  int launches = 0, products = 0, waits = 0, recordings = 0, replays = 0;
  int launched_apart = 0;   // launches and copies that no graph has
  std::size_t fetched = 0;  // bytes

  /// So many launches and copies work, and the next one fails.
  void fail_after(int more) { failing_launch = calls_ + more; }

  // ---- memory: the host's
  template <class T>
  T* allocate(std::size_t n) {
    used_ += n * sizeof(T);
    return allocate_host<T>(n);
  }
  std::size_t allocations() const { return memory_.size(); }
  void release(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) memory_[i].reset();
  }
  template <class T>
  T* allocate_host(std::size_t n) {
    if (failing_allocation == static_cast<int>(memory_.size()))
      throw specula::cuda::DeviceError("the emulated device has no memory");
    memory_.push_back(std::make_unique<Chunk[]>(n * sizeof(T) / sizeof(Chunk) + 1));
    std::memset(static_cast<void*>(memory_.back().get()), 0, n * sizeof(T));
    return reinterpret_cast<T*>(memory_.back().get());
  }
  std::size_t free_bytes() const { return memory - std::min(memory, used_); }
  std::size_t used_bytes() const { return used_; }
  /// Allocations that were not given back.
  int held() const {
    int out = 0;
    for (const auto& allocation : memory_) out += allocation ? 1 : 0;
    return out;
  }
  template <class T>
  void put(T* to, const T* from, std::size_t n) {
    std::copy_n(from, n, to);
  }
  template <class T>
  void get(T* to, const T* from, std::size_t n) {
    std::copy_n(from, n, to);
  }
  template <class T>
  void send(T* to, const T* from, std::size_t n) {
    launched();
    put(to, from, n);
  }
  template <class T>
  void fetch(T* to, const T* from, std::size_t n) {
    launched();
    fetched += n * sizeof(T);
    if (!replays_) return get(to, from, n);
    // A graph's copy is there when the host has waited for it: until then it reads what was there before.
    std::vector<unsigned char> bytes(n * sizeof(T));
    std::memcpy(bytes.data(), from, bytes.size());
    late_.push_back({to, std::move(bytes)});
  }
  void wait() {
    ++waits;
    deliver(asked_ + late_.size());
  }
  void signal(Signal& signal) { signal.copies = asked_ + late_.size(); }
  void await(const Signal& signal) { deliver(signal.copies); }

  // ---- launches
  template <class F>
  void replay(Recording& recording, F enqueue) {
    recordings += recording.runs == 1 ? 1 : 0;  // a GPU captures the second one
    ++recording.runs, ++replays;
    replays_ = true;
    try {
      enqueue();
    } catch (...) {
      replays_ = false;
      throw;
    }
    replays_ = false;
  }
  template <class Body>
  void run(const Body& body) {
    launched();
    ++launches;
    emulate({.clusters = body.blocks(),
             .threads = Body::kThreads,
             .shared_bytes = 128,
             .seed = seed_++,
             .engine = engine},
            [&](EmulatedCluster cluster, int index, unsigned char* shared) {
              body(cluster.block(), index, reinterpret_cast<float*>(shared));
            });
  }

  void prepare(const specula::cuda::DeviceMatrix& w, int height, bool add, bool) {
    prepared_.insert({w.rows, w.cols, height, add});
  }
  /// Sums of lanes of floats: 16, or as many as suit the height. Rows of padding are left out.
  void product(const specula::cuda::DeviceMatrix& w, const specula::cuda::BFloat16* x, int n, int height,
               float* out, bool add) {
    launched();
    ++launches, ++products;
    if (n > height || prepared_.count({w.rows, w.cols, height, add}) == 0)
      throw std::logic_error("a product that was not prepared");
    const int rows = order_depends_on_rows ? height : 64;
    if (rows == 1)
      multiply<4>(w, x, n, out, add);
    else if (rows <= 4)
      multiply<8>(w, x, n, out, add);
    else
      multiply<16>(w, x, n, out, add);
  }

  Attention make_attention(const specula::cuda::TreeAttentionCapacity& c, int head_size) {
    namespace detail = specula::cuda::detail;
    Attention out;
    const bool wgmma = hopper && detail::wants_wgmma(c);
    const bool good = wgmma ? detail::fill_wgmma_plan(&out.geometry, c, head_size, {})
                            : detail::fill_plan(&out.geometry, c, head_size, {});
    if (!good) throw std::logic_error("make_attention: capacities");
    out.geometry.wgmma = wgmma;
    parts_.resize(std::max(parts_.size(), specula::cuda::part_bytes(out.geometry) / sizeof(Chunk) + 1));
    counters_.resize(std::max(counters_.size(), specula::cuda::counter_bytes(out.geometry) / 4 + 1), 0);
    return out;
  }
  void attend(const Attention& plan, const specula::cuda::TreeAttentionArgs<specula::cuda::BFloat16>& args) {
    launched();
    ++launches;
    if (plan.geometry.head_size == 64)
      attend<64>(plan.geometry, args);
    else
      attend<128>(plan.geometry, args);
  }

  void compact(const specula::cuda::AcceptedPaths& paths, const specula::cuda::SlotPages& pages,
               const specula::cuda::SlotRows* rows, int count) {
    namespace detail = specula::cuda::detail;
    launched();
    ++launches;
    detail::CompactArgs args{paths, pages, {}, 0, 0};
    if (detail::size_compaction(&args, rows, count, 64) != 16) throw std::logic_error("compact: arguments");
    emulate({.clusters = paths.sequences * args.chunks,
             .threads = 64,
             .shared_bytes = detail::compact_shared_bytes(paths.width),
             .seed = seed_++,
             .engine = engine},
            [&](EmulatedCluster cluster, int index, unsigned char* shared) {
              detail::compact<detail::Bytes16>(cluster.block(), args, index, shared);
            });
  }

  // ---- rounds
  void make_plan(specula::cuda::SamplePlan<float>& plan, int rows, int draws, int vocab) {
    plan.rows = rows, plan.draws = draws, plan.scan.size.vocab = vocab;
  }
  template <class Rule, class Draft>
  void make_plan(specula::cuda::VerifyPlan<Rule, float, Draft>& plan,
                 const specula::cuda::VerifyCapacity& c) {
    plan.sequences = c.sequences, plan.max_nodes = c.max_nodes, plan.width = c.max_depth + 1;
    plan.scan.size.vocab = c.vocab;
  }
  template <class Rule>
  void make_plan(specula::cuda::MatchingPlan<Rule, float>& plan, const specula::cuda::VerifyCapacity& c) {
    make_plan(plan.verifier, c);
  }
  void make_plan(specula::cuda::CapePlan<float>& plan, const specula::cuda::CapeCapacity& c) {
    if (!specula::cuda::detail::size_plan(&plan, c)) throw std::logic_error("make_plan: capacities");
  }
  void make_plan(specula::cuda::DynamicTreePlan<float>& plan, const specula::cuda::DynamicTreeCapacity& c) {
    if (!specula::cuda::detail::size_plan(&plan, c)) throw std::logic_error("make_plan: capacities");
  }
  void draw(const specula::cuda::SamplePlan<float>& plan, const specula::cuda::SampleArgs<float>& args) {
    launch_row(
        plan.rows,
        [&](const specula::cuda::detail::ScanSize& size) {
          return specula::cuda::detail::sample_bytes<EmulatedCluster>(size, 2, plan.draws);
        },
        plan.scan.size.vocab,
        [&](EmulatedCluster cluster, int r, unsigned char* shared, const auto& size) {
          specula::cuda::detail::sample_row(cluster, r, shared, args, size, plan.draws);
        });
  }
  template <class Rule, class Draft>
  void verify(const specula::cuda::VerifyPlan<Rule, float, Draft>& plan, const specula::cuda::Trees& trees,
              const specula::cuda::TargetRows<float>& target, const Draft& draft,
              const specula::cuda::VerifyResults& out) {
    namespace detail = specula::cuda::detail;
    using Verifier = detail::SequenceVerifier<Rule, EmulatedCluster, float, Draft>;
    const detail::VerifyArgs<float, Draft> args{
        trees, target, draft, out, plan.max_nodes, plan.width, {plan.scan.size.vocab, 2, 8192}};
    launch_row(
        plan.sequences,
        [&](const detail::ScanSize&) { return Verifier::shared_bytes(args.scan, args.max_nodes, 2); },
        plan.scan.size.vocab,
        [&](EmulatedCluster cluster, int b, unsigned char* shared, const auto&) {
          Verifier::verify_sequence(cluster, args, b, shared);
        });
  }
  template <class Rule>
  void verify(const specula::cuda::MatchingPlan<Rule, float>& plan, const specula::cuda::Trees& trees,
              const specula::cuda::TargetRows<float>& target, const specula::cuda::ChosenDraft& draft,
              const specula::cuda::VerifyResults& out) {
    verify(plan.verifier, trees, target, draft, out);
  }
  void grow(const specula::cuda::CapePlan<float>& plan, int step, const specula::cuda::Roots& roots,
            const specula::cuda::DraftRows<float>& rows, const specula::cuda::CapeSpine& out, void* room) {
    namespace detail = specula::cuda::detail;
    launch_row(
        plan.sequences,
        [&](const detail::ScanSize& size) {
          return detail::cape_shared_bytes<EmulatedCluster>(size, 2, plan.most);
        },
        plan.vocab,
        [&](EmulatedCluster cluster, int b, unsigned char* shared, const auto& size) {
          const detail::CapeArgs<float> args{rows,
                                             roots,
                                             out,
                                             detail::CapeWork::at(room, plan),
                                             plan.extras,
                                             size,
                                             plan.sequences,
                                             plan.length,
                                             plan.most,
                                             step};
          detail::cape_step(cluster, args, b, shared);
        });
  }
  void grow(const specula::cuda::DynamicTreePlan<float>& plan, int level, const specula::cuda::Roots& roots,
            const specula::cuda::DraftRows<float>& rows, const specula::cuda::DraftLevels& out, void* room) {
    namespace detail = specula::cuda::detail;
    launch_row(
        plan.sequences * (level == 0 ? 1 : plan.top_k),
        [&](const detail::ScanSize& size) {
          return detail::dynamic_tree_shared_bytes<EmulatedCluster>(size, 2, plan.top_k);
        },
        plan.vocab,
        [&](EmulatedCluster cluster, int index, unsigned char* shared, const auto& size) {
          const detail::DynamicTreeArgs<float> args{rows,
                                                    roots,
                                                    out,
                                                    detail::DynamicTreeWork::at(room, plan),
                                                    size,
                                                    plan.sequences,
                                                    plan.top_k,
                                                    plan.expansions,
                                                    plan.draft_words,
                                                    level};
          detail::dynamic_tree_step(cluster, args, index, shared);
        });
  }
  void finish(const specula::cuda::CapePlan<float>& plan, const specula::cuda::Roots& roots,
              const specula::cuda::GrownTrees& out, void* room) {
    const auto work = specula::cuda::detail::CapeWork::at(room, plan);
    build({roots, work.pool, out, work.status, nullptr, plan.sequences, plan.width, plan.length}, plan.pool);
  }
  void finish(const specula::cuda::DynamicTreePlan<float>& plan, const specula::cuda::Roots& roots,
              const specula::cuda::GrownTrees& out, void* room) {
    const auto work = specula::cuda::detail::DynamicTreeWork::at(room, plan);
    build({roots, work.pool, out, work.status, nullptr, plan.sequences, plan.width, 0}, plan.pool);
  }

 private:
  struct alignas(64) Chunk {
    unsigned char bytes[64];
  };

  /// A cluster for each row.
  template <class Bytes, class Run>
  void launch_row(int rows, const Bytes& bytes, int vocab, const Run& run) {
    launched();
    ++launches;
    const specula::cuda::detail::ScanSize size{vocab, 1, 8192};
    emulate({.clusters = rows, .threads = 64, .shared_bytes = bytes(size), .seed = seed_++, .engine = engine},
            [&](EmulatedCluster cluster, int index, unsigned char* shared) {
              run(cluster, index, shared, size);
            });
  }
  void build(const specula::cuda::detail::BuildTreeArgs& args, int pool) {
    using Builder = specula::cuda::detail::TreeBuilder<EmulatedBlock>;
    launched();
    ++launches;
    emulate({.clusters = args.sequences,
             .threads = 64,
             .shared_bytes = Builder::shared_bytes(pool, args.spine, args.width),
             .seed = seed_++,
             .engine = engine},
            [&](EmulatedCluster cluster, int b, unsigned char* shared) {
              Builder(cluster.block(), args, b, shared).build_tree();
            });
  }
  /// A graph's copies to the host, of which those up to `last` are there.
  void deliver(std::size_t last) {
    for (; asked_ < last; ++asked_) {
      std::memcpy(late_.front().to, late_.front().bytes.data(), late_.front().bytes.size());
      late_.pop_front();
    }
  }

  void launched() {
    launched_apart += replays_ ? 0 : 1;
    if (calls_++ == failing_launch) throw specula::cuda::DeviceError("the emulated device fails");
  }

  template <std::size_t lanes>
  void multiply(const specula::cuda::DeviceMatrix& w, const specula::cuda::BFloat16* x, int n, float* out,
                bool add) {
    using specula::cuda::detail::to_float;
    const auto cols = static_cast<std::size_t>(w.cols), outs = static_cast<std::size_t>(w.rows);
    std::vector<float> in(cols * static_cast<std::size_t>(n)), row(cols);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = to_float(x[i]);
    for (std::size_t r = 0; r < outs; ++r) {
      for (std::size_t k = 0; k < cols; ++k) row[k] = to_float(w.data[r * cols + k]);
      for (std::size_t t = 0; t < static_cast<std::size_t>(n); ++t) {
        const float* const input = in.data() + t * cols;
        float lane[lanes] = {};
        std::size_t k = 0;
        for (; k + lanes <= cols; k += lanes)
          for (std::size_t i = 0; i < lanes; ++i) lane[i] += input[k + i] * row[k + i];
        float sum = 0;
        for (const float s : lane) sum += s;
        for (; k < cols; ++k) sum += input[k] * row[k];
        float& to = out[t * outs + r];
        to = add ? to + sum : sum;
      }
    }
  }

  template <int kHead>
  void attend(const specula::cuda::TreeAttentionGeometry& plan,
              const specula::cuda::TreeAttentionArgs<specula::cuda::BFloat16>& args) {
    namespace detail = specula::cuda::detail;
    using specula::cuda::BFloat16;
    const specula::cuda::Workspace workspace{parts_.data(), parts_.size() * sizeof(Chunk), counters_.data(),
                                             counters_.size() * sizeof(std::uint32_t)};
    if (!detail::valid_args(plan, args, workspace)) throw std::logic_error("attend: arguments");
    const auto launch = detail::make_launch(plan, args, workspace);
    const int clusters = static_cast<int>(detail::units_of(plan) * (plan.splits / plan.cluster));
    Grid grid{.clusters = clusters, .blocks = plan.cluster, .seed = seed_++, .engine = engine};
    if (!plan.wgmma) {
      detail::with_shape<kHead, BFloat16>(plan.rows, [&](auto shape) {
        using Shape = decltype(shape);
        grid.threads = Shape::kThreads, grid.shared_bytes = Shape::kSharedBytes;
        emulate(grid, [&](EmulatedCluster cluster, int index, unsigned char* shared) {
          EmulatedCopies copies;
          detail::TreeAttentionBlock<Shape, EmulatedCluster, BFloat16>(cluster, launch, index, shared)
              .run(copies);
          if (!copies.idle()) throw std::logic_error("attend: copies without a wait");
        });
        return 0;
      });
      return;
    }
    detail::with_wgmma_shape<kHead>(plan.rows, [&](auto shape) {
      using Shape = decltype(shape);
      std::vector<std::unique_ptr<HopperBlock>> blocks;
      for (int b = 0; b < clusters * plan.cluster; ++b)
        blocks.push_back(std::make_unique<HopperBlock>(
            static_cast<std::size_t>(Shape::kSharedBytes), Shape::kThreads,
            engine == Engine::threads ? -1 : static_cast<std::int64_t>(1000 * grid.seed) + b));
      grid.threads = Shape::kThreads, grid.shared_bytes = Shape::kTileBytes + Shape::kBarrierBytes;
      emulate(grid, [&](EmulatedCluster cluster, int index, unsigned char* shared) {
        EmulatedHopper copies(cluster.block(), shared,
                              *blocks[static_cast<std::size_t>(index * plan.cluster + cluster.rank())]);
        detail::attend_with_wgmma<Shape>(cluster, copies, launch, index, shared);
        if (!copies.idle()) throw std::logic_error("attend: copies or products without a wait");
      });
      return 0;
    });
  }

  struct Late {
    void* to;
    std::vector<unsigned char> bytes;
  };
  std::deque<Late> late_;
  std::size_t asked_ = 0;  // copies that are there
  bool replays_ = false;
  std::vector<std::unique_ptr<Chunk[]>> memory_;
  std::vector<Chunk> parts_;
  std::vector<std::uint32_t> counters_;
  std::set<std::tuple<int, int, int, bool>> prepared_;
  std::uint64_t seed_ = 1;
  std::size_t used_ = 0;
  int calls_ = 0;
};

}  // namespace specula_test
