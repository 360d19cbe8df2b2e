// SPDX-License-Identifier: MIT
// The structs of a batch: plain memory, optional arrays null, and the very types that the CUDA headers name.
#include <specula/arrays/verification.hpp>

#include <doctest/doctest.h>

#include <type_traits>

#include <specula/cuda/args/trees.cuh>

using namespace specula::arrays;
namespace device = specula::cuda;

namespace {

template <class... T>
constexpr bool kPlain = ((std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>)&&...);

}  // namespace

TEST_CASE("arguments are copied to a device as they are") {
  CHECK(kPlain<VerifyCapacity, Trees, VerifyResults, TargetRows<float>, TargetRows<Half>, ChosenDraft,
               LogitsDraft<BFloat16>, ProbsDraft, SparseDraft>);
}

TEST_CASE("a caller of both fills one struct") {
  CHECK(std::is_same_v<device::Trees, Trees>);
  CHECK(std::is_same_v<device::VerifyResults, VerifyResults>);
  CHECK(std::is_same_v<device::VerifyCapacity, VerifyCapacity>);
  CHECK(std::is_same_v<device::TargetRows<device::Half>, TargetRows<Half>>);
  CHECK(std::is_same_v<device::ChosenDraft, ChosenDraft>);
  CHECK(std::is_same_v<device::LogitsDraft<device::BFloat16>, LogitsDraft<BFloat16>>);
  CHECK(std::is_same_v<device::ProbsDraft, ProbsDraft>);
  CHECK(std::is_same_v<device::SparseDraft, SparseDraft>);
  CHECK(std::is_same_v<device::Status, specula::Status>);
}

TEST_CASE("what may be left out is null or off") {
  const Trees trees{nullptr, nullptr, nullptr, nullptr, nullptr};
  CHECK((!trees.sequence && !trees.sequence_count));
  const VerifyResults results{nullptr, nullptr, nullptr, nullptr};
  CHECK(!results.log_prob);
  const TargetRows<float> rows{nullptr, 3};
  CHECK((!rows.row_of_node && !rows.params.all && rows.params[0].temperature == 1));
  const LogitsDraft<float> logits{nullptr, 3, nullptr};
  CHECK((!logits.row_of_node && !logits.scale && logits.rows == 0));
  const ProbsDraft probs{nullptr, 3};
  CHECK((!probs.row_of_node && !probs.scale && probs.rows == 0));
  const SparseDraft few{nullptr, nullptr, 2};
  CHECK((!few.row_of_node && !few.scale && few.rows == 0));
}
