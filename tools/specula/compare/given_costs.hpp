// SPDX-License-Identifier: MIT
// --costs: given values of c, for example those of a paper.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "figures.hpp"

namespace specula_tools {

/// `[NAME:]DRAFTER=C,DRAFTER=C,...`; the default name is "given". Throws UsageError quoting `text` if it is
/// not of that form, names a drafter twice, or C is not a number of at least 0.
GivenCosts parse_costs(std::string_view text);

/// Throws UsageError if two sets have the same name, or a set does not name all drafters of any pipeline.
/// `drafters` has those of each pipeline.
void check_costs(std::span<const GivenCosts> sets, std::span<const std::vector<std::string>> drafters);

}  // namespace specula_tools
