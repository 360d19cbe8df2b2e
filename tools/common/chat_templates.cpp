// SPDX-License-Identifier: MIT
#include "chat_templates.hpp"

#include <string_view>

#include <specula/files/gguf_files.hpp>
#include <specula/files/json_fields.hpp>

#include "files.hpp"

namespace specula_tools {
namespace {

using specula::files::Gguf;
using specula::files::JsonFields;

ChatTemplates of_gguf(const Gguf& file) {
  const std::string key = "tokenizer.chat_template";
  ChatTemplates out;
  if (const auto text = file.text(key)) out.emplace_back("", *text);
  for (const std::string_view name : file.texts(key + "s"))
    if (const auto text = file.text(key + "." + std::string(name)); text && !name.empty())
      out.emplace_back(name, *text);
  return out;
}

ChatTemplates of_config(const JsonFields& config) {
  constexpr const char* kKey = "chat_template";
  const auto* const value = config.find(kKey);
  if (!value) return {};
  if (value->is_string()) return {{"", config.text(kKey)}};
  ChatTemplates out;
  for (const JsonFields& one : config.objects(kKey)) {
    const std::string name = one.text("name");
    out.emplace_back(name == "default" ? "" : name, one.text("template"));
  }
  return out;
}

}  // namespace

ChatTemplates read_chat_templates(const std::filesystem::path& model) {
  if (specula::files::is_gguf(model)) return of_gguf(Gguf::open(model));
  ChatTemplates out;
  if (const auto config = model / "tokenizer_config.json"; std::filesystem::exists(config)) {
    const auto json = specula::files::read_json_file(config);
    out = of_config(JsonFields(json, config.string()));
  }
  if (const auto file = model / "chat_template.jinja"; std::filesystem::exists(file)) {
    std::erase_if(out, [](const auto& one) { return one.first.empty(); });
    out.insert(out.begin(), {"", read_file(file)});
  }
  return out;
}

}  // namespace specula_tools
