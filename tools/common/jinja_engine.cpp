// SPDX-License-Identifier: MIT
#include "jinja_engine.hpp"

#include <new>
#include <stdexcept>
#include <utility>

#ifdef SPECULA_HAS_JINJA
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>
#include <jinja/value.h>
#endif

namespace specula_tools {

#ifdef SPECULA_HAS_JINJA

bool has_jinja() { return true; }

std::string render_jinja(const ChatTemplateText& text, std::span<const ChatTurn> turns, std::time_t now) {
  try {
    const auto program = jinja::parse_from_tokens(jinja::lexer().tokenize(text.source));
    jinja::context context(text.source);
    context.current_time = now;
    const auto messages = jinja::mk_val<jinja::value_array>();
    for (const ChatTurn& turn : turns) {
      const auto message = jinja::mk_val<jinja::value_object>();
      message->insert("role", jinja::mk_val<jinja::value_string>(turn.role));
      message->insert("content", jinja::mk_val<jinja::value_string>(turn.content));
      messages->push_back(message);
    }
    context.set_val("messages", messages);
    for (const auto& [name, token] : {std::pair{"bos_token", &text.begin}, {"eos_token", &text.end}})
      if (!token->empty()) context.set_val(name, jinja::mk_val<jinja::value_string>(*token));
    for (const char* name : {"tools", "documents"}) context.set_val(name, jinja::mk_val<jinja::value_none>());
    context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
    const jinja::value result = jinja::runtime(context).execute(program);
    return jinja::runtime::gather_string_parts(result)->as_string().str();
  } catch (const std::exception& error) {  // several lines of where, then the message
    const std::string what = error.what();
    const auto at = what.rfind("Error: ");
    const std::string message = at == what.npos ? what : what.substr(at + 7);
    if (message == std::bad_alloc().what()) throw std::bad_alloc();
    throw std::runtime_error(message);
  }
}

#else

bool has_jinja() { return false; }

std::string render_jinja(const ChatTemplateText&, std::span<const ChatTurn>, std::time_t) {
  throw std::runtime_error("this program was built without a Jinja engine");
}

#endif

}  // namespace specula_tools
