#include "chat_template.hpp"

#include <stdexcept>
#include <utility>

#include <specula/cpu/gguf.hpp>
#include <specula/cpu/json_fields.hpp>

#include "files.hpp"
#include "jinja_engine.hpp"
#include "known_templates.hpp"
#include "limited_call.hpp"
#include "read_gguf_vocabulary.hpp"

namespace specula_examples {
namespace {

using specula::cpu::Json;
using specula::cpu::JsonFields;
namespace fs = std::filesystem;

/// Of a list of {"name": ..., "template": ...}.
std::string default_template(const JsonFields& file, const char* key) {
  std::string names;
  for (const JsonFields& entry : file.objects(key)) {
    const std::string name = entry.text("name");
    if (name == "default") return entry.text("template");
    names += (names.empty() ? "" : ", ") + name;
  }
  throw std::runtime_error(file.source() + ": key '" + key +
                           "': none of the templates is named default, only " + names +
                           "; give --raw, or write the one to use into chat_template.jinja");
}

KnownTemplate known(const ChatTemplateText& text) {
  return find_known_template(template_fingerprint(text.source));
}

}  // namespace

std::optional<ChatTemplateText> find_chat_template(const fs::path& folder) {
  if (begins_as_gguf(folder)) {
    constexpr const char* kKey = "tokenizer.chat_template";
    const auto gguf = specula::cpu::Gguf::open(folder);
    const auto text = gguf.text(kKey);
    if (!text) return {};
    return ChatTemplateText{.source = std::string(*text), .where = gguf.source() + ": key '" + kKey + "'"};
  }
  if (const auto file = folder / "chat_template.jinja"; fs::exists(file))
    return ChatTemplateText{.source = read_file(file), .where = file.string()};
  const auto file = folder / "tokenizer_config.json";
  if (!fs::exists(file)) return {};
  constexpr const char* kKey = "chat_template";
  const Json json = specula::cpu::parse_json(read_file(file), file.string());
  const JsonFields fields(json, file.string());
  const Json* const value = fields.find(kKey);
  if (!value) return {};
  ChatTemplateText out{.source = {}, .where = file.string() + ": key '" + kKey + "'"};
  if (value->is_string())
    out.source = fields.text(kKey);
  else if (value->is_array())
    out.source = default_template(fields, kKey);
  else
    fields.fail(kKey, "expected a template, or a list of templates and their names", *value);
  return out;
}

ChatTemplate::ChatTemplate(ChatTemplateText text) : text_(std::move(text)) {
  if (text_.source.size() > kLongest)
    throw std::runtime_error(text_.where + ": a chat template of " + std::to_string(text_.source.size()) +
                             " bytes, expected at most " + std::to_string(kLongest) + "; give --raw");
  if (!has_jinja() && !known(text_))
    throw std::runtime_error(
        text_.where +
        ": a chat template that this program does not know, and it was built without a Jinja "
        "engine: configure it with -DLLAMA_DIR=$(scripts/llama_cpp), or give --raw");
}

std::string ChatTemplate::render(std::span<const ChatTurn> turns, std::time_t now) const {
  try {
    if (const KnownTemplate own = known(text_)) return own(turns, {text_.begin, text_.end, now});
    CallLimits limits;
    for (const ChatTurn& turn : turns) {
      limits.memory += 64 * turn.content.size();
      limits.output += 2 * turn.content.size();
    }
    return limited_call([&] { return render_jinja(text_, turns, now); }, limits);
  } catch (const std::exception& error) {
    throw std::runtime_error(text_.where + ": the chat template fails: " + error.what());
  }
}

}  // namespace specula_examples
