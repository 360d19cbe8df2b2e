// SPDX-License-Identifier: MIT
#include "style_info.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include <specula/files/json_fields.hpp>

#include "files.hpp"

namespace specula_tools {

namespace fs = std::filesystem;

StyleInfos read_style_infos(const fs::path& directory) {
  const auto file = directory / "styles.json";
  StyleInfos infos;
  if (!fs::exists(file)) return infos;
  const auto json = specula::files::parse_json(read_file(file), file.string());
  for (const auto& style : specula::files::JsonFields(json, file.string()).objects("styles")) {
    infos[style.text("name")] = {
        .description = style.text("description", ""),
        .licence = style.text("licence", ""),
        .heldout_every = static_cast<std::size_t>(style.integer("heldout_every", 0))};
  }
  return infos;
}

void write_style_infos(const StyleInfos& infos, const fs::path& directory) {
  auto styles = nlohmann::ordered_json::array();
  for (const auto& [name, info] : infos) {
    styles.push_back({{"name", name},
                      {"description", info.description},
                      {"licence", info.licence},
                      {"heldout_every", info.heldout_every}});
  }
  fs::create_directories(directory);
  specula_tools::write_file(directory / "styles.json",
                            nlohmann::ordered_json{{"styles", styles}}.dump(2) + "\n");
}

std::pair<std::string, std::string> parse_assignment(std::string_view option, const std::string& text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const auto at = text.find('=');
  if (at == text.npos || at == 0 || at + 1 == text.size() || text.find_first_not_of(kLetters) < at) {
    throw std::invalid_argument(std::string(option) + " '" + text +
                                "': expected NAME=VALUE, NAME of letters, digits, '-', '_' and '.'");
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace specula_tools
