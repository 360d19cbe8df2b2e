// A plan that was made for one rule, element or kind of draft is refused by another at compile time.
#include <specula/cuda/device/sample.cuh>
#include <specula/cuda/device/top_k_distillation.cuh>
#include <specula/cuda/device/verify_block.cuh>
#include <specula/cuda/device/verify_greedy.cuh>
#include <specula/cuda/device/verify_rejection.cuh>
#include <specula/cuda/device/verify_sample_and_match.cuh>

#include <type_traits>
#include <utility>

using namespace specula::cuda;

template <class Call, class... Arguments>
constexpr bool takes(Call, const Arguments*...) {
  return std::is_invocable<Call, const Arguments&...>::value;
}
template <class T>
constexpr const T* a = nullptr;

#define SPECULA_TEST_CALL(function)                                                            \
  [](const auto& plan, const auto& rows,                                                       \
     const auto& draft) -> decltype(function(plan, std::declval<const Trees&>(), rows, draft,  \
                                             std::declval<const VerifyResults&>(), nullptr)) { \
    return cudaSuccess;                                                                        \
  }
#define SPECULA_TEST_MATCHING(function)                                                                     \
  [](const auto& plan, const auto& rows) -> decltype(function(plan, std::declval<const Trees&>(), rows,     \
                                                              std::declval<const VerifyResults&>(),         \
                                                              std::declval<const Workspace&>(), nullptr)) { \
    return cudaSuccess;                                                                                     \
  }

using Rows = TargetRows<BFloat16>;
using Logits = LogitsDraft<BFloat16>;

void verification() {
  const auto rejection = SPECULA_TEST_CALL(verify_rejection);
  static_assert(takes(rejection, a<RejectionPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(!takes(rejection, a<RejectionPlan<Half, Logits>>, a<Rows>, a<Logits>));
  static_assert(!takes(rejection, a<RejectionPlan<BFloat16, ChosenDraft>>, a<Rows>, a<Logits>));
  static_assert(!takes(rejection, a<TraversalPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  const auto traversal = SPECULA_TEST_CALL(verify_traversal);
  static_assert(takes(traversal, a<TraversalPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(!takes(traversal, a<RejectionPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  const auto block = SPECULA_TEST_CALL(verify_block);
  static_assert(takes(block, a<BlockPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(!takes(block, a<TraversalPlan<BFloat16, Logits>>, a<Rows>, a<Logits>));
  static_assert(!takes(block, a<BlockPlan<BFloat16, Logits>>, a<TargetRows<float>>, a<Logits>));
  const auto greedy = SPECULA_TEST_MATCHING(verify_greedy);
  static_assert(takes(greedy, a<GreedyPlan<BFloat16>>, a<Rows>));
  static_assert(!takes(greedy, a<GreedyPlan<Half>>, a<Rows>));
  static_assert(!takes(greedy, a<SampleAndMatchPlan<BFloat16>>, a<Rows>));
  const auto match = SPECULA_TEST_MATCHING(verify_sample_and_match);
  static_assert(takes(match, a<SampleAndMatchPlan<BFloat16>>, a<Rows>));
  static_assert(!takes(match, a<GreedyPlan<BFloat16>>, a<Rows>));
}

void others() {
  const auto draw = [](const auto& plan, const auto& args) -> decltype(sample(plan, args, nullptr)) {
    return cudaSuccess;
  };
  static_assert(takes(draw, a<SamplePlan<Half>>, a<SampleArgs<Half>>));
  static_assert(!takes(draw, a<SamplePlan<Half>>, a<SampleArgs<float>>));
  const auto distil = [](const auto& plan,
                         const auto& rows) -> decltype(top_k_distillation(plan, rows, nullptr)) {
    return cudaSuccess;
  };
  using Learned = DistillationRows<BFloat16, BFloat16, float>;
  static_assert(takes(distil, a<DistillationPlan<BFloat16, BFloat16, float>>, a<Learned>));
  static_assert(!takes(distil, a<DistillationPlan<BFloat16, BFloat16, BFloat16>>, a<Learned>));
}
