// --costs: c of drafters as they are given, say those of a paper.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "figures.hpp"

namespace specula_examples {

/// `[NAME:]DRAFTER=C,DRAFTER=C,...`; the name is "given" where there is none. Throws UsageError quoting
/// `text` where it is not of that form, a drafter stands twice, or C is no number of at least 0.
GivenCosts parse_costs(std::string_view text);

/// Throws UsageError if two sets have one name, or one knows all drafters of no pipeline. `drafters` has
/// those of each pipeline.
void check_costs(std::span<const GivenCosts> sets, std::span<const std::vector<std::string>> drafters);

}  // namespace specula_examples
