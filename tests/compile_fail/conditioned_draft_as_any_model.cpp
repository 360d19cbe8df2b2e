// SPDX-License-Identifier: MIT
// expect: a model with set_target_state\(\) must be TargetConditioned
#include <specula/any.hpp>
#include <specula/model/features.hpp>

#include "toy_model.hpp"

struct Head : specula_test::ToyModel {
  using ToyModel::ToyModel;
  void set_target_state(const specula::FeaturesView<float>&) {}
#ifndef SPECULA_MUST_FAIL
  using TargetFeatures = specula::FeaturesView<float>;
  specula::Conditioning conditioned_on() const { return specula::Conditioning::features; }
  bool keeps_speculation() const { return false; }
#endif
};

int main() {
  Head head(12, 7);
  const specula::AnyModel any(head);
  return any.exits();
}
