// SPDX-License-Identifier: MIT
// The lists of all shapes and rules are complete, and are gone through.
#include "every_shape.hpp"

#include <doctest/doctest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <string>

#include "text_of.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE(
    "each header of a shape is in every_shape.hpp, and its shape is called, but for those over another "
    "shape") {
  const std::string list = text_of(kProject / "tests/support/every_shape.hpp");
  int listed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kProject / "include/specula/shape")) {
    if (!entry.is_regular_file()) continue;
    const std::string text = text_of(entry.path());
    if (text.find("ProposalKind kind = ") == text.npos) continue;         // a part of shapes
    if (text.find("ProposalKind kind = S::kind") != text.npos) continue;  // over another shape
    std::string type;                                                     // static_tree.hpp has StaticTree
    bool begins = true;
    for (const char c : entry.path().stem().string()) {
      if (c != '_') type += begins ? static_cast<char>(std::toupper(c)) : c;
      begins = c == '_';
    }
    CAPTURE(type);
    CHECK(list.find("specula/shape/" + entry.path().filename().string()) != list.npos);
    CHECK(list.find("\n  f(" + type) != list.npos);
    ++listed;
  }
  CHECK(listed >= 10);
}

namespace {
template <ProposalKind kind>
int rule_count() {
  int count = 0;
  for_every_rule<kind>([&](const OneRule&) { ++count; });
  return count;
}
}  // namespace

TEST_CASE("shapes of every kind of draw but the shared one, each with all rules that are lossless for it") {
  std::map<ProposalKind, int> kinds;
  for_every_shape([&](const auto& shape, Enumerable) { ++kinds[shape.kind]; });
  CHECK(kinds[ProposalKind::deterministic] >= 6);
  CHECK(kinds[ProposalKind::sampled] >= 4);
  CHECK(kinds[ProposalKind::sampled_iid] >= 2);
  CHECK(kinds[ProposalKind::sampled_distinct] >= 2);
  int cascades = 0;
  for_every_cascade([&](const auto&) { ++cascades; });
  CHECK(cascades >= 6);
  // Rejection, Traversal, Sampling, SampleAndMatch; Block for chains, KSeq for independent draws.
  CHECK(rule_count<ProposalKind::deterministic>() == 4);
  CHECK(rule_count<ProposalKind::sampled>() == 5);
  CHECK(rule_count<ProposalKind::sampled_iid>() == 5);
  CHECK(rule_count<ProposalKind::sampled_distinct>() == 4);
}
