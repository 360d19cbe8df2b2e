#include "style_info.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "files.hpp"

namespace specula_examples {

namespace fs = std::filesystem;

StyleInfos read_style_infos(const fs::path& directory) {
  const auto file = directory / "styles.json";
  StyleInfos infos;
  if (!fs::exists(file)) return infos;
  std::ifstream in(file);
  try {
    const auto json = nlohmann::json::parse(in);
    for (const auto& style : json.at("styles")) {
      infos[style.at("name").get<std::string>()] = {
          .description = style.value("description", ""),
          .licence = style.value("licence", ""),
          .heldout_every = style.value("heldout_every", std::size_t{0})};
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(file.string() + ": " + error.what());
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
  specula_examples::write_file(directory / "styles.json", nlohmann::ordered_json{{"styles", styles}}.dump(2) + "\n");
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

}  // namespace specula_examples
