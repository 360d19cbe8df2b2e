// SPDX-License-Identifier: MIT
// Shared-memory layout of verification in each block, apart from its scans.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/verify/residual.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Per-node state of verification.
struct NodeState {
  RowStats distribution;  // p after it, once it was read
  double weight;          // the mass that a rule carries to it
  double keep,
      total;  // of its rejection: p was multiplied by `keep`, and `total` was left; keep 0: none
};

/// Calls to the other warps: read rows, measure a cut's kept masses, measure a residual; none: end.
enum class Work : std::int32_t { none, rows, kept, residual };
/// Contents of the tiles' table: the rows that were read last, their cuts' kept masses, a residual, or
/// nothing that is needed.
enum class Holds : std::int32_t { statistics, kept, residual, other };
/// A call: the work on the rows of `rows` nodes from `first` on, at `depth`; and its results.
struct alignas(16) Post {
  Work work;
  NodeId first;
  int rows, depth;
  Holds holds;
  int set;              // of the table
  int barriers;         // of the cluster, so far
  int last_barrier[2];  // indexed by the barrier's number modulo 2: while one is read, a
                        // thread that is one barrier ahead may write the other
};

/// The part whose size does not depend on the number of nodes.
struct alignas(16) SharedPart {
  Post post;
  Residual residual;
  SamplingParams params;
};

/// The whole layout, for a proposal of at most max_nodes. Addresses are recomputed on each use, since
/// verifiers are short of registers. `kReadsDraft`: p and q of draft tokens matter.
template <bool kReadsDraft>
class VerifierMemory {
 public:
  /// Size of the layout, a multiple of 16.
  SPECULA_HD static std::size_t bytes(const ScanSize& size, int max_nodes) {
    return round_up(drawn_at(max_nodes) + array_bytes<Token>(size.rows), std::size_t{16});
  }

  SPECULA_HD VerifierMemory(unsigned char* shared, int max_nodes, int rows)
      : shared_(shared), max_nodes_(max_nodes) {
    end_array(&shared_part(), 1);
    end_array(draft_tokens(), of_draft(max_nodes));
    end_array(all_states(), of_draft(max_nodes));
    end_array(siblings(), of_draft(max_nodes));
    end_array(near_tokens(), max_nodes);
    end_array(near_parents(), max_nodes);
    end_array(all_drawn(), rows);
  }

  SPECULA_HD SharedPart& shared_part() const { return *reinterpret_cast<SharedPart*>(shared_); }
  SPECULA_HD Post& post() const { return shared_part().post; }
  SPECULA_HD Residual& residual() const { return shared_part().residual; }
  SPECULA_HD const SamplingParams& params() const { return shared_part().params; }
  /// (max_nodes) Of nodes that are neither root nor padding.
  SPECULA_HD DraftToken* draft_tokens() const {
    return reinterpret_cast<DraftToken*>(shared_ + kDraftTokensAt);
  }
  /// (max_nodes)
  SPECULA_HD NodeState* all_states() const {
    return reinterpret_cast<NodeState*>(shared_ + states_at(max_nodes_));
  }
  /// (max_nodes) The children of the residual's node, in order.
  SPECULA_HD Sibling* siblings() const {
    return reinterpret_cast<Sibling*>(shared_ + siblings_at(max_nodes_));
  }
  /// (max_nodes) The proposal.
  SPECULA_HD Token* near_tokens() const { return reinterpret_cast<Token*>(shared_ + tokens_at(max_nodes_)); }
  SPECULA_HD NodeId* near_parents() const {
    return reinterpret_cast<NodeId*>(shared_ + parents_at(max_nodes_));
  }
  /// (rows) The tokens after the rows that were read last.
  SPECULA_HD Token* all_drawn() const { return reinterpret_cast<Token*>(shared_ + drawn_at(max_nodes_)); }

 private:
  static constexpr std::size_t kDraftTokensAt = array_bytes<SharedPart>(1);
  SPECULA_HD static constexpr int of_draft(int max_nodes) { return kReadsDraft ? max_nodes : 0; }
  /// Offsets of the arrays of max_nodes, those of the strictest alignment first.
  SPECULA_HD static std::size_t states_at(int max_nodes) {
    return kDraftTokensAt + array_bytes<DraftToken>(of_draft(max_nodes));
  }
  SPECULA_HD static std::size_t siblings_at(int max_nodes) {
    return states_at(max_nodes) + array_bytes<NodeState>(of_draft(max_nodes));
  }
  SPECULA_HD static std::size_t tokens_at(int max_nodes) {
    return siblings_at(max_nodes) + array_bytes<Sibling>(of_draft(max_nodes));
  }
  SPECULA_HD static std::size_t parents_at(int max_nodes) {
    return tokens_at(max_nodes) + array_bytes<Token>(max_nodes);
  }
  SPECULA_HD static std::size_t drawn_at(int max_nodes) {
    return parents_at(max_nodes) + array_bytes<NodeId>(max_nodes);
  }

  unsigned char* shared_;
  int max_nodes_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
