// SPDX-License-Identifier: MIT
// Node-parallel verification by rules that match the target's choices, for small batches of trees: the choice
// after every node is computed at once, and the last cluster to finish follows the tree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/last_block.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/verify/row_calls.cuh"
#include "specula/cuda/detail/verify/row_scan.cuh"
#include "specula/cuda/detail/verify/sequence_state.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The target's choice after a node.
struct NodeChoice {
  Token token;
  Status status;
  float log_prob;
};

template <class Element>
struct NodesArgs {
  VerifyArgs<Element, ChosenDraft> verify;
  NodeChoice* choices;    // (B, max_nodes)
  std::int32_t* arrived;  // (B) zeros, and zeros again afterwards
};

/// Verification from the choices.
template <class Cluster>
class ChosenSequenceVerifier : public SequenceState<Cluster> {
 public:
  template <class Element>
  SPECULA_HD ChosenSequenceVerifier(Cluster cluster, const NodesArgs<Element>& args, int sequence)
      : SequenceState<Cluster>(cluster, args.verify.trees, args.verify.out, args.verify.scan.vocab,
                               args.verify.max_nodes, args.verify.width, sequence),
        choices_(nullptr) {}

  /// The proposal and the choices, in shared memory if copied there.
  SPECULA_HD void begin(const Token* tokens, const NodeId* parents, const NodeChoice* choices) {
    choices_ = choices;
    if (!this->ok()) return;
    this->tokens_ = tokens;
    if (this->parents_) this->parents_ = parents;
    if (!this->is_tree()) this->fail(Status::bad_tree);
  }
  SPECULA_HD void refuse(Status status) { this->fail(status); }
  SPECULA_HD int size() const { return this->size_; }
  SPECULA_HD std::int32_t first_node() const { return this->begin_; }

  SPECULA_HD Token drawn(NodeId node, int) {
    const NodeChoice choice = choices_[node];
    this->fail(choice.status);
    return this->ok() ? this->emitted(choice.token) : kNoToken;
  }
  SPECULA_HD Token argmax(NodeId node, int depth) { return drawn(node, depth); }
  SPECULA_HD void put(int i, NodeId node, Token next) {
    this->put_some(
        i, 1, [&](int) { return node; }, [&](int) { return next; },
        [&](int) { return choices_[node].log_prob; });
  }

 private:
  const NodeChoice* choices_;
};

template <class Cluster>
SPECULA_HD std::size_t nodes_bytes(const ScanSize& size, int max_nodes, int warps) {
  return RowScan<Cluster>::shared_bytes(size, warps) + array_bytes<unsigned char>(kFlagBytes) +
         array_bytes<NodeChoice>(max_nodes) + array_bytes<Token>(max_nodes) + array_bytes<NodeId>(max_nodes);
}

/// The target's choice after a node whose row was read, by one warp.
template <class Cluster, class Element>
SPECULA_HD NodeChoice choice_after(NodeId node, RowScan<Cluster>& scan,
                                   ChosenSequenceVerifier<Cluster>& verifier, const Row<Element>& row,
                                   const NodeId* parents, bool cut, bool wants_log_prob) {
  const RowStats& distribution = scan.facts(0).distribution;
  int depth = 0;
  for (NodeId n = node, above = 0; n > 0; n = above, ++depth) {
    above = verifier.is_chain() ? n - 1 : parents[n];
    if (above < 0 || above >= n) break;  // no tree, as will be seen
  }
  NodeChoice choice{distribution.point, distribution.status, 0};
  if (distribution.status == Status::ok && distribution.point == kNoToken) {
    choice.token = scan.draw(cut, 0, 0, row, verifier.sample_words(depth));
    if (wants_log_prob && choice.token >= 0)
      choice.log_prob = RowScan<Cluster>::log_prob_of(row, choice.token, distribution);
  }
  return choice;
}

/// Node index % max_nodes of sequence index / max_nodes, by one cluster.
template <class Rule, class Cluster, class Element>
SPECULA_HD void verify_node(Cluster cluster, const NodesArgs<Element>& args, int index,
                            unsigned char* shared) {
  const auto& verify = args.verify;
  const auto block = cluster.block();
  const auto warp = block.warp();
  const int sequence = index / verify.max_nodes;
  const NodeId node = index % verify.max_nodes;
  if (is_vacant(cluster, verify.trees, verify.out, verify.width, sequence, node == 0)) return;
  ChosenSequenceVerifier<Cluster> verifier(cluster, args, sequence);
  SamplingParams params = verify.target.params[sequence];
  verifier.refuse(status_of(params, Rule::kTakesCuts || !Rule::kDraws));
  if (!Rule::kDraws) params = {0.0f, 0, 1.0f, 0.0f};

  using Scan = RowScan<Cluster>;
  Scan scan(cluster, verify.scan, shared);
  unsigned char* const after_scan = shared + Scan::shared_bytes(verify.scan, block.warp_count());
  std::int32_t* const flag = reinterpret_cast<std::int32_t*>(after_scan);
  NodeChoice* const choices = behind<NodeChoice>(after_scan, kFlagBytes);
  Token* const tokens = behind<Token>(choices, verify.max_nodes);
  NodeId* const parents = behind<NodeId>(tokens, verify.max_nodes);
  end_array(parents, verify.max_nodes);
  const auto check_proposal = [&] {
    if (verifier.ok())
      for (NodeId n = warp.rank(); n < verifier.size(); n += warp.size()) {
        tokens[n] = verifier.token(n);
        parents[n] = verifier.parent(n);
      }
  };

  NodeChoice choice{kNoToken, Status::ok, 0};
  if (verifier.ok() && node < verifier.size() &&
      (verify.target.row_of_node ? verifier.is_there(node) : node == 0 || verifier.token(node) >= 0)) {
    const std::int64_t at = verify.target.row_of_node
                                ? verify.target.row_of_node[verifier.first_node() + node]
                                : static_cast<std::int64_t>(verifier.first_node()) + node;
    const Row<Element> row{verify.target.logits + at * verify.target.stride, verify.scan.vocab};
    const auto row_of = [&](int) { return row; };
    scan.template read<Element>(1, row_of, params, true, check_proposal, [](int) {});
    const bool cut = Rule::kDraws && Rule::kTakesCuts && is_cut(params);
    if constexpr (Rule::kDraws && Rule::kTakesCuts)
      if (cut) {
        block.sync();
        const bool kept = scan.template truncate<Element>(1, row_of, params);
        block.sync();
        if (!kept) scan.template keep<Element>(0, 1, row_of);
      }
    if (cluster.rank() == 0 && block.warp_rank() == 0)
      choice = choice_after(node, scan, verifier, row, parents, cut, verify.out.log_prob != nullptr);
  } else {
    scan.leave();
    if (block.warp_rank() == 0) check_proposal();
  }
  if (cluster.rank() != 0) return;
  if (block.rank() == 0) args.choices[index] = choice;
  if (!is_last_to_arrive(block, args.arrived + sequence, verify.max_nodes, flag)) return;
  const NodeChoice* const chosen = args.choices + static_cast<std::int64_t>(sequence) * verify.max_nodes;
  for (NodeId n = block.rank(); n < verify.max_nodes; n += block.size()) choices[n] = chosen[n];
  block.sync();
  if (block.warp_rank() != 0) return;
  verifier.begin(tokens, parents, choices);
  Rule::decide(verifier);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
