// SPDX-License-Identifier: MIT
// The arguments of verify_batch() as a whole: what is wrong with them is thrown, by name.
#include <specula/accept/batch_arguments.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/accept/verify_batch.hpp>

using namespace specula;
using namespace specula::arrays;

TEST_CASE("what no sequence can be verified with is thrown, and nothing is written") {
  BatchMemory memory;
  const std::int32_t begin[] = {0, 1, 2, 3}, position[3] = {}, row_of_node[3] = {};
  const Token token[3] = {};
  const NodeId parent[] = {-1, -1, -1};
  const std::uint64_t seed[3] = {};
  const float numbers[60] = {};
  const SamplingParams params[3];
  Token out_token[12];
  NodeId accepted[12];
  std::vector<std::int32_t> count(3, -7);
  Status status[3];
  float log_prob[12];
  const VerifyCapacity capacity{3, 4, 3, 20};
  const Trees trees{begin, token, parent, position, seed};
  const TargetRows<float> rows{numbers, 20, row_of_node, params};
  const VerifyResults out{out_token, accepted, count.data(), status, log_prob};
  const auto says = [&](const VerifyCapacity& c, const Trees& t, const TargetRows<float>& r,
                        const auto& draft, const VerifyResults& o, const std::string& what) {
    CHECK_THROWS_WITH_AS(verify_batch(Rejection{}, c, t, r, draft, o, memory),
                         ("verify_batch: " + what).c_str(), std::invalid_argument);
    CHECK(count == std::vector<std::int32_t>(3, -7));
  };
  const auto changed = [](auto object, auto member, auto value) {
    object.*member = value;
    return object;
  };
  const auto odd = [](auto* pointer) {
    return reinterpret_cast<decltype(pointer)>(reinterpret_cast<std::uintptr_t>(pointer) + 1);
  };
  const ChosenDraft none;
  says({0, 4, 3, 20}, trees, rows, none, out, "capacity.sequences is 0, must be in [1, 2147483647]");
  says({3, 0, 3, 20}, trees, rows, none, out, "capacity.max_nodes is 0, must be in [1, 16777215]");
  says({3, 4, -1, 20}, trees, rows, none, out, "capacity.max_depth is -1, must be in [0, 16777215]");
  says({3, 4, 3, 0}, trees, rows, none, out, "capacity.vocab is 0, must be in [1, 2147483647]");
  says(capacity, changed(trees, &Trees::begin, nullptr), rows, none, out, "trees.begin is null");
  says(capacity, changed(trees, &Trees::token, nullptr), rows, none, out, "trees.token is null");
  says(capacity, changed(trees, &Trees::position, nullptr), rows, none, out, "trees.position is null");
  says(capacity, changed(trees, &Trees::seed, nullptr), rows, none, out, "trees.seed is null");
  says(capacity, changed(trees, &Trees::seed, odd(trees.seed)), rows, none, out,
       "trees.seed is not aligned to its elements of 8 bytes");
  const std::int32_t four = 4;
  says(capacity, changed(trees, &Trees::sequence_count, &four), rows, none, out,
       "*trees.sequence_count is 4, must be in [0, 3]");
  says(capacity, trees, changed(rows, &TargetRows<float>::logits, nullptr), none, out,
       "target.logits is null");
  says(capacity, trees, changed(rows, &TargetRows<float>::stride, 19), none, out,
       "target.stride is 19, rows of 20 would overlap");
  says(capacity, trees, changed(rows, &TargetRows<float>::row_of_node, odd(row_of_node)), none, out,
       "target.row_of_node is not aligned to its elements of 4 bytes");
  const LogitsDraft<float> logits = {numbers, 20, nullptr};
  says(capacity, trees, rows, changed(logits, &LogitsDraft<float>::logits, nullptr), out,
       "draft.logits is null");
  says(capacity, trees, rows, changed(logits, &LogitsDraft<float>::stride, -3), out,
       "draft.stride is -3, rows of 20 would overlap");
  says(capacity, trees, rows, changed(logits, &LogitsDraft<float>::rows, -1), out,
       "draft.rows is -1, must be in [0, 9223372036854775807]");
  says(capacity, trees, rows, ProbsDraft{nullptr, 20}, out, "draft.probs is null");
  says(capacity, trees, rows, SparseDraft{token, nullptr, 1}, out, "draft.prob is null");
  says(capacity, trees, rows, SparseDraft{token, numbers, 0}, out,
       "draft.k is 0, must be in [1, 2147483647]");
  says(capacity, trees, rows, none, changed(out, &VerifyResults::count, nullptr), "results.count is null");
  says(capacity, trees, rows, none, changed(out, &VerifyResults::log_prob, odd(out.log_prob)),
       "results.log_prob is not aligned to its elements of 4 bytes");
}

TEST_CASE("the sequences of a call, and the width of its results") {
  const VerifyCapacity capacity{3, 4, 3, 20};
  Trees trees{};
  const detail::BatchArguments<float, ChosenDraft> args{capacity, trees, {nullptr, 20}, {}, {}};
  CHECK(args.width() == 4);
  CHECK(args.sequences() == 3);
  const std::int32_t two = 2;
  trees.sequence_count = &two;
  CHECK(args.sequences() == 2);
}

TEST_CASE("strides: of either sign, and no rows overlap") {
  const detail::ArgumentChecks check{"here"};
  for (const std::int64_t stride :
       {std::int64_t{20}, std::int64_t{-20}, std::int64_t{21}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()})
    CHECK_NOTHROW(check.stride("stride", stride, 20));
  for (const std::int64_t stride : {-19, -1, 0, 1, 19})
    CHECK_THROWS_AS(check.stride("stride", stride, 20), std::invalid_argument);
}

TEST_CASE("parameters out of range have a status and the message of their field") {
  const float temperature[] = {1, -1};
  ParamArrays params;
  params.temperature = temperature;
  CHECK(detail::valid_params(params, 0).temperature == 1);
  try {
    detail::valid_params(params, 1);
    FAIL("not thrown");
  } catch (const detail::StatusError& e) {
    CHECK(e.status() == Status::bad_parameters);
    CHECK(std::string(e.what()) == "SamplingParams::temperature is -1, must be finite and >= 0");
  }
}
