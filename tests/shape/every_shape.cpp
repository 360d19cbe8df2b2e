// SPDX-License-Identifier: MIT
// The list of all shapes is complete.
#include "every_shape.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

const fs::path kTests = fs::path(__FILE__).parent_path().parent_path();

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  REQUIRE(in.good());
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

}  // namespace

TEST_CASE("each header of a shape is in every_shape.hpp, but for those over another shape") {
  const std::string list = text_of(kTests / "support" / "every_shape.hpp");
  int listed = 0;
  for (const auto& entry : fs::directory_iterator(kTests.parent_path() / "include" / "specula" / "shape")) {
    if (!entry.is_regular_file()) continue;
    const std::string text = text_of(entry.path());
    if (text.find("ProposalKind kind = ") == text.npos) continue;         // a part of shapes
    if (text.find("ProposalKind kind = S::kind") != text.npos) continue;  // over another shape
    const std::string name = "specula/shape/" + entry.path().filename().string();
    CAPTURE(name);
    CHECK(list.find(name) != list.npos);
    ++listed;
  }
  CHECK(listed >= 10);
}
