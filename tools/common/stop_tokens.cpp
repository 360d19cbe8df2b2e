// SPDX-License-Identifier: MIT
#include "stop_tokens.hpp"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include <specula/files/gguf_files.hpp>
#include <specula/files/json_fields.hpp>

#include "files.hpp"
#include "gguf_vocabulary.hpp"

namespace specula_tools {

std::vector<specula::Token> read_stop_tokens(const std::filesystem::path& model) {
  std::set<specula::Token> out;
  if (specula::files::is_gguf(model)) {
    const auto file = specula::files::Gguf::open(model);
    if (!file.text("tokenizer.ggml.model")) return {};
    return gguf_roles(read_gguf_vocabulary(file)).ends;
  }
  std::int32_t vocab = std::numeric_limits<std::int32_t>::max();
  for (const char* name : {"config.json", "generation_config.json"}) {
    const auto path = model / name;
    if (!std::filesystem::exists(path)) continue;
    const auto json = specula::files::parse_json(read_file(path), path.string());
    const specula::files::JsonFields file(json, path.string());
    if (name == std::string("config.json")) vocab = file.integer("vocab_size", vocab);
    constexpr const char* kKey = "eos_token_id";
    for (const specula::Token token : file.one_or_more(kKey)) {
      if (token >= vocab)
        file.fail(kKey, std::to_string(token) + ", the model's config.json has " + std::to_string(vocab) +
                            " tokens");
      out.insert(token);
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace specula_tools
