// SPDX-License-Identifier: MIT
// Type erasure: models, drafters, rules and shapes that are chosen at run time, at one virtual call per pass.
#pragma once

#include "specula/any/any_drafter.hpp"
#include "specula/any/any_model.hpp"
#include "specula/any/any_rule.hpp"
#include "specula/any/any_shape.hpp"
