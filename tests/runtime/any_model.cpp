// SPDX-License-Identifier: MIT
#include <specula/runtime/any_model.hpp>

#include <doctest/doctest.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/draft/conditioned.hpp>
#include <specula/model/processed.hpp>

#include "conditioned_models.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::SeenModel;
using specula_test::ToyGlide;
using specula_test::ToyHead;
using specula_test::ToyModel;

namespace {

const std::vector<Token> kText{1, 5, 2, 8, 3};
const std::vector<Token> kNodes{4, 6};
const std::vector<NodeId> kParents{kNoParent, 0};

std::vector<float> rows_of(const LogitsView& rows) {
  std::vector<float> out;
  for (std::int32_t i = 0; i < rows.rows; ++i)
    out.insert(out.end(), rows.data + i * rows.stride, rows.data + i * rows.stride + rows.vocab);
  return out;
}

/// Rows of the drafter after the text, and again after one more token of it, with the target as far.
template <class D>
std::vector<float> rows_of(D drafter, SeenModel& target) {
  target.truncate(0);
  target.append(kText);
  drafter.sync(kText, {});
  std::vector<float> out = rows_of(drafter.extend(kNodes, kParents));
  std::vector<Token> longer = kText;
  longer.push_back(kNodes[0]);
  target.append(Tokens(kNodes).first(1));
  drafter.sync(longer, {});
  const std::vector<float> more = rows_of(drafter.extend(kNodes, kParents));
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::string complaint(AnyModel draft, AnyModel target) {
  try {
    draft.drafter(target);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// A head that takes features as doubles only.
struct OtherHead : ToyModel {
  using ToyModel::ToyModel;
  using TargetFeatures = FeaturesView<double>;
  Conditioning conditioned_on() const { return Conditioning::features; }
  bool keeps_speculation() const { return false; }
  void set_target_state(const FeaturesView<double>&) {}
};

}  // namespace

TEST_CASE("what a model exposes and what a draft reads pass through AnyModel") {
  ToyModel plain(12, 7);
  SeenModel seen(12, 7);
  ToyGlide glide(12, 9);
  ToyHead head(12, 9);
  CHECK_FALSE(AnyModel(plain).exposes(Conditioning::key_values));
  CHECK_FALSE(AnyModel(plain).exposes(Conditioning::features));
  CHECK(AnyModel(seen).exposes(Conditioning::key_values));
  CHECK(AnyModel(seen).exposes(Conditioning::features));
  CHECK_FALSE(AnyModel(seen).exposes(Conditioning::nothing));
  Processed processed{seen, [](Tokens, std::span<float>) {}};
  CHECK(AnyModel(processed).exposes(Conditioning::key_values));
  CHECK(AnyModel(processed).exposes(Conditioning::features));
  Processed processed_plain{plain, [](Tokens, std::span<float>) {}};
  CHECK_FALSE(AnyModel(processed_plain).exposes(Conditioning::key_values));
  CHECK(AnyModel(seen).conditioned_on() == Conditioning::nothing);
  CHECK(AnyModel(glide).conditioned_on() == Conditioning::key_values);
  CHECK(AnyModel(head).conditioned_on() == Conditioning::features);
}

TEST_CASE("a conditioned draft gives the rows of the drafter that it stands for") {
  SeenModel target(12, 7);
  AnyModel any_target(target);
  {
    ToyGlide draft(12, 9), same(12, 9);
    const auto want = rows_of(Glide{same, target}, target);
    CHECK(rows_of(AnyModel(draft).drafter(any_target), target) == want);
    CHECK(draft.seen == same.seen);
    CHECK(draft.view_calls == same.view_calls);
  }
  {
    ToyHead draft(12, 9), same(12, 9);
    const auto want = rows_of(FeatureHead{same, target}, target);
    CHECK(rows_of(AnyModel(draft).drafter(any_target), target) == want);
    CHECK(draft.seen == same.seen);
  }
  {
    ToyModel draft(12, 9), same(12, 9);
    const auto want = rows_of(ModelDrafter{same}, target);
    CHECK(rows_of(AnyModel(draft).drafter(any_target), target) == want);
  }
}

TEST_CASE("a view of the target that is stale is an error behind AnyModel too") {
  SeenModel target(12, 7);
  AnyModel any_target(target);
  ToyGlide draft(12, 9);
  AnyDrafter drafter = AnyModel(draft).drafter(any_target);
  target.append(kText);
  drafter.sync(kText, {});
  target.append(Tokens(kNodes).first(1));
  CHECK_THROWS_WITH_AS(drafter.extend(kNodes, kParents), "ToyKeyValues is stale: the model was called since",
                       std::logic_error);
}

TEST_CASE("errors of drafter() name what the target lacks") {
  ToyModel plain(12, 7);
  SeenModel seen(12, 7), wide(13, 7);
  ToyGlide glide(12, 9);
  ToyHead head(12, 9);
  OtherHead other(12, 9);
  CHECK(complaint(AnyModel(glide), AnyModel(plain)) ==
        "AnyModel::drafter: the draft reads the target's keys and values, which the target does not expose");
  CHECK(complaint(AnyModel(head), AnyModel(plain)) ==
        "AnyModel::drafter: the draft reads the target's features, which the target does not expose");
  CHECK(complaint(AnyModel(other), AnyModel(seen)) ==
        "AnyModel::drafter: the draft reads the target's features, and takes no view of the type that the "
        "target gives");
  CHECK(complaint(AnyModel(glide), AnyModel(wide)) ==
        "Glide: the draft's vocabulary has 12 tokens, the target's 13");
  CHECK(complaint(AnyModel(head), AnyModel(wide)) ==
        "FeatureHead: the draft's vocabulary has 12 tokens, the target's 13");
  CHECK(complaint(AnyModel(glide), AnyModel(glide)).ends_with("and is that target itself"));
}
