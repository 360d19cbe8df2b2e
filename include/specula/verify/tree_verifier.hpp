// Verifies a proposal in one forward pass over its tree, with a tree mask (tree attention).
#pragma once

#include <cstdint>

#include "specula/base/stopwatch.hpp"
#include "specula/concepts.hpp"
#include "specula/stats.hpp"
#include "specula/verify/detail/target_verifier.hpp"

namespace specula {

namespace detail {
/// Runs the whole tree at once.
struct OnePass {
  static constexpr const char* kName = "TreeVerifier";
  void reserve(std::int32_t, std::int32_t) {}
  template <class M>
  LogitsView run(M& target, const TokenTree& tree, Usage& usage) {
    const Stopwatch watch(usage.seconds);
    target.truncate(target.size());  // a drafter that shares the KV cache may have left nodes in it
    const LogitsView rows = target.extend(tree.tokens(), tree.parents());
    ++usage.calls;
    usage.nodes += tree.size();
    return rows;
  }
  template <class M>
  void commit(M& target, const TokenTree&, Nodes path) {
    target.commit(path);
  }
};
}  // namespace detail

/// A Verifier that runs a proposal in one forward pass over its tree, with a tree mask. The model is
/// referenced and must outlive the verifier. For its members see detail::TargetVerifier.
template <class M, class R>
class TreeVerifier : public detail::TargetVerifier<M, R, detail::OnePass> {
  static_assert(
      LanguageModel<M>,
      "TreeVerifier: the target is no LanguageModel: a member is missing or has another type; it is named "
      "below, and specula/concepts.hpp lists them all");
  static_assert(
      AcceptanceRule<R>,
      "TreeVerifier: the rule is no AcceptanceRule: a member is missing or has another type; it is named "
      "below, and specula/concepts.hpp lists them all");

 public:
  /// Throws std::invalid_argument if `params` are out of range.
  TreeVerifier(M& target, R rule, SamplingParams params = {})
      : detail::TargetVerifier<M, R, detail::OnePass>(target, rule, params) {}
  TreeVerifier(M&&, R, SamplingParams = {}) = delete;
};

}  // namespace specula
