// What is wrong with the text that names a pipeline.
#pragma once

#include <stdexcept>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// A text names no pipeline, one of its values is out of range, or the models cannot do what it asks for.
class PipelineError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace specula
