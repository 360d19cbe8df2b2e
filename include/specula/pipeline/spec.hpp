// Grammar of pipeline names, such as chain:small:6:exit=0.3, and the error in one.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/pipeline/nearest.hpp"

namespace specula {

/// Thrown if a text names no pipeline, one of its values is out of range, or the models do not support the
/// pipeline.
class PipelineError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// NAME followed by parts, each after a colon:
///
///   a word           a model of the pack, or a word that the pipeline knows          chain:small
///   a whole number   a size: length, width, ...                                      chain:small:6
///   key=value        an option                                                       chain:small:6:exit=0.3
///
/// Words, numbers and options each keep their order; between the three kinds the order does not matter. A
/// pipeline takes the parts that it knows and calls done(), which throws for the rest. Numbers are read alike
/// in every locale: digits, a point, an exponent; no blanks, no hexadecimal digits.
class PipelineSpec {
 public:
  /// Maximum length of a text, in bytes.
  static constexpr std::size_t kMaxLength = 4096;

  /// Throws PipelineError if `text` does not follow the grammar, has a control character, or is longer than
  /// kMaxLength.
  explicit PipelineSpec(std::string_view text);

  const std::string& text() const { return text_; }  ///< as it was given
  const std::string& name() const { return name_; }  ///< the part before the first colon

  /// The next word, or `fallback` if there is none.
  std::string word(const std::string& fallback);
  /// The next number, or `fallback`. Throws PipelineError outside [low, high].
  std::int32_t size(const char* what, std::int32_t fallback, std::int32_t low, std::int32_t high);
  /// The value of an option, or `fallback`. Throws PipelineError if it is no number in [low, high].
  double option(const std::string& key, double fallback, double low, double high);
  /// The same for a whole number.
  std::int32_t count(const std::string& key, std::int32_t fallback, std::int32_t low, std::int32_t high);
  /// The value of an option whose values are words, or `fallback`. Throws PipelineError if it is not among
  /// `allowed`.
  std::string choice(const std::string& key, const std::string& fallback,
                     const std::vector<std::string>& allowed);
  /// Sizes with dashes between them, as in widths=4-2-1, or `fallback`. Throws PipelineError if there are more
  /// than `most` of them or one is outside [low, high].
  std::vector<std::int32_t> sizes(const std::string& key, const std::vector<std::int32_t>& fallback,
                                  std::size_t most, std::int32_t low, std::int32_t high);
  /// The same for numbers with a point, as in thresholds=0.5-0.7.
  std::vector<float> numbers(const std::string& key, const std::vector<float>& fallback, std::size_t most,
                             double low, double high);
  /// Lists of whole numbers from 0 to `high`: points between the numbers of a list, dashes between lists, as
  /// in choices=0-1-0.0; or `fallback`. Throws PipelineError as sizes() does.
  std::vector<std::vector<std::int32_t>> paths(const std::string& key,
                                               const std::vector<std::vector<std::int32_t>>& fallback,
                                               std::size_t most, std::int32_t high);
  /// The first word that is among `allowed`, at any place, or `fallback`. For words that are not models.
  std::string keyword(const std::string& fallback, const std::vector<std::string>& allowed);
  /// Throws PipelineError naming the parts that no call has taken; `usage` is the pipeline's syntax.
  void done(const std::string& usage) const;

  /// Throws PipelineError with the pipeline's text and `what`, each cut where it is long.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool take(const std::string& key, std::string& value);

  std::string text_, name_;
  std::vector<std::string> known_;  // options that calls have read
  std::deque<std::string> words_;
  std::deque<std::int32_t> sizes_;
  std::vector<std::pair<std::string, std::string>> options_;
};

/// The error message for a pipeline `text` whose name is not among `names`.
std::string unknown_pipeline(const std::string& text, const std::string& name,
                             const std::vector<std::string>& names);

namespace detail {

constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const auto end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The first bytes of `text`, at most `most`, and "..." if there are more; never a part of a UTF-8 sequence.
inline std::string cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return std::string(text.substr(0, most)) + "...";
}

/// Maximum bytes of a text that a message quotes.
inline constexpr std::size_t kMaxQuoted = 200;

/// `text` as a message of one line quotes it: cut, and without control characters.
inline std::string quoted(std::string_view text) {
  std::string out = cut(text, kMaxQuoted);
  std::replace_if(out.begin(), out.end(), is_control, '?');
  return std::string("'").append(out).append("'");
}

/// Whether `text` is a number and nothing else; if so, sets `number` to it.
inline bool read_number(std::string_view text, double& number) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return !text.empty() && read.ec == std::errc() && read.ptr == end;
}

