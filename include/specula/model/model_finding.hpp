// SPDX-License-Identifier: MIT
// What check_model() looks for, and what it finds.
#pragma once

#include <cstdint>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// A duty that a model does not do.
struct ModelFinding {
  std::string duty;  ///< "append", "mask", "commit", ...: docs/adapter.md has a table of them
  std::string what;  ///< one line: the fewest calls that show it, what was expected, what was found
};

/// How check_model() looks.
struct ModelCheck {
  bool trees = true;        ///< false: for a model that takes chains only (see PathVerifier)
  std::int32_t nodes = 12;  ///< of the largest trees, in [4, 4096]: as many as your shapes propose
  double tolerance = 0;     ///< two rows are the same if no logit differs by more than this part of the row's
                            ///< range. 0: four times what rows of chains differ by, in [1/256, 0.05]
  std::uint64_t seed = 1;   ///< of the tokens, which are drawn from the whole vocabulary
};

}  // namespace specula
