// T(n) of a model: what a pass over n nodes costs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <specula/any/any_model.hpp>

namespace specula_examples {

/// Seconds of a pass over 1, 2, ..., `nodes` nodes of a chain behind `prompt`, which is not empty: medians of
/// passes over as many nodes, one after the other, as they come in rounds. `between` runs before each of
/// them, untimed: what other models do there takes the caches from this one. Leaves the model empty.
std::vector<double> pass_seconds(
    specula::AnyModel& model, specula::Tokens prompt, std::int32_t nodes,
    const std::function<void()>& between = [] {});

/// Seconds that a round of these models, a pass of each, takes longer than such passes where each model is
/// alone: they evict one another from the caches. A mean over passes of a few nodes, behind `prompt`, which
/// is not empty; below 0 is noise. Leaves the models empty.
double turn_seconds(const std::vector<specula::AnyModel*>& models, specula::Tokens prompt);

}  // namespace specula_examples
