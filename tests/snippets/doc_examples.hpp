// SPDX-License-Identifier: MIT
// What the lines of code name that docblocks begin with.
#pragma once

#include <cstdint>

#include <specula/specula.hpp>

#include "conditioned_models.hpp"
#include "self_models.hpp"
#include "toy_model.hpp"

struct Examples {
  specula_test::SeenModel target;
  specula_test::ToyModel draft, base, small;
  specula_test::ToyGlide glide;
  specula_test::ToyHead head;
  specula_test::ToyExits exits;
  specula_test::ToySkips model;
  std::int32_t vocab;
};

#define SPECULA_EXAMPLES                                                                            \
  [[maybe_unused]] auto& [target, draft, base, small, glide, head, exits, model, vocab] = examples; \
  [[maybe_unused]] specula::TreeVerifier verifier{target, specula::Sampling{}};                     \
  {
