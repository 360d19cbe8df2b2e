// SPDX-License-Identifier: MIT
// Tensor-parallel verification, the vocabulary split over several GPUs: partials | all-gather | decide.
//
// Work: partials_kernel has one warp per node and tile of 512 tokens; decide_kernel one per sequence.
// Traffic: partials_kernel holds its tile in registers; decide_kernel reads gathered partials and no rows.
// Forms: partials_kernel by element type; decide_kernel by ShardedRule (greedy, sample-and-match, rejection).
// Reference: accept/exact_rules.hpp; tests/cuda/api/verify_sharded.cpp; bench/cuda/verification_sharded.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/sharded.cu
// Check: scripts/gpu --out FOLDER --sections check (program verification).
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/shards.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/primitives/warp/tile_distribution.cuh"
#include "specula/cuda/detail/primitives/warp/tile_masses.cuh"
#include "specula/cuda/detail/verify/rules.cuh"
#include "specula/cuda/detail/verify/sequence_state.cuh"

namespace specula {
namespace cuda {

namespace detail {

/// One tile after one node by one warp. Tiles and tokens are those of the whole vocabulary.
template <class Warp, class Element>
SPECULA_HD TilePartial tile_partial(Warp warp, const Trees& trees, const ShardRows<Element>& rows,
                                    int sequence, NodeId node, int tile, float* child_logits) {
  const std::int32_t begin = trees.begin[sequence], size = trees.begin[sequence + 1] - begin;
  const auto parent = [&](NodeId n) { return trees.parent ? trees.parent[begin + n] : n - 1; };
  const SamplingParams params = rows.params[sequence];
  const bool greedy = !(params.temperature > 0);
  const float scale = static_cast<float>((greedy ? 1.0 : inverse(params.temperature)) * kLog2E);
  const int lane = warp.rank(), local = tile - rows.first_token / kTile;
  const Row<Element> row{rows.logits + (static_cast<std::int64_t>(begin) + node) * rows.stride, rows.tokens};

  float x[kPerLane], w[kPerLane];
  const TileStats stats = tile_stats(warp, load_tile<Order::columns>(lane, row, local), scale);
  TilePartial out{stats.maximum, stats.sum, 0, kNoToken, kNoToken, kNoToken};

  // From here on in the order of the tokens.
  unpack(load_tile<Order::run>(lane, row, local), x);
  int place = kTile;
  SPECULA_UNROLL
  for (int i = kPerLane - 1; i >= 0; --i)
    if (x[i] == stats.maximum) place = kPerLane * lane + i;
  place = reduce(warp, place, Min{});
  if (place < kTile) out.first = tile * kTile + place;
  const TileWeights weight(stats.maximum, scale);
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) w[i] = stats.maximum == -infinity() ? 0.0f : weight(x[i]);

  int depth = 0;
  for (NodeId n = node; n > 0 && n < size && depth < size; n = parent(n)) ++depth;  // ends on bad trees, too
  const std::int32_t origin = trees.position[sequence];
  const PhiloxRandom rng{trees.seed[sequence], trees.sequence ? trees.sequence[sequence] : 0};
  const auto take = [&](int first, float(&to)[4]) {
    SPECULA_UNROLL
    for (int i = 0; i < kPerLane; ++i)
      if (first % kPerLane == i / 4 * 4) to[i % 4] = w[i];
  };
  out.sample =
      draw_inside(warp, tile, uniform(rng.words(specula::detail::sample_key(origin, depth)).y), take);
  for (NodeId c = node + 1; c < size; ++c) {
    const Token token = trees.token[begin + c];
    if (parent(c) != node || token < 0) continue;
    const bool here = token >= rows.first_token && token - rows.first_token < rows.tokens;
    if (!here && local == 0 && lane == 0) child_logits[begin + c] = -infinity();
    if (token / kTile != tile) continue;
    SPECULA_UNROLL
    for (int i = 0; i < kPerLane; ++i)
      if (kPerLane * lane + i == token % kTile) {
        child_logits[begin + c] = x[i];
        w[i] = 0;
      }
  }
  double left = 0;
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) left += static_cast<double>(w[i]);
  out.rest = static_cast<float>(reduce(warp, left, Sum{}));
  out.residual =
      draw_inside(warp, tile, uniform(rng.words(specula::detail::residual_key(origin, depth)).y), take);
  return out;
}

/// The distributions along a proposal from gathered partials: replaces SequenceVerifier, for chosen draft
/// tokens.
template <class Cluster>
class ShardedSequenceVerifier : public SequenceState<Cluster> {
 public:
  SPECULA_HD ShardedSequenceVerifier(Cluster cluster, const Trees& trees, const ParamArrays& params,
                                     const VerifyResults& out, const GatheredPartials& gathered, int vocab,
                                     int nodes, int max_nodes, int width, int sequence)
      : SequenceState<Cluster>(cluster, trees, out, vocab, max_nodes, width, sequence),
        gathered_(gathered),
        nodes_(nodes) {
    if (this->ok() && (this->begin_ + this->size_ > nodes || !this->is_tree())) this->fail(Status::bad_tree);
    params_ = params[sequence];
    this->fail(status_of(params_, false));
  }

