// SPDX-License-Identifier: MIT
// A plan that was made for one rule, element or kind of draft is refused by another at compile time.
#include <specula/cuda/api/sample.cuh>
#include <specula/cuda/api/top_k_distillation.cuh>
#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/api/verify_matching.cuh>

#include <type_traits>
#include <utility>

using namespace specula::cuda;

template <class Call, class... Arguments>
constexpr bool takes(Call, const Arguments*...) {
  return std::is_invocable<Call, const Arguments&...>::value;
}
template <class T>
constexpr const T* a = nullptr;

using Rows = TargetRows<BFloat16>;
using Logits = LogitsDraft<BFloat16>;

void verification() {
  const auto call = [](const auto& plan, const auto& rows,
                       const auto& draft) -> decltype(verify_trees(plan, std::declval<const Trees&>(), rows, draft,
                                                             std::declval<const VerifyResults&>(), nullptr)) {
    return cudaSuccess;
  };
  static_assert(takes(call, a<RejectionPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(takes(call, a<TraversalPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(takes(call, a<BlockPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(takes(call, a<Untruncated<RejectionPlan<BFloat16, Logits>>>, a<Rows>, a<Logits>));
  static_assert(takes(call, a<Untruncated<BlockPlan<BFloat16, Logits>>>, a<Rows>, a<Logits>));
  static_assert(!takes(call, a<Untruncated<RejectionPlan<BFloat16, ChosenDraft>>>, a<Rows>, a<Logits>));
  static_assert(!takes(call, a<RejectionPlan<Half, Logits>>, a<Rows>, a<Logits>));
  static_assert(!takes(call, a<RejectionPlan<BFloat16, ChosenDraft>>, a<Rows>, a<Logits>));
  static_assert(!takes(call, a<BlockPlan<BFloat16, Logits>>, a<TargetRows<float>>, a<Logits>));
  static_assert(!takes(call, a<GreedyPlan<BFloat16>>, a<Rows>, a<ChosenDraft>));
  const auto match = [](const auto& plan, const auto& rows)
      -> decltype(verify_trees(plan, std::declval<const Trees&>(), rows, std::declval<const VerifyResults&>(),
                         std::declval<const Workspace&>(), nullptr)) { return cudaSuccess; };
  static_assert(takes(match, a<GreedyPlan<BFloat16>>, a<Rows>));
  static_assert(takes(match, a<SampleAndMatchPlan<BFloat16>>, a<Rows>));
  static_assert(takes(match, a<Untruncated<SampleAndMatchPlan<BFloat16>>>, a<Rows>));
  static_assert(!takes(match, a<GreedyPlan<Half>>, a<Rows>));
  static_assert(!takes(match, a<RejectionPlan<BFloat16, ChosenDraft>>, a<Rows>));

  // A plan of one rule is none of another, except that one of block verification is one of traversal.
  using Greedy = GreedyPlan<BFloat16>;
  using Traversal = TraversalPlan<BFloat16, Logits>;
  static_assert(!std::is_convertible<Greedy, SampleAndMatchPlan<BFloat16>>::value);
  static_assert(!std::is_convertible<Traversal, RejectionPlan<BFloat16, Logits>>::value);
  static_assert(!std::is_convertible<Traversal, BlockPlan<BFloat16, Logits>>::value);
}

void others() {
  const auto draw = [](const auto& plan, const auto& args) -> decltype(sample(plan, args, nullptr)) {
    return cudaSuccess;
  };
  static_assert(takes(draw, a<SamplePlan<Half>>, a<SampleArgs<Half>>));
  static_assert(takes(draw, a<Untruncated<SamplePlan<Half>>>, a<SampleArgs<Half>>));
  static_assert(!takes(draw, a<SamplePlan<Half>>, a<SampleArgs<float>>));
  const auto distil = [](const auto& plan,
                         const auto& rows) -> decltype(top_k_distillation(plan, rows, nullptr)) {
    return cudaSuccess;
  };
  using Learned = DistillationRows<BFloat16, BFloat16, float>;
  static_assert(takes(distil, a<DistillationPlan<BFloat16, BFloat16, float>>, a<Learned>));
  static_assert(!takes(distil, a<DistillationPlan<BFloat16, BFloat16, BFloat16>>, a<Learned>));
}
