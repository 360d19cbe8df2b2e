// SPDX-License-Identifier: MIT
// Options of loading: the defaults. What they do is tested in gguf_tensors.cpp.
#include <specula/cpu/load_options.hpp>

#include "specula/cpu/load_options.hpp"

#include <doctest/doctest.h>

TEST_CASE("by default weights are kept as the file has them, and no other types are expanded") {
  const specula::cpu::LoadOptions options;
  CHECK(!options.stored.has_value());
  CHECK(!options.expand);
}