  SPECULA_HD const RowStats& distribution(NodeId node, int) {
    return now_ = distribution_at(node, params_.temperature);
  }
  SPECULA_HD Token argmax(NodeId node, int) { return distribution_at(node, 0).point; }
  SPECULA_HD Token drawn(NodeId node, int depth) {
    const RowStats p = distribution(node, depth);
    return this->ok() ? sample(node, p, depth) : kNoToken;
  }
  SPECULA_HD NodeId accept_chain() const { return 0; }
  SPECULA_HD void put(int i, NodeId node, Token next) {
    this->put_some(
        i, 1, [&](int) { return node; }, [&](int) { return next; }, [](int) { return 0.0f; });
  }
  SPECULA_HD double target_prob(const RowStats& distribution, NodeId child) const {
    if (distribution.point != kNoToken) return this->token(child) == distribution.point ? 1.0 : 0.0;
    float logit = -infinity();
    for (int s = 0; s < gathered_.shards; ++s)
      logit =
          larger(logit, gathered_.child_logits[static_cast<std::int64_t>(s) * nodes_ + this->begin_ + child]);
    return prob(logit, distribution);
  }
  SPECULA_HD double draft_prob(NodeId) const { return 1; }
  SPECULA_HD Token sample(NodeId node, const RowStats& distribution, int depth) {
    if (distribution.point != kNoToken) return distribution.point;
    const int tile = pick_tile(
        warp(), tiles(), [&](int t) { return masses_(partial(node, t).maximum, partial(node, t).sum); },
        this->sample_words(depth).x);
    return this->emitted(tile < 0 ? kNoToken : partial(node, tile).sample);
  }

  // The residual of p after rejections: p without the tokens of the rejected children.
  SPECULA_HD void start_residual(NodeId node, const RowStats& distribution, int) {
    owner_ = node;
    distribution_ = distribution;
    last_ = node;
    total_ = 1;
  }
  SPECULA_HD double residual_prob(NodeId child) const {
    return is_rejected(this->token(child)) ? 0.0 : target_prob(distribution_, child) / total_;
  }
  SPECULA_HD double reject(double) {
    const NodeId child = this->next_child(owner_, last_);
    const double before = total_, left = before - residual_prob(child) * before;
    last_ = child;
    if (!(left > 0)) return 0;
    total_ = left;
    return left / before;
  }
  SPECULA_HD Token sample_residual(int depth) {
    if (distribution_.point != kNoToken) return distribution_.point;
    const Words words = this->residual_words(depth);
    const auto rest = [&](int t) {
      return masses_.as_float(partial(owner_, t).maximum, partial(owner_, t).rest);
    };
    const FloatMasses left(warp(), tiles(), rest);
    const int tile = pick_tile(
        warp(), tiles(), [&](int t) { return left.whole(rest(t)); }, words.x);
    if (tile >= 0) return this->emitted(partial(owner_, tile).residual);
    const int any = pick_tile(  // rounding left nothing
        warp(), tiles(), [&](int t) { return masses_(partial(owner_, t).maximum, partial(owner_, t).sum); },
        words.x);
    return this->emitted(any < 0 ? kNoToken : partial(owner_, any).sample);
  }

