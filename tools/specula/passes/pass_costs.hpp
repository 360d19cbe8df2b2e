// SPDX-License-Identifier: MIT
// T(n) of a model: the time of a pass over n nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <specula/runtime/any_model.hpp>

namespace specula_tools {

/// Seconds of a pass over 1, 2, ..., `nodes` nodes of a chain after `prompt`, which must not be empty:
/// medians of consecutive passes over as many nodes, as in rounds. `between` runs before each pass, untimed,
/// for example passes of other models that evict this one from the CPU caches. Leaves the model empty.
std::vector<double> pass_seconds(
    specula::AnyModel& model, specula::Tokens prompt, std::int32_t nodes,
    const std::function<void()>& between = [] {});

/// Additional seconds of a round with a pass of each model over separate passes, because the models evict
/// each other from the CPU caches. A mean over passes of a few nodes after `prompt`, which must not be empty;
/// negative values are noise. Leaves the models empty.
double turn_seconds(const std::vector<specula::AnyModel*>& models, specula::Tokens prompt);

}  // namespace specula_tools
