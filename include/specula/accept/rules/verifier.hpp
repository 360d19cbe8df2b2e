// SPDX-License-Identifier: MIT
// The verifier concept: the interface that the acceptance rules of this folder are written over. C++17.
#pragma once

#include "specula/base/host_device.hpp"
#include "specula/base/tokens.hpp"

// Each exact rule is one function template, rule(verifier), over the verification of one sequence. The
// `verifier` is one of
//
//   accept/exact_rules.hpp                 a TokenTree and the target's rows on the CPU
//   cuda/detail/verify/sequence_verifier.cuh      rows on a device, one cluster of thread blocks per sequence
//   cuda/api/verify_sharded.cuh         partial results gathered from shards; for matching and rejection
//   cuda/detail/verify/verify_nodes.cuh           tokens chosen for all nodes beforehand; for matching
//
// and has the members below. Nodes are numbered from the root, 0; `depth` is the depth of the node in the
// same call, 0 for the root. p is the target's distribution after a node, q the one that a draft token was
// drawn from, given its earlier siblings. Where no cost is given, only the proposal is read.
//
// clang-format off
//
//   proposal
//     bool   ok()                       false after a bad row or proposal; then the rule stops and calls
//                                       finish()
//     void   check_proposal()           for a rule that visits nodes before it reads a distribution
//     Token  token(node)
//     NodeId parent(node)
//     NodeId next_child(node, after)    the child in drawing order after child `after`; the first after
//                                       `node` itself; kNoParent after the last
//     NodeId child_with(node, token)    the first child with this token, or kNoParent
//
//   distributions; all but the last two read the node's row of V logits
//     Token  argmax(node, depth)        first of the largest logits
//     Token  drawn(node, depth)         a token drawn from p
//     auto   distribution(node, depth)  p; of an opaque type that the rule passes back; may be a reference,
//                                       valid until the next row is read
//     Token  sample(node, p, depth)     a token drawn from p, which was read last: O(V / 512)
//     double target_prob(p, child)      p of the child's token, p being after its parent: O(1)
//     double draft_prob(child)          q of the child's token: O(1), on the CPU O(earlier siblings)
//
//   uniform draws: each node has one, each depth one for sample() and drawn(), and one for sample_residual()
//     bool   accept(probability, node, depth) whether the node's draw is below `probability`; false for NaN
//     NodeId accept_chain()             may accept the first nodes of a chain by rejection sampling, and
//                                       put() them; returns the last of them, else the root
//
//   the residual: p after rejections, of one node at a time
//     void   start_residual(node, p, tried) starts from p; the first `tried` children were tried before, and the
//                                       rejections that their states hold are repeated. Reads nothing
//     double residual_prob(child)       residual probability of the child's token: O(rejections)
//     double reject(weight)             makes the residual norm((weight * residual - q)+), q being that of
//                                       the first child not tried yet, and records it in the child's state;
//                                       returns the mass before norm, or 0, and then changes nothing, if
//                                       rounding leaves none. Reads the target's row and the draft's; for a
//                                       chosen token at most 512 logits
//     Token  sample_residual(depth)     a token drawn from the residual: O(V / 512), or as reject() if that
//                                       read nothing
//
//   states of nodes, for rules that return to a node
//     const auto& state(node)           has `distribution` and `weight`; the rest is the verifier's
//     void   change(node, f)            f(state)
//
//   result
//     void   put(i, node, next)         element i of the accepted path, and the token after it; from the
//                                       first to the last, or from the last to the first
//     void   finish(count)              ends the result after `count` elements, or without any if not ok()
//
// clang-format on