 private:
  SPECULA_HD auto warp() const { return this->cluster_.block().warp(); }
  SPECULA_HD int tiles() const { return tile_count(this->vocab_); }
  SPECULA_HD const TilePartial& partial(NodeId node, int tile) const {
    const std::int64_t shard = tile / gathered_.tiles_of_shard;
    return gathered_.tiles[(shard * nodes_ + this->begin_ + node) * gathered_.tiles_of_shard +
                           tile % gathered_.tiles_of_shard];
  }
  SPECULA_HD bool is_rejected(Token token) const {
    for (NodeId c = this->next_child(owner_, owner_); c != kNoParent && c <= last_ && last_ != owner_;
         c = this->next_child(owner_, c))
      if (this->token(c) == token) return true;
    return false;
  }

  SPECULA_HD RowStats distribution_at(NodeId node, float temperature) {
    RowStats out{0, 0, temperature, -infinity(), kNoToken, Status::ok};
    if (!this->ok()) return out;
    const auto maximum = [&](int t) { return partial(node, t).maximum; };
    const TileDistribution tiles_of(warp(), tiles(), temperature, maximum,
                                    [&](int t) { return partial(node, t).sum; });
    masses_ = tiles_of.masses;
    out.status = tiles_of.status;
    this->fail(out.status);
    if (out.status != Status::ok) return out;
    if (temperature == 0.0f) {
      out.point = partial(node, tiles_of.top_tile(warp(), tiles(), maximum)).first;
    } else {
      out.shift = tiles_of.top;
      out.log_z = tiles_of.log_z();
    }
    return out;
  }

  const GatheredPartials& gathered_;
  int nodes_;
  SamplingParams params_{};
  RowMasses masses_;  // of the last requested distribution
  NodeId owner_ = kNoParent, last_ = kNoParent;
  RowStats now_{}, distribution_{};  // asked for last, and the residual's
  double total_ = 1;
};

#ifdef __CUDACC__

template <class Element>
__global__ void __launch_bounds__(256, 1)
    partials_kernel(const __grid_constant__ Trees trees, const __grid_constant__ ShardRows<Element> rows,
                    int sequences, int tiles_of_shard, int blocks_a_node, TilePartial* tiles,
                    float* child_logits) {
  const DeviceWarp warp;
  const std::int32_t node = static_cast<std::int32_t>(blockIdx.x) / blocks_a_node;
  if (trees.sequence_count) sequences = smaller(sequences, *trees.sequence_count);
  if (node >= trees.begin[sequences]) return;
  const int b = sequence_of(trees.begin, sequences, node), tiles_here = tile_count(rows.tokens);
  const int local = static_cast<int>(blockIdx.x) % blocks_a_node * (static_cast<int>(blockDim.x) / 32) +
                    static_cast<int>(threadIdx.x) / 32;
  if (local >= tiles_here) return;
  if (trees.begin[b + 1] > static_cast<std::int32_t>(gridDim.x) / blocks_a_node) return;  // above capacity
  const TilePartial out = tile_partial(warp, trees, rows, b, node - trees.begin[b],
                                       rows.first_token / kTile + local, child_logits);
  if (warp.rank() == 0) tiles[static_cast<std::int64_t>(node) * tiles_of_shard + local] = out;
}

template <class Rule>
__global__ void __launch_bounds__(32, 1)
    decide_kernel(const __grid_constant__ Trees trees, const __grid_constant__ ParamArrays params,
                  const __grid_constant__ VerifyResults out,
                  const __grid_constant__ GatheredPartials gathered, int vocab, int nodes, int max_nodes,
                  int width) {
  const int sequence = static_cast<int>(blockIdx.x);
  if (is_vacant(DeviceCluster{}, trees, out, width, sequence)) return;
  ShardedSequenceVerifier<DeviceCluster> verifier(DeviceCluster{}, trees, params, out, gathered, vocab, nodes,
                                                  max_nodes, width, sequence);
  Rule::decide(verifier);
}

#endif  // __CUDACC__

}  // namespace detail