/// Whether `text` is a whole number in [low, high]; if so, sets `number` to it.
inline bool read_whole(const std::string& text, std::int32_t low, std::int32_t high, std::int32_t& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size() && number >= low &&
         number <= high;
}

}  // namespace detail

inline PipelineSpec::PipelineSpec(std::string_view text) : text_(text.substr(0, kMaxLength)) {
  if (text.size() > kMaxLength)
    fail("a text of " + detail::number(text.size()) + " bytes, must be at most " +
         detail::number(kMaxLength));
  if (const auto bad = std::find_if(text.begin(), text.end(), detail::is_control); bad != text.end())
    fail("byte " + detail::number(bad - text.begin()) + " is " +
         detail::number(static_cast<int>(static_cast<unsigned char>(*bad))) + ", a control character");
  const auto parts = detail::split(text, ':');
  name_ = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (part.empty()) fail("a part is empty");
    if (const auto equals = part.find('='); equals != std::string::npos) {
      if (equals == 0 || equals + 1 == part.size()) fail(detail::quoted(part) + " is not key=value");
      options_.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    } else if (part.find_first_not_of("0123456789") == std::string::npos) {
      std::int32_t number = 0;
      if (std::from_chars(part.data(), part.data() + part.size(), number).ec != std::errc())
        fail(detail::cut(part, detail::kMaxQuoted) + " is too large");
      sizes_.push_back(number);
    } else {
      words_.push_back(part);
    }
  }
}

inline void PipelineSpec::fail(const std::string& what) const {
  constexpr std::size_t kMaxSaid = 1000;
  throw PipelineError("pipeline " + detail::quoted(text_) + ": " + detail::cut(what, kMaxSaid));
}

inline std::string PipelineSpec::word(const std::string& fallback) {
  if (words_.empty()) return fallback;
  std::string first = std::move(words_.front());
  words_.pop_front();
  return first;
}

inline std::int32_t PipelineSpec::size(const char* what, std::int32_t fallback, std::int32_t low,
                                       std::int32_t high) {
  if (sizes_.empty()) return fallback;
  const std::int32_t first = sizes_.front();
  sizes_.pop_front();
  if (first < low || first > high)
    fail(std::string(what) + " is " + std::to_string(first) + ", must be " + std::to_string(low) + " to " +
         std::to_string(high));
  return first;
}

inline bool PipelineSpec::take(const std::string& key, std::string& value) {
  known_.push_back(key);
  const auto found =
      std::find_if(options_.begin(), options_.end(), [&](const auto& o) { return o.first == key; });
  if (found == options_.end()) return false;
  value = found->second;
  options_.erase(found);
  return true;
}

inline double PipelineSpec::option(const std::string& key, double fallback, double low, double high) {
  std::string text;
  if (!take(key, text)) return fallback;
  double value = 0;
  if (!detail::read_number(text, value)) fail(key + " is " + detail::quoted(text) + ", must be a number");
  if (!(value >= low && value <= high))
    fail(key + " is " + detail::number(value) + ", must be " + detail::number(low) + " to " +
         detail::number(high));
  return value;
}

inline std::int32_t PipelineSpec::count(const std::string& key, std::int32_t fallback, std::int32_t low,
                                        std::int32_t high) {
  const double value = option(key, fallback, low, high);
  if (value != std::floor(value)) fail(key + " is " + detail::number(value) + ", must be a whole number");
  return static_cast<std::int32_t>(value);
}

