// SPDX-License-Identifier: MIT
// Tokens as text, while they come: whole characters, up to a stop string.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <specula/base/rows.hpp>

#include "stop_strings.hpp"
#include "utf8_gate.hpp"

namespace specula_tools {

/// What put() returns is always whole characters; the rest waits for the tokens to come.
class TextStream {
 public:
  using BytesOf = std::function<std::string(specula::Token)>;  // that a token adds to a text

  explicit TextStream(BytesOf bytes_of, std::vector<std::string> stops = {})
      : bytes_of_(std::move(bytes_of)), stops_(std::move(stops)) {}

  /// Nothing once a stop string is complete.
  std::string put(specula::Token token) { return gate_.push(stops_.push(bytes_of_(token))); }
  bool stopped() const { return stops_.stopped(); }
  /// To be called when the text has ended.
  std::string flush() { return gate_.push(stops_.flush()) + gate_.flush(); }

 private:
  BytesOf bytes_of_;
  StopStrings stops_;
  Utf8Gate gate_;
};

}  // namespace specula_tools
