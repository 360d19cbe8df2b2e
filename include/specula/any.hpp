// SPDX-License-Identifier: MIT
// Type erasure: models, drafters, rules and shapes that are chosen at run time, at one virtual call per pass.
#pragma once

#include "specula/runtime/any_drafter.hpp"
#include "specula/runtime/any_model.hpp"
#include "specula/runtime/any_rule.hpp"
#include "specula/runtime/any_shape.hpp"