inline std::string PipelineSpec::choice(const std::string& key, const std::string& fallback,
                                        const std::vector<std::string>& allowed) {
  std::string text;
  if (!take(key, text)) return fallback;
  if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  std::string all;
  for (const std::string& word : allowed) all.append(all.empty() ? "" : ", ").append(word);
  fail(key + " is " + detail::quoted(text) + ", must be one of " + all);
}

inline std::vector<std::int32_t> PipelineSpec::sizes(const std::string& key,
                                                     const std::vector<std::int32_t>& fallback,
                                                     std::size_t most, std::int32_t low, std::int32_t high) {
  std::string text;
  if (!take(key, text)) return fallback;
  std::vector<std::int32_t> out;
  for (const std::string& part : detail::split(text, '-')) {
    std::int32_t number = 0;
    if (!detail::read_whole(part, low, high, number))
      fail(key + " is " + detail::quoted(text) + ", must be numbers from " + std::to_string(low) + " to " +
           std::to_string(high) + " with dashes between them");
    out.push_back(number);
  }
  if (out.size() > most) fail(key + " has more than " + std::to_string(most) + " numbers");
  return out;
}

inline std::vector<std::vector<std::int32_t>> PipelineSpec::paths(
    const std::string& key, const std::vector<std::vector<std::int32_t>>& fallback, std::size_t most,
    std::int32_t high) {
  std::string text;
  if (!take(key, text)) return fallback;
  std::vector<std::vector<std::int32_t>> out;
  for (const std::string& path : detail::split(text, '-')) {
    out.emplace_back();
    for (const std::string& part : detail::split(path, '.')) {
      std::int32_t number = 0;
      if (!detail::read_whole(part, 0, high, number))
        fail(key + " is " + detail::quoted(text) +
             ", must be paths with dashes between them, each of numbers from 0 to " + std::to_string(high) +
             " with points between them");
      out.back().push_back(number);
    }
  }
  if (out.size() > most) fail(key + " has more than " + std::to_string(most) + " paths");
  return out;
}

inline std::vector<float> PipelineSpec::numbers(const std::string& key, const std::vector<float>& fallback,
                                                std::size_t most, double low, double high) {
  std::string text;
  if (!take(key, text)) return fallback;
  std::vector<float> out;
  for (const std::string& part : detail::split(text, '-')) {
    double number = 0;
    if (!detail::read_number(part, number) || !(number >= low && number <= high))
      fail(key + " is " + detail::quoted(text) + ", must be numbers from " + detail::number(low) + " to " +
           detail::number(high) + " with dashes between them");
    out.push_back(static_cast<float>(number));
  }
  if (out.size() > most) fail(key + " has more than " + std::to_string(most) + " numbers");
  return out;
}

inline std::string PipelineSpec::keyword(const std::string& fallback, const std::vector<std::string>& allowed) {
  for (auto word = words_.begin(); word != words_.end(); ++word)
    if (std::find(allowed.begin(), allowed.end(), *word) != allowed.end()) {
      std::string found = std::move(*word);
      words_.erase(word);
      return found;
    }
  return fallback;
}

inline void PipelineSpec::done(const std::string& usage) const {
  const auto unknown = [&](const std::string& part) {
    fail("does not know what to do with " + detail::quoted(part) + "; it is written " + usage);
  };
  if (!words_.empty()) unknown(words_.front());
  if (!sizes_.empty()) unknown(std::to_string(sizes_.front()));
  if (options_.empty()) return;
  const auto& [key, value] = options_.front();
  const auto closest = nearest(key, known_, 1);
  if (!closest.empty() && closest.front() != key && edit_distance(key, closest.front()) <= 2)
    fail("has no option " + detail::quoted(key) + ", is " +
         detail::cut(closest.front() + "=" + value, detail::kMaxQuoted) + " meant? It is written " + usage);
  unknown(key + "=" + value);
}

inline std::string unknown_pipeline(const std::string& text, const std::string& name,
                                    const std::vector<std::string>& names) {
  std::string message = "unknown pipeline " + detail::quoted(text);
  const char* before = "; the nearest are ";
  for (const std::string& closest : nearest(name, names, 3)) message += std::exchange(before, ", ") + closest;
  return message;
}

}  // namespace specula