#ifdef __CUDACC__

/// This shard's partials of every row of the batch, since no shard knows the path. `nodes` is the batch's
/// capacity, N. Writes (N, tiles_of_shard) partials, 24 bytes each, and (N) logits of children; both are then
/// gathered over the shards. Entries without a node or tile of this shard (roots' and padding's logits,
/// further tiles) are not written, nor read afterwards. One launch. Cost: one read of the shard's rows.
/// Errors: cudaErrorInvalidValue where a number is below 1, first_token no multiple of 512 from 0 on,
/// tiles_of_shard less than this shard's, an array null or misaligned, or rows overlap; else the launch's
/// error.
/// @code
/// const ShardRows<BFloat16> mine{logits, tokens, first_token, tokens, params};  // (N, tokens) of this GPU
/// shard_partials(trees, mine, sequences, nodes, tiles_of_shard, my_tiles, my_child_logits, stream);
/// @endcode
template <class Element>
cudaError_t shard_partials(const Trees& trees, const ShardRows<Element>& rows, int sequences, int nodes,
                           int tiles_of_shard, TilePartial* tiles, float* child_logits, cudaStream_t stream) {
  const int tiles_here = detail::tile_count(rows.tokens), blocks_a_node = detail::ceil_div(tiles_here, 8);
  if (sequences < 1 || nodes < 1 || !detail::valid_shard(rows, nodes) || tiles_here > tiles_of_shard ||
      nodes > (std::int64_t{1} << 31) / blocks_a_node - 1 || !detail::valid_trees(trees) ||
      detail::any_null({tiles, child_logits}) || detail::any_misaligned(tiles, child_logits))
    return cudaErrorInvalidValue;
  return detail::launch(detail::partials_kernel<Element>, nodes * blocks_a_node, 1, 256, 0, stream, trees,
                        rows, sequences, tiles_of_shard, blocks_a_node, tiles, child_logits);
}

/// The verification result from gathered partials, on every GPU alike, whatever the number of shards: as
/// verify_trees() by a plan of the same rule and of chosen draft tokens. Rows of `out` have max_depth + 1
/// elements. A cut is refused (Status::truncation_is_not_planned): its threshold would take another exchange,
/// as drawn draft tokens would. `params`, (B), are those of the partials; null: temperature 1. Greedy does
/// not read them. Errors: cudaErrorInvalidValue for capacities out of range, null or misaligned arrays,
/// fewer tiles than the vocabulary has, and a log_prob, since no logit of a drawn token is gathered; else the
/// launch's error.
/// @code
/// // after an all-gather, in the same stream, of my_tiles and of my_child_logits
/// const GatheredPartials gathered{all_tiles, all_child_logits, shards, tiles_of_shard};
/// decide(ShardedRule::sample_and_match, capacity, nodes, trees, params, gathered, results, stream);
/// @endcode
inline cudaError_t decide(ShardedRule rule, const VerifyCapacity& capacity, int nodes, const Trees& trees,
                          ParamArrays params, const GatheredPartials& gathered, const VerifyResults& out,
                          cudaStream_t stream) {
  if (rule == ShardedRule::greedy) params = nullptr;
  if (!detail::valid_capacity(capacity) || nodes < 1 || !detail::valid_trees(trees) ||
      !detail::valid_results(out) || out.log_prob || !detail::is_aligned(params) ||
      !detail::valid_gathered(gathered, capacity.vocab))
    return cudaErrorInvalidValue;
  const auto kernel = rule == ShardedRule::greedy ? detail::decide_kernel<detail::GreedyRule>
                      : rule == ShardedRule::sample_and_match
                          ? detail::decide_kernel<detail::SampleAndMatchRule>
                          : detail::decide_kernel<detail::RejectionRule>;
  return detail::launch(kernel, capacity.sequences, 1, 32, 0, stream, trees, params, out, gathered,
                        capacity.vocab, nodes, capacity.max_nodes, capacity.max_depth + 1);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
