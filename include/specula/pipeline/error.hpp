// PipelineError: error in the text that names a pipeline.
#pragma once

#include <stdexcept>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Thrown if a text names no pipeline, one of its values is out of range, or the models do not support the
/// pipeline.
class PipelineError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace specula
