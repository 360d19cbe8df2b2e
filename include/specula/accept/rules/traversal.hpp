// SPDX-License-Identifier: MIT
// Traversal verification: verifies a token tree from the leaves to the root. C++17.
#pragma once

#include "specula/accept/rules/verifier.hpp"

namespace specula::rules {

/// See specula::Traversal; on a chain it is specula::Block.
/// **Draws.** As there. **Cost.** As there. **Throws.** Nothing. **Source.** As there.
template <class Verifier>
SPECULA_HD void traversal(Verifier& verifier) {
  NodeId owner = kNoParent;  // the node whose residual the verifier holds
  int depth = 0;             // of `at`
  const auto enter = [&](NodeId node, double weight) {
    verifier.change(node, [&](auto& n) { n.weight = weight; });
  };
  const auto reject = [&](NodeId parent, NodeId child) {
    if (owner != parent) {
      int tried = 0;
      for (NodeId c = verifier.next_child(parent, parent); c != child; c = verifier.next_child(parent, c))
        ++tried;
      verifier.start_residual(parent, verifier.state(parent).distribution, tried);
      owner = parent;
    }
    const double weight = verifier.state(parent).weight, kept = verifier.reject(weight);
    const double after = kept > 0 ? kept / (kept + (1 - weight)) : 0;
    verifier.change(parent, [&](auto& n) { n.weight = after; });
  };
  NodeId at = 0, from = 0;  // the children of `at` from `from` on are not tried yet
  NodeId last = kNoParent;  // the child of `at` that was tried and whose rejection is not recorded yet
  verifier.check_proposal();
  enter(0, 1);
  while (verifier.ok()) {
    const NodeId child = verifier.next_child(at, from);
    // After its children a node is accepted with its weight, or rejected. Its weight with the last
    // child's rejection is at most its weight before, so a uniform draw above the latter needs no row.
    const auto is_rejected = [&] {
      return child == kNoParent && at != 0 && !verifier.accept(verifier.state(at).weight, at, depth);
    };
    bool up = is_rejected();
    if (!up && last != kNoParent) {
      reject(at, last);
      up = is_rejected();
    }
    if (up) {
      last = from = at;
      at = verifier.parent(at);
      --depth;
      continue;
    }
    const bool first = from == at;
    if (first) {
      const auto& distribution = verifier.distribution(at, depth);
      verifier.change(at, [&](auto& n) { n.distribution = distribution; });
      if (!verifier.ok()) break;
    }
    if (child == kNoParent) break;
    const double target_prob =
        first ? verifier.target_prob(verifier.state(at).distribution, child) : verifier.residual_prob(child);
    const double ratio = verifier.state(at).weight * target_prob / verifier.draft_prob(child);
    enter(child, ratio >= 1 ? 1.0 : ratio > 0 ? ratio : 0.0);  // 0 / 0 is 0
    if (verifier.state(child).weight > 0) {
      at = from = child;
      ++depth;
      last = kNoParent;
    } else {
      from = last = child;
    }
  }
  if (!verifier.ok()) {
    verifier.finish(0);
    return;
  }
  // After a rejection the verifier holds the residual of `at`; a leaf has none.
  Token next = from == at ? verifier.sample(at, verifier.state(at).distribution, depth)
                          : verifier.sample_residual(depth);
  NodeId node = at;
  for (int i = depth; i >= 0 && verifier.ok(); --i) {
    verifier.put(i, node, next);
    next = verifier.token(node);
    node = verifier.parent(node);
  }
  verifier.finish(depth + 1);
}

}  // namespace specula::rules
