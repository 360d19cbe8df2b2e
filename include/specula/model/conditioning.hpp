// Conditioning of a draft model on its target: keys and values (GLIDE) or features (EAGLE, HASS).
#pragma once

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Target state that a model is conditioned on.
enum class Conditioning {
  nothing,
  key_values,  // a GLIDE draft: cross attention to the target's KV cache
  features,    // a head (EAGLE, HASS): the target's hidden states
};

/// The name in error messages.
constexpr const char* name_of(Conditioning state) {
  return state == Conditioning::key_values ? "keys and values"
         : state == Conditioning::features ? "features"
                                           : "nothing";
}

}  // namespace specula
