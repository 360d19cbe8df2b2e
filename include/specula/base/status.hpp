// SPDX-License-Identifier: MIT
// What became of a row or of a sequence of a batch. C++17.
#pragma once

#include <cstdint>

#include "specula/base/host_device.hpp"

namespace specula {

/// Status of a row or a sequence. For any status but `ok` nothing is emitted.
enum class Status : std::int32_t {
  ok = 0,
  not_a_number = 1,    ///< a row holds NaN or +infinity
  empty_row = 2,       ///< a row has no finite logit
  overflow = 3,        ///< the largest logit is above 1e38 times the temperature
  bad_parameters = 4,  ///< SamplingParams out of range
  /// A parent that is no earlier node, a token outside the vocabulary, or more nodes than planned.
  bad_tree = 5,
  /// Parameters truncate (top-k, top-p, min-p) under an Untruncated plan or a sharded vocabulary.
  truncation_is_not_planned = 6,
  infinite_loss = 7,  ///< the draft rules out a token that the target may choose
  bad_draft_row = 8,  ///< a draft token's row of the draft is out of range
  bad_draft_sum = 9   ///< a draft's probabilities do not add up to 1; verify_batch() alone finds it
};

}  // namespace specula
