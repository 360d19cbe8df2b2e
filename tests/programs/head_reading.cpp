// SPDX-License-Identifier: MIT
// How a user overrules the file of an EAGLE-3 head, and what the end of a prompt says of one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "head_check.hpp"
#include "head_reading.hpp"

using namespace specula_tools;
using specula::cpu::DecoderConfig;
using specula::cpu::Eagle3Config;
using specula::cpu::HeadRows;
using specula::cpu::StatesFrom;

namespace {

using States = std::vector<std::int32_t>;

template <class Call>
std::string error(Call call) {
  try {
    call();
  } catch (const UsageError& thrown) {
    return thrown.what();
  }
  return "";
}
std::string refused(const std::string& given) {
  return error([&] { split_reading(given); });
}

DecoderConfig head_of(StatesFrom from, States states) {
  DecoderConfig config;
  config.eagle3.emplace().states_from = from;
  config.eagle3->states = std::move(states);
  return config;
}
/// The states that are read then, in the file's order.
States read_as(const std::string& given, StatesFrom from, const States& states) {
  auto config = head_of(from, states);
  set_reading(config, split_reading(given).second);
  CHECK(config.feature_layers == config.eagle3->ascending_states());
  CHECK(config.eagle3->states_from == StatesFrom::caller);
  return config.eagle3->states;
}
std::string unread(const std::string& given, DecoderConfig config) {
  return error([&] { set_reading(config, split_reading(given).second); });
}

}  // namespace

TEST_CASE("what stands behind a path") {
  CHECK(split_reading("a/head").first == "a/head");
  CHECK(!split_reading("a/head").second.asks());
  CHECK(split_reading("a,b/C,D=e").first == "a,b/C,D=e");  // a path with commas
  CHECK(split_reading("a,run=3/head").first == "a,run=3/head");
  CHECK(split_reading("a,run=3/head,layers=states").first == "a,run=3/head");
  const auto [path, asked] = split_reading("x=a,b,layers=2-8-13,norm_output=false");
  CHECK(path == "x=a,b");
  CHECK(asked.states == States{2, 8, 13});
  CHECK(asked.norm_output == false);
  CHECK(split_reading("a,norm_output=true").second.norm_output == true);
  CHECK(split_reading("a,layers=outputs").second.layers == "outputs");
  CHECK(
      refused("a,layers=inputs") ==
      "a,layers=inputs: layers= is 'inputs', expected states, outputs, or numbers of states such as 2-8-13");
  for (const char* list : {"", "2-", "-2", "2--8", "2,8", "2-x", "99999999999", "1e3", "States"})
    CHECK(!refused(std::string("a,layers=") + list).empty());
  CHECK(refused("a,norm_output=1") == "a,norm_output=1: norm_output= is '1', expected true or false");
  CHECK(!refused("a,norm_output=").empty());
  CHECK(refused("a,order=file") == "a,order=file: 'order' is not known, expected layers= or norm_output=");
  CHECK(!refused("a,layers=states,").empty());
  CHECK(!refused("a,layers=states,b").empty());
}

TEST_CASE("ids as states or as outputs, or other states") {
  for (const StatesFrom outputs : {StatesFrom::outputs, StatesFrom::nested_outputs}) {
    CHECK(read_as("h,layers=outputs", outputs, {2, 8, 13}) == States{2, 8, 13});
    CHECK(read_as("h,layers=states", outputs, {2, 8, 13}) == States{1, 7, 12});
  }
  CHECK(read_as("h,layers=outputs", StatesFrom::states, {13, 2, 8}) == States{14, 3, 9});
  CHECK(read_as("h,layers=states", StatesFrom::states, {13, 2, 8}) == States{13, 2, 8});
  CHECK(read_as("h,layers=9-1-4", StatesFrom::states, {13, 2, 8}) == States{9, 1, 4});
  CHECK(read_as("h,layers=9-1-4", StatesFrom::standard, {}) == States{9, 1, 4});  // before for_target()
  CHECK(read_as("h,layers=9-1-4", StatesFrom::standard, {2, 8, 13}) == States{9, 1, 4});
  auto config = head_of(StatesFrom::states, {1, 2});
  CHECK(unread("h,layers=1-2-3", config) == "h,layers=1-2-3: layers= names 3 states, the head reads 2");
  for (const char* word : {"states", "outputs"})
    CHECK(unread(std::string("h,layers=") + word, head_of(StatesFrom::standard, {2, 8, 13})) ==
          std::string("h,layers=") + word +
              ": its file names no layers, so layers= takes numbers of states, such as 2-8-13");
  CHECK(unread("h,layers=states", head_of(StatesFrom::final_norm, {})) ==
        "h,layers=states: layers= is for a head of several states, this one reads the last alone");
  CHECK(unread("h,norm_output=true", DecoderConfig()) ==
        "h,norm_output=true: is no EAGLE-3 head: layers= and norm_output= say nothing of it");
  CHECK(unread("h", DecoderConfig()).empty());
  config.eagle3->norm_output = true;
  set_reading(config, split_reading("h,norm_output=false").second);
  CHECK(!config.eagle3->norm_output);
  CHECK(config.eagle3->states == States{1, 2});
  CHECK(config.eagle3->states_from == StatesFrom::states);
  set_reading(config, split_reading("h,norm_output=true").second);
  CHECK(config.eagle3->norm_output);
}

TEST_CASE("what the end of a prompt says of a head") {
  Eagle3Config head;
  head.states_from = StatesFrom::states;
  const auto said = [&](std::int32_t right, std::int32_t of) {
    HeadRows rows{std::vector<double>(static_cast<std::size_t>(of), 1.0), right};
    return judge("x", head, rows);
  };
  CHECK(said(10, 64) == "");  // 0.156
  CHECK(said(9, 64) ==
        "the head 'x' is right at 9 of the prompt's last 64 tokens: the text is probably unlike what it was "
        "trained on; specula head looks at more");
  CHECK(said(1, 63) == "");
  CHECK(said(0, 15) == "");
  CHECK(said(0, 0) == "");
  CHECK(said(0, 16).starts_with(
      "the head 'x' is right at none of the prompt's last 16 tokens: it is probably"));
  CHECK(said(0, 63).find("made for another target") != std::string::npos);
  CHECK_THROWS_WITH_AS(said(0, 64),
                       doctest::Contains("at none of the prompt's last 64 tokens: it is probably "
                                         "made for another target, or its file names other"),
                       HeadRefused);
  // What the head cannot draft does not count: of another script, say.
  HeadRows rare{std::vector<double>(64, std::numeric_limits<double>::infinity()), 0};
  CHECK(judge("x", head, rare) == "");
  std::fill_n(rare.losses.begin(), 31, 1.0);
  CHECK(judge("x", head, rare).starts_with("the head 'x' is right at none"));  // no refusal
  rare.losses[31] = 1;
  CHECK_THROWS_AS(judge("x", head, rare), HeadRefused);
  rare.right = 5;  // of 32
  CHECK(judge("x", head, rare) == "");
  head.states_from = StatesFrom::standard;
  CHECK(said(0, 16).find("its file names no layers") != std::string::npos);
  head.states_from = StatesFrom::caller;
  CHECK(said(9, 64).find("layers= probably names other states") != std::string::npos);
  CHECK(said(0, 16).find("layers= probably names other states") != std::string::npos);
}
