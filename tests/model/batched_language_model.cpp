// SPDX-License-Identifier: MIT
// Models of many texts, and what they may have besides, by concept.
#include <specula/model/batched_language_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyModel;

namespace {

static_assert(BatchedLanguageModel<ToyBatch>);
static_assert(!BatchedLanguageModel<ToyModel>);  // of one text

struct CopiesBack : ToyBatch {
  using ToyBatch::ToyBatch;
  bool fork(std::int32_t, std::int32_t, std::int32_t) { return true; }
};
static_assert(BatchedLanguageModel<CopiesBack> && !ForksTexts<CopiesBack>);

struct WithoutChunk : ToyBatch {
  using ToyBatch::ToyBatch;
  void chunk() const {}
};
static_assert(!BatchedLanguageModel<WithoutChunk>);

}  // namespace

TEST_CASE("NoRoom is told from other errors of a pass, and says why") {
  const auto says = [] { throw NoRoom("3 of 2 pages"); };
  CHECK_THROWS_WITH_AS(says(), "3 of 2 pages", NoRoom);
  CHECK_THROWS_AS(says(), std::runtime_error);
}
