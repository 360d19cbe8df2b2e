// SPDX-License-Identifier: MIT
#include "pre_tokenizer.hpp"

#include <utility>

#include "normalizer.hpp"
#include "text_pattern.hpp"

namespace specula_tools {
namespace {

using specula::files::JsonFields;

constexpr std::string_view kSpace = "\xe2\x96\x81";
/// Of GPT-2's encoder.py.
constexpr const char* kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// What becomes of matches. `tokenizers` calls it SplitDelimiterBehavior.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const JsonFields& part) {
  const std::string name = part.text("behavior");
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  refuse_tokenizer(part, "a behavior " + name);
}

/// A part of a word: a match, or what lies between two of them.
struct Part {
  std::size_t end;
  bool match;
};

bool joined(Behavior behavior, bool match, bool next_match) {
  switch (behavior) {
    case Behavior::merged_with_previous:
      return !match && next_match;
    case Behavior::merged_with_next:
      return match && !next_match;
    case Behavior::contiguous:
      return match == next_match;
    default:
      return false;
  }
}

/// Cuts each word at the matches of a pattern.
void cut(Words& words, const TextPattern& pattern, Behavior behavior, bool invert) {
  Words out;
  std::vector<Part> parts;
  std::size_t begin = 0;
  for (const std::size_t end : words.ends) {
    parts.clear();
    std::size_t from = begin;
    const std::string_view word = std::string_view(words.text).substr(begin, end - begin);
    pattern.for_each_match(word, [&](std::size_t match_begin, std::size_t match_end) {
      if (begin + match_begin > from) parts.push_back({begin + match_begin, invert});
      parts.push_back({begin + match_end, !invert});
      from = begin + match_end;
    });
    if (from < end) parts.push_back({end, invert});
    from = begin;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i + 1 < parts.size() && joined(behavior, parts[i].match, parts[i + 1].match)) continue;
      const std::size_t size = parts[i].end - from;
      const bool removed = behavior == Behavior::removed && parts[i].match;
      if (size > 0 && !removed) {
        out.text.append(words.text, from, size);
        out.ends.push_back(out.text.size());
      }
      from = parts[i].end;
    }
    begin = end;
  }
  words = std::move(out);
}

auto cutter(TextPattern pattern, Behavior behavior, bool invert = false) {
  return [=, pattern = std::move(pattern)](Words& words, bool) { cut(words, pattern, behavior, invert); };
}

/// Puts `front` in front of each word that does not begin with it, or only of the first.
void prefix(Words& words, std::string_view front, bool each) {
  Words out;
  words.for_each([&](std::string_view word) {
    if ((each || out.ends.empty()) && !word.starts_with(front)) out.text += front;
    out.text += word;
    out.ends.push_back(out.text.size());
  });
  words = std::move(out);
}

void mark_spaces(Words& words) {
  Words out;
  words.for_each([&](std::string_view word) {
    for (const char byte : word) byte == ' ' ? out.text.append(kSpace) : out.text.append(1, byte);
    out.ends.push_back(out.text.size());
  });
  words = std::move(out);
}

}  // namespace

void PreTokenizer::add(const JsonFields& part) {
  const std::string type = part.text("type");
  if (byte_level_) refuse_tokenizer(part, "a pre_tokenizer " + type + " after ByteLevel");
  if (type == "Sequence") {
    for (const JsonFields& inner : part.objects("pretokenizers")) add(inner);
  } else if (type == "Split") {
    steps_.emplace_back(cutter(TextPattern::read(part), read_behavior(part), part.flag("invert")));
  } else if (type == "Digits") {
    steps_.emplace_back(cutter(TextPattern::regular_expression("\\p{N}", part.source()),
                               part.flag("individual_digits") ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "ByteLevel") {
    if (part.flag("add_prefix_space", true))
      steps_.emplace_back([](Words& words, bool) { prefix(words, " ", true); });
    if (part.flag("use_regex", true))
      steps_.emplace_back(
          cutter(TextPattern::regular_expression(kByteLevelWords, part.source()), Behavior::isolated));
    byte_level_ = true;
  } else if (type == "Metaspace" && part.text("replacement") == kSpace) {
    const auto scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    const bool each = scheme == "always", one = scheme == "first";
    steps_.emplace_back([=](Words& words, bool first) {
      mark_spaces(words);
      if (each || (one && first)) prefix(words, kSpace, each);
    });
    if (part.flag("split", true))
      steps_.emplace_back(cutter(TextPattern::literal(std::string(kSpace)), Behavior::merged_with_next));
    marks_spaces_ = true;
  } else {
    refuse_tokenizer(part, "a pre_tokenizer " + type);
  }
}

Words PreTokenizer::operator()(std::string text, bool first) const {
  Words words;
  if (text.empty()) return words;
  words.ends.push_back(text.size());
  words.text = std::move(text);
  for (const auto& step : steps_) step(words, first);
  return words;
}

}  // namespace specula_tools
