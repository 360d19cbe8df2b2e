// SPDX-License-Identifier: MIT
// PATH[,layers=...][,norm_output=...]: how the file of an EAGLE-3 head is to be read, where its user knows
// better than the rules of docs/heads.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <specula/base/read_number.hpp>
#include <specula/cpu/decoder_config.hpp>

#include "errors.hpp"

namespace specula_tools {

/// What overrules a head's file.
struct AskedReading {
  std::string given;                      // as it was given, for messages
  std::string layers = {};                // "states", "outputs", a list, or empty: not asked
  std::vector<std::int32_t> states = {};  // the list: numbers of states
  std::optional<bool> norm_output = {};   // empty: not asked
  bool asks() const { return !layers.empty() || norm_output.has_value(); }
};

/// The path and what stands behind it. Throws UsageError for a key or a value that there is not.
inline std::pair<std::string, AskedReading> split_reading(const std::string& given) {
  const auto fail = [&](const std::string& what) { throw UsageError(given + ": " + what); };
  const auto is_key = [&](std::size_t from) {  // a path may have commas
    const auto end = given.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", from);
    return end != given.npos && end > from && given[end] == '=' && given.find('/', end) == given.npos;
  };
  std::size_t at = given.find(',');
  while (at != given.npos && !is_key(at + 1)) at = given.find(',', at + 1);
  std::pair<std::string, AskedReading> out{given.substr(0, at), {given}};
  AskedReading& asked = out.second;
  while (at != given.npos) {
    const auto end = std::min(given.find(',', at + 1), given.size()), equals = given.find('=', at);
    const std::string key = given.substr(at + 1, equals - at - 1),
                      value = equals < end ? given.substr(equals + 1, end - equals - 1) : "";
    if (key == "layers") {
      asked.layers = value;
      asked.states.clear();
      for (std::size_t from = 0; value != "states" && value != "outputs" && from <= value.size();) {
        const auto last = std::min(value.find('-', from), value.size());
        if (!specula::detail::read_number(value.substr(from, last - from), asked.states.emplace_back()))
          fail("layers= is '" + value + "', expected states, outputs, or numbers of states such as 2-8-13");
        from = last + 1;
      }
    } else if (key == "norm_output") {
      if (value != "true" && value != "false")
        fail("norm_output= is '" + value + "', expected true or false");
      asked.norm_output = value == "true";
    } else {
      fail("'" + key + "' is not known, expected layers= or norm_output=");
    }
    at = end == given.size() ? given.npos : end;
  }
  return out;
}

/// Changes the config of a head, before or after for_target(). Throws UsageError where the head leaves no
/// such choice.
inline void set_reading(specula::cpu::DecoderConfig& config, const AskedReading& asked) {
  using specula::cpu::StatesFrom;
  if (!asked.asks()) return;
  const auto fail = [&](const std::string& what) { throw UsageError(asked.given + ": " + what); };
  if (!config.eagle3) fail("is no EAGLE-3 head: layers= and norm_output= say nothing of it");
  auto& head = *config.eagle3;
  if (asked.norm_output) head.norm_output = *asked.norm_output;
  if (asked.layers.empty()) return;
  if (!head.mixes_states()) fail("layers= is for a head of several states, this one reads the last alone");
  if (!asked.states.empty()) {
    const std::size_t reads = head.states.empty() ? 3 : head.states.size();
    if (asked.states.size() != reads)
      fail("layers= names " + std::to_string(asked.states.size()) + " states, the head reads " +
           std::to_string(reads));
    head.states = asked.states;
  } else {
    if (head.states_from == StatesFrom::standard)
      fail("its file names no layers, so layers= takes numbers of states, such as 2-8-13");
    const bool outputs =
        head.states_from == StatesFrom::nested_outputs || head.states_from == StatesFrom::outputs;
    for (std::int32_t& state : head.states) state += (asked.layers == "outputs") - outputs;
  }
  head.states_from = StatesFrom::caller;
  config.feature_layers = head.ascending_states();
}

}  // namespace specula_tools
