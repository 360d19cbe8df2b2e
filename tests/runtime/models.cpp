// SPDX-License-Identifier: MIT
// An engine's models, by name: errors that say which model cannot do what.
#include <specula/runtime/models.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "conditioned_models.hpp"
#include "self_models.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

class Models final : public PipelineModels {
 public:
  Models(AnyModel& target, AnyModel& draft) : target_(target), draft_(draft) {}
  AnyModel& target() override { return target_; }
  AnyModel& draft(const std::string&) override { return draft_; }
  std::string target_name() const override { return name; }
  std::string name;

 private:
  AnyModel &target_, &draft_;
};

}  // namespace

TEST_CASE("a draft must be another model, of a state that the target exposes") {
  ToyModel plain(3, 1), other(3, 2);
  ToyGlide glide(3, 2);
  AnyModel target(plain), same(plain), draft(other), reader(glide);
  CHECK_NOTHROW(Models(target, draft).drafter("d"));
  CHECK_THROWS_WITH_AS(Models(target, same).drafter("d"),
                       "the draft 'd' is the target itself: a model holds one text", PipelineError);
  Models models(target, reader);
  models.name = "t";
  CHECK_THROWS_WITH_AS(models.drafter("d"),
                       "the target 't' does not expose keys and values, which the draft 'd' reads",
                       PipelineError);
}

TEST_CASE("exits: a draft without any, and more thresholds than it has exits before the last") {
  ToyModel plain(3, 1), other(3, 2);
  ToyExits with_exits(3, 2, 3);
  AnyModel target(plain), draft(other), exits(with_exits);
  CHECK_THROWS_WITH_AS(Models(target, draft).early_exit("d", {}, ExitBy::confidence),
                       "the draft 'd' has no exits", PipelineError);
  CHECK_NOTHROW(Models(target, exits).early_exit("d", {0.5f, 0.5f}, ExitBy::confidence));
  CHECK_THROWS_WITH_AS(Models(target, exits).early_exit("d", {0.5f, 0.5f, 0.5f}, ExitBy::confidence),
                       "the draft 'd': 3 thresholds, must be fewer than its exits, 3", PipelineError);
}

TEST_CASE("layers: a target that cannot leave any out, and blocks of layers that it does not have") {
  ToyModel plain(3, 1);
  ToySkips with_layers(3, 1, 4);
  AnyModel target(plain), skips(with_layers);
  CHECK_THROWS_WITH_AS(Models(target, target).layer_skip(SkipRules{}), "the target cannot leave layers out",
                       PipelineError);
  CHECK_NOTHROW(Models(skips, target).layer_skip(SkipRules{}));
  CHECK_THROWS_WITH_AS(Models(skips, target).layer_skip(BlockLists{{5}, {}}),
                       "the target: SkippedBlocks: attention of layer 5, the layers are 1 to 4",
                       PipelineError);
}

TEST_CASE("an engine has no table of bigrams unless it says so") {
  ToyModel plain(3, 1);
  AnyModel target(plain);
  CHECK_FALSE(Models(target, target).bigram().has_value());
}
