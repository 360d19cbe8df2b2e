// SPDX-License-Identifier: MIT
// The findings of check_model() as one text, for a test's message.
#pragma once

#include <string>
#include <vector>

#include <specula/model/check_model.hpp>

namespace specula_test {

inline std::string words(const std::vector<specula::ModelFinding>& findings) {
  std::string out;
  for (const specula::ModelFinding& f : findings) out += f.duty + ": " + f.what + '\n';
  return out;
}

}  // namespace specula_test
