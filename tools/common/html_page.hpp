// SPDX-License-Identifier: MIT
// Self-contained HTML pages that draw from the JSON inside them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace specula_tools {

/// JSON as the content of a <script type="application/json">: ASCII, without <, > and &, so that no text in
/// it can end the element. Bytes that are not UTF-8 become U+FFFD.
inline std::string script_json(const nlohmann::ordered_json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

/// `page` with the JSON in place of the word @DATA@. Throws std::invalid_argument if the page lacks it.
inline std::string html_page(std::string_view page, const nlohmann::ordered_json& json) {
  constexpr std::string_view kPlace = "@DATA@";
  const std::size_t at = page.find(kPlace);
  if (at == std::string_view::npos) throw std::invalid_argument("html_page: the page has no @DATA@");
  return std::string(page.substr(0, at)).append(script_json(json)).append(page.substr(at + kPlace.size()));
}

}  // namespace specula_tools
