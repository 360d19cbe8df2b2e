// SPDX-License-Identifier: MIT
// Chats as transformers renders them: tests/programs/chat_templates/expected.json, which make.py beside it
// writes.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "chat_template.hpp"

namespace specula_test {

class RenderedChats {
 public:
  RenderedChats() {
    std::ifstream file(SPECULA_CHAT_TEMPLATES "/expected.json");
    json = nlohmann::json::parse(file);
    now = json["now"];
    for (const auto& chat : json["chats"]) {
      chats_.emplace_back();
      for (const auto& turn : chat) chats_.back().push_back({turn[0], turn[1]});
    }
  }

  /// Checks an entry's texts, in which null is a chat that the template refuses.
  template <class Render>
  void compare(const nlohmann::json& entry, Render render) const {
    REQUIRE(entry["texts"].size() == chats_.size());
    for (std::size_t i = 0; i < chats_.size(); ++i) {
      CAPTURE(i);
      if (entry["texts"][i].is_null())
        CHECK_THROWS_AS(render(chats_[i]), std::runtime_error);
      else
        CHECK(render(chats_[i]) == entry["texts"][i].get<std::string>());
    }
  }

  nlohmann::json json;
  std::time_t now = 0;

 private:
  std::vector<std::vector<specula_tools::ChatTurn>> chats_;
};

}  // namespace specula_test
