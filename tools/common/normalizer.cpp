// SPDX-License-Identifier: MIT
#include "normalizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#ifdef SPECULA_HAS_UTF8PROC
#include <utf8proc.h>
#endif

#include "text_pattern.hpp"

namespace specula_tools {
namespace {

using specula::files::JsonFields;

#ifdef SPECULA_HAS_UTF8PROC
std::string composed(std::string text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return text;
  utf8proc_uint8_t* out = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &out,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(out, &std::free);
  if (size < 0) throw std::runtime_error(std::string("NFC: ") + utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
}
#endif

std::function<std::string(std::string)> nfc([[maybe_unused]] const JsonFields& part) {
#ifdef SPECULA_HAS_UTF8PROC
  return composed;
#else
  throw std::runtime_error(part.source() +
                           ": a normalizer NFC needs utf8proc, which these programs are built without: "
                           "install it (Debian: libutf8proc-dev) and configure them again, or run the model "
                           "as a GGUF file in llama.cpp (specula run --engine llama.cpp)");
#endif
}

std::string replaced(const std::string& text, const TextPattern& pattern, const std::string& by) {
  std::string out;
  std::size_t from = 0;
  pattern.for_each_match(text, [&](std::size_t begin, std::size_t end) {
    out.append(text, from, begin - from).append(by);
    from = end;
  });
  return out.append(text, from);
}

}  // namespace

void Normalizer::add(const JsonFields& part) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonFields& inner : part.objects("normalizers")) add(inner);
  } else if (type == "Prepend") {
    steps_.emplace_back(
        [front = part.text("prepend")](std::string text) { return text.empty() ? text : front + text; });
  } else if (type == "Replace") {
    steps_.emplace_back([pattern = TextPattern::read(part), by = part.text("content")](
                            const std::string& text) { return replaced(text, pattern, by); });
  } else if (type == "NFC") {
    steps_.push_back(nfc(part));
  } else {
    refuse_tokenizer(part, "a normalizer " + type);
  }
}

std::string Normalizer::operator()(std::string_view text) const {
  std::string out(text);
  for (const auto& step : steps_) out = step(std::move(out));
  return out;
}

void refuse_tokenizer(const JsonFields& part, const std::string& what) {
  throw std::runtime_error(
      part.source().substr(0, part.source().find(": key '")) + ": " + what +
      " is not read; put the SentencePiece model, if there is one, beside it as "
      "tokenizer.model, or run the model as a GGUF file in llama.cpp (specula run --engine llama.cpp)");
}

}  // namespace specula_tools
