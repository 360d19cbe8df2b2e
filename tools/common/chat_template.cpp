// SPDX-License-Identifier: MIT
#include "chat_template.hpp"

#include <stdexcept>
#include <utility>

#include "chat_templates.hpp"
#include "jinja_engine.hpp"
#include "known_templates.hpp"
#include "limited_call.hpp"

namespace specula_tools {
namespace {

namespace fs = std::filesystem;

KnownTemplate known(const ChatTemplateText& text) {
  return find_known_template(template_fingerprint(text.source));
}

}  // namespace

std::optional<ChatTemplateText> find_chat_template(const fs::path& model, const std::string& without) {
  const fs::path own = model / "chat_template.jinja", config = model / "tokenizer_config.json";
  const bool is_file = !fs::is_directory(model);
  const std::string where = is_file           ? model.string() + ": key 'tokenizer.chat_template'"
                            : fs::exists(own) ? own.string()
                                              : config.string() + ": key 'chat_template'";
  std::string names;
  for (auto& [name, source] : read_chat_templates(model)) {
    if (name.empty())
      return ChatTemplateText{.source = std::move(source), .where = where, .without = without};
    names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return {};
  throw std::runtime_error(where + ": none of the templates is the default one, they are " + names + "; " +
                           without + ", or " +
                           (is_file ? "make a folder of the file (specula convert) and " : "") +
                           "write the one to use into chat_template.jinja" + (is_file ? " there" : ""));
}

ChatTemplate::ChatTemplate(ChatTemplateText text) : text_(std::move(text)) {
  if (text_.source.size() > kLongest)
    throw std::runtime_error(text_.where + ": a chat template of " + std::to_string(text_.source.size()) +
                             " bytes, expected at most " + std::to_string(kLongest) + "; " + text_.without);
  if (!has_jinja() && !known(text_))
    throw std::runtime_error(
        text_.where +
        ": a chat template that this program does not know, and it was built without a Jinja "
        "engine: configure it with -DLLAMA_DIR=$(scripts/llama_cpp), or " +
        text_.without);
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
    throw std::runtime_error(text_.where + ": the chat template fails: " + error.what() + "; " +
                             text_.without);
  }
}

}  // namespace specula_tools
