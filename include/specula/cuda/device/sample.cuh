// Draws tokens from rows of logits on the device: plain sampling, and a draft's guesses with the law they
// came from.
#pragma once

#include "../block/row_scan.cuh"
#include "../detail/host_device.cuh"
#include "../thread/coins.cuh"
#include "../types.cuh"
#include "launch.cuh"

namespace specula {
namespace cuda {

/// What to draw. All arrays are on the device; B sequences, R rows. The coin of draw d of row r is that of
/// the site (position[r], origin[r], stream, index[r] + d).
template <class Element>
struct SampleArgs {
  const Element* logits;                          // (R, V), rows `stride` elements apart
  std::int64_t stride;                            // 64 bits: offsets never wrap
  const std::uint64_t* seed;                      // (B)
  const std::int32_t* position;                   // (R) in its text, of the token that is drawn
  const SamplingParams* params = nullptr;         // (B); null: the law of the softmax itself
  const std::int32_t* sequence_of_row = nullptr;  // (R) in [0, B); null: row r is of sequence r
  const std::uint32_t* sequence = nullptr;        // (B) of specula::PhiloxChance; null: 0
  Stream stream = Stream::sample;                 // plain sampling has origin and index 0
  const std::int32_t* origin = nullptr;           // (R) the root's position; null: 0
  const std::uint32_t* index = nullptr;           // (R) a counter of the round, as the node's slot; null: 0
  const std::int32_t* row_count = nullptr;  // how many of the plan's rows there are this time; null: all
  bool distinct = false;                    // draws of a row are without replacement; else independent

  Token* token;               // (R, draws); kNoToken where a row is bad, or nothing distinct is left
  RowStats* stats = nullptr;  // (R) the law that was drawn from, and the row's status
  float* prob = nullptr;      // (R, draws) the law's probability of the token
  double* scale =
      nullptr;  // (R, draws) what the law is multiplied by: 1 over the mass that earlier draws left
};

/// Capacities: rows at most, draws of each, vocabulary.
struct SamplePlan {
  int rows = 0, draws = 1, vocab = 0;
  int cluster = 1, threads = 256;
  std::size_t shared_bytes = 0;
};

namespace detail {

/// One row by one cluster.
template <class Cluster, class Element>
SPECULA_HD void sample_row(Cluster cluster, int r, unsigned char* shared, const SampleArgs<Element>& args,
                           int vocab, int draws) {
  if (args.row_count && r >= *args.row_count) return;
  const auto block = cluster.block();
  const auto warp = block.warp();
  const int b = args.sequence_of_row ? args.sequence_of_row[r] : r;
  SamplingParams params;
  if (args.params) params = args.params[b];
  const Coins coins{args.seed[b], args.sequence ? args.sequence[b] : 0};
  const Row<Element> row{args.logits + r * args.stride, vocab};
  RowScan<Cluster> scan(cluster, vocab, shared);
  Token* const drawn = reinterpret_cast<Token*>(shared + RowScan<Cluster>::shared_bytes(vocab));
  RowStats law{0, 0, params.temperature, 0, kNoToken, Status::bad_parameters};
  if (valid(params)) law = scan.law(row, params);

  const bool ok = law.status == Status::ok, point = law.point != kNoToken;
  const Exponent exponent = point || !ok ? Exponent() : Exponent(law);
  int without = 0;  // draws that may not come again
  const auto fill = [&](int first, float(&w)[4]) {
    load_four(row, first, w);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) {
      w[e] = exponent.weight(w[e]);
      for (int d = 0; d < without; ++d)
        if (drawn[d] == first + e) w[e] = 0;
    }
  };

  double total = 1;  // mass that is not taken out
  for (int d = 0; d < draws; ++d) {
    Token token = kNoToken;
    if (ok && point) {
      token = args.distinct && d > 0 ? kNoToken : law.point;
    } else if (ok && total > 0) {
      const Words words = coins.words({args.position[r], args.origin ? args.origin[r] : 0, args.stream,
                                       (args.index ? args.index[r] : 0) + static_cast<std::uint32_t>(d)});
      const int tile = scan.pick_tile(coin(words.x));
      if (tile >= 0) token = draw_inside(warp, tile, coin(words.y), fill);
    }
    if (cluster.rank() == 0 && block.rank() == 0) {
      const std::int64_t at = static_cast<std::int64_t>(r) * draws + d;
      args.token[at] = token;
      if (args.prob)
        args.prob[at] = token == kNoToken ? 0.0f : point ? 1.0f : static_cast<float>(prob(row[token], law));
      if (args.scale) args.scale[at] = token == kNoToken ? 0.0 : 1.0 / total;
    }
    if (!args.distinct || point || d + 1 == draws) continue;
    if (token == kNoToken) {
      total = 0;
      continue;
    }
    if (block.rank() == 0) drawn[d] = token;
    block.sync();
    without = d + 1;
    total = scan.remeasure([&](int tile) { return tile == token / kTile; }, fill);
  }
  if (args.stats && cluster.rank() == 0 && block.rank() == 0) args.stats[r] = law;
  cluster.sync();  // no block may leave while another reads its shared memory
}

#ifdef __CUDACC__
template <class Element>
__global__ void __launch_bounds__(256, 1)
    sample_kernel(const __grid_constant__ SampleArgs<Element> args, int vocab, int draws) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  sample_row(cluster, static_cast<int>(blockIdx.x) / cluster.size(), shared, args, vocab, draws);
}
#endif

}  // namespace detail

#ifdef __CUDACC__

/// Outside of captures. Errors: cudaErrorInvalidValue where a capacity is below 1, or the vocabulary needs
/// more shared memory than a block has; else what the driver says.
template <class Element>
cudaError_t make_sample_plan(SamplePlan* plan, int rows, int draws, int vocab, int device) {
  if (rows < 1 || draws < 1 || vocab < 1) return cudaErrorInvalidValue;
  SamplePlan out;
  out.rows = rows;
  out.draws = draws;
  out.vocab = vocab;
  out.shared_bytes =
      detail::RowScan<DeviceCluster>::shared_bytes(vocab) + static_cast<std::size_t>(draws) * sizeof(Token);
  const cudaError_t error = detail::plan_clusters(detail::sample_kernel<Element>, rows, vocab, out.threads,
                                                  out.shared_bytes, device, &out.cluster);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// Draws plan.draws tokens of each row, with the coins and the cut of the CPU's specula::PhiloxChance and
/// SamplingParams: the same seed gives the same text, whatever the batch, the slot and the device. One
/// launch. Cost: one read of each row, and a tile a draw; a cut reads again what of the row reaches it.
/// Errors: what the launch says.
template <class Element>
cudaError_t sample(const SamplePlan& plan, const SampleArgs<Element>& args, cudaStream_t stream) {
  return detail::launch(detail::sample_kernel<Element>, plan.rows, plan.cluster, plan.threads,
                        plan.shared_bytes, stream, args, plan.vocab, plan.draws);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
