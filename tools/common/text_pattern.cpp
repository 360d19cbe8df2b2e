// SPDX-License-Identifier: MIT
#include "text_pattern.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#ifdef SPECULA_HAS_ONIGURUMA
#include <oniguruma.h>
#endif

namespace specula_tools {

#ifdef SPECULA_HAS_ONIGURUMA

struct TextPattern::Expression {
  Expression(const std::string& expression, const std::string& source) : where(source) {
    static const int ready = [] {
      OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
      return onig_initialize(encodings, 1);
    }();
    OnigErrorInfo info;
    const auto* const begin = reinterpret_cast<const OnigUChar*>(expression.data());
    const int status = ready != ONIG_NORMAL
                           ? ready
                           : onig_new(&compiled, begin, begin + expression.size(), ONIG_OPTION_NONE,
                                      ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    if (status != ONIG_NORMAL) fail(status, &info);
  }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  ~Expression() { onig_free(compiled); }

  [[noreturn]] void fail(int status, OnigErrorInfo* info = nullptr) const {
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int size = info ? onig_error_code_to_str(text, status, info) : onig_error_code_to_str(text, status);
    throw std::runtime_error(
        where + ": regular expression: " +
        std::string(reinterpret_cast<const char*>(text), static_cast<std::size_t>(std::max(size, 0))));
  }

  // As the iterator of the crate `onig`: an empty match next to the last one is none.
  void for_each_match(std::string_view text, const OnMatch& on_match) const {
    const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
        onig_region_new(), [](OnigRegion* r) { onig_region_free(r, 1); });
    const std::unique_ptr<OnigMatchParam, void (*)(OnigMatchParam*)> limits(onig_new_match_param(),
                                                                            &onig_free_match_param);
    if (!region || !limits) throw std::bad_alloc();
    onig_initialize_match_param(limits.get());
    const unsigned long limit = 1'000'000 + 100ul * text.size();
    onig_set_retry_limit_in_match_of_match_param(limits.get(), limit);
    onig_set_retry_limit_in_search_of_match_param(limits.get(), limit);
    const auto* const begin = reinterpret_cast<const OnigUChar*>(text.data());
    const auto* const end = begin + text.size();
    std::size_t from = 0, last = text.size() + 1;
    while (from <= text.size()) {
      const int at = onig_search_with_param(compiled, begin, end, begin + from, end, region.get(),
                                            ONIG_OPTION_NONE, limits.get());
      if (at == ONIG_MISMATCH) return;
      if (at < 0) fail(at);
      const auto first = static_cast<std::size_t>(region->beg[0]),
                 after = static_cast<std::size_t>(region->end[0]);
      if (first == after && after == last) {
        do ++from;
        while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
        continue;
      }
      on_match(first, after);
      from = last = after;
    }
  }

  regex_t* compiled = nullptr;
  std::string where;
};

bool TextPattern::has_regular_expressions() { return true; }

#else

struct TextPattern::Expression {
  Expression(const std::string&, const std::string& source) {
    throw std::runtime_error(
        source +
        ": needs regular expressions, which these programs are built without: install "
        "Oniguruma (Debian: libonig-dev) and configure them again, or run the model as a "
        "GGUF file in llama.cpp (specula run --engine llama.cpp)");
  }
  void for_each_match(std::string_view, const OnMatch&) const {}
};

bool TextPattern::has_regular_expressions() { return false; }

#endif

TextPattern TextPattern::literal(std::string text) {
  TextPattern out;
  out.literal_ = std::move(text);
  return out;
}

TextPattern TextPattern::regular_expression(const std::string& expression, const std::string& source) {
  if (expression.size() > 10'000)
    throw std::runtime_error(source + ": regular expression of " + std::to_string(expression.size()) +
                             " bytes, expected at most 10000");
  TextPattern out;
  out.expression_ = std::make_shared<const Expression>(expression, source);
  return out;
}

TextPattern TextPattern::read(const specula::files::JsonFields& part) {
  const specula::files::JsonFields pattern = part.object("pattern");
  if (pattern.find("String")) return literal(pattern.text("String"));
  return regular_expression(pattern.text("Regex"), pattern.source());
}

void TextPattern::for_each_match(std::string_view text, const OnMatch& on_match) const {
  if (expression_) return expression_->for_each_match(text, on_match);
  if (literal_.empty()) return;
  for (std::size_t at = 0; (at = text.find(literal_, at)) != text.npos; at += literal_.size())
    on_match(at, at + literal_.size());
}

}  // namespace specula_tools
