// SPDX-License-Identifier: MIT
// Grammar of pipelines' texts, and the error in one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/read_number.hpp"
#include "specula/runtime/nearest.hpp"

namespace specula {

/// Thrown if a text names no pipeline, one of its values is out of range, or the models do not support the
/// pipeline.
class PipelineError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A value that a text may give: a size, by its place, or a key with its value.
struct PipelineField {
  /// What a value is: sizes come by their place, the others as key=value. Dashes separate the values of a
  /// list, points those of a path in a list of paths.
  enum class Kind { size, whole, number, word, wholes, numbers, paths };

  const char* name;      ///< the key
  Kind kind;             ///< how the value is read
  const char* fallback;  ///< the value if none is given; of a word all, the fallback first: "no|yes"
  double low = 0;        ///< least number
  double high = 0;       ///< largest number
  std::size_t most = 1;  ///< values of a list, at most
  const char* if_cost_aware = nullptr;  ///< the value if none is given after cost-aware:, if it is another
};

/// The parts of a text, `[cost-aware:]SHAPE[:SIZE]*[:KEY=VALUE]*[@DRAFTER[,DRAFTER]*]`. Values are read by
/// the names of fields that know() has added; done() throws for those that were not read. Numbers are read
/// alike in every locale: digits, a point, an exponent, 32 characters at most; no blanks, no hexadecimal
/// digits.
class PipelineSpec {
 public:
  /// Maximum length of a text, in bytes.
  static constexpr std::size_t kMaxLength = 4096;

  /// Throws PipelineError if `text` does not follow the grammar, has a control character, or is longer than
  /// kMaxLength.
  explicit PipelineSpec(std::string_view text);

  const std::string& text() const { return text_; }    ///< as it was given
  bool cost_aware() const { return cost_aware_; }      ///< whether it begins with cost-aware:
  const std::string& shape() const { return shape_; }  ///< the shape's name
  const std::vector<std::string>& drafters() const { return drafters_; }  ///< those after the @

  /// Sets the drafters of a text that names none, with commas between them.
  void draft_by(std::string_view drafters);
  /// Adds fields that the text may have. They must outlive this.
  void know(std::span<const PipelineField> fields) {
    known_.insert(known_.end(), fields.begin(), fields.end());
  }
  /// Whether the text gives the field a value.
  bool given(std::string_view name) { return find(field(name)) != nullptr; }
  /// A whole number. Throws PipelineError, as the following do, if the value is none or out of the field's
  /// range.
  std::int32_t whole(std::string_view name);
  double number(std::string_view name);     ///< a number
  std::string word(std::string_view name);  ///< one of the field's words
  bool is(std::string_view name, std::string_view word) { return this->word(name) == word; }  ///< that word
  std::vector<std::int32_t> wholes(std::string_view name);  ///< whole numbers, as in widths=4-2-1
  std::vector<float> numbers(std::string_view name);        ///< numbers, as in thresholds=0.5-0.7
  /// Lists of whole numbers, as in choices=0-1-0.0.
  std::vector<std::vector<std::int32_t>> paths(std::string_view name);
  /// Throws PipelineError naming a part that no call has read; `usage` is the pipeline's syntax.
  void done(const std::string& usage) const;

  /// Throws PipelineError with the pipeline's text and `what`, each cut where it is long.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Value {
    std::string text;
    bool read = false;
  };
  struct Option {
    std::string key;
    Value value;
  };

  const PipelineField& field(std::string_view name) const;
  Value* find(const PipelineField& field);
  /// The field's text, given or not; it counts as read.
  std::string take(const PipelineField& field);

  std::string text_, shape_;
  bool cost_aware_ = false;
  std::vector<PipelineField> known_;
  std::vector<Value> sizes_;
  std::vector<Option> options_;
  std::vector<std::string> drafters_;
};

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

inline bool is_size(std::string_view part) { return part.find_first_not_of("0123456789") == part.npos; }

/// "1 to 64"
inline std::string range_of(const PipelineField& field) {
  return number(field.low) + " to " + number(field.high);
}

}  // namespace detail

inline PipelineSpec::PipelineSpec(std::string_view text) : text_(text.substr(0, kMaxLength)) {
  if (text.size() > kMaxLength)
    fail("a text of " + detail::number(text.size()) + " bytes, must be at most " +
         detail::number(kMaxLength));
  if (const auto bad = std::find_if(text.begin(), text.end(), detail::is_control); bad != text.end())
    fail("byte " + detail::number(bad - text.begin()) + " is " +
         detail::number(static_cast<int>(static_cast<unsigned char>(*bad))) + ", a control character");
  if (const auto at = text.find('@'); at != text.npos) {
    drafters_ = detail::split(text.substr(at + 1), ',');
    for (const std::string& name : drafters_)
      if (name.empty() || name.find_first_of("@:=") != name.npos)
        fail(detail::quoted(name) + " is no drafter");
    text = text.substr(0, at);
  }
  auto parts = detail::split(text, ':');
  cost_aware_ = parts.size() > 1 && parts[0] == "cost-aware";
  if (cost_aware_) parts.erase(parts.begin());
  shape_ = parts[0];
  for (const std::string& part : std::span(parts).subspan(1)) {
    if (part.empty()) fail("a part is empty");
    if (const auto equals = part.find('='); equals != std::string::npos) {
      if (equals == 0 || equals + 1 == part.size()) fail(detail::quoted(part) + " is not key=value");
      options_.push_back({part.substr(0, equals), {part.substr(equals + 1)}});
    } else if (detail::is_size(part)) {
      sizes_.push_back({part});
    } else {
      fail(detail::quoted(part) + " is neither a size nor key=value; drafters come after an @");
    }
  }
}

inline void PipelineSpec::draft_by(std::string_view drafters) { drafters_ = detail::split(drafters, ','); }

inline void PipelineSpec::fail(const std::string& what) const {
  constexpr std::size_t kMaxSaid = 1000;
  throw PipelineError("pipeline " + detail::quoted(text_) + ": " + detail::cut(what, kMaxSaid));
}

inline const PipelineField& PipelineSpec::field(std::string_view name) const {
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const auto& f) { return f.name == name; });
  if (found == known_.end()) throw std::logic_error("PipelineSpec: no field '" + std::string(name) + "'");
  return *found;
}

inline PipelineSpec::Value* PipelineSpec::find(const PipelineField& field) {
  if (field.kind == PipelineField::Kind::size) {
    std::size_t place = 0;
    for (const PipelineField& other : known_) {
      if (other.kind != PipelineField::Kind::size) continue;
      if (std::string_view(other.name) == field.name) break;
      ++place;
    }
    return place < sizes_.size() ? &sizes_[place] : nullptr;
  }
  const auto found =
      std::find_if(options_.begin(), options_.end(), [&](const Option& o) { return o.key == field.name; });
  return found == options_.end() ? nullptr : &found->value;
}

inline std::string PipelineSpec::take(const PipelineField& field) {
  if (Value* const found = find(field)) {
    found->read = true;
    return found->text;
  }
  const std::string_view fallback = cost_aware_ && field.if_cost_aware ? field.if_cost_aware : field.fallback;
  return std::string(field.kind == PipelineField::Kind::word ? fallback.substr(0, fallback.find('|'))
                                                             : fallback);
}

inline double PipelineSpec::number(std::string_view name) {
  const PipelineField& entry = field(name);
  const std::string text = take(entry);
  double value = 0;
  if (!detail::read_number(text, value))
    fail(entry.name + (" is " + detail::quoted(text)) + ", must be a number");
  if (!(value >= entry.low && value <= entry.high))
    fail(entry.name + (" is " + detail::number(value)) + ", must be " + detail::range_of(entry));
  return value;
}

inline std::int32_t PipelineSpec::whole(std::string_view name) {
  const double value = number(name);
  if (value != std::floor(value))
    fail(std::string(name) + " is " + detail::number(value) + ", must be a whole number");
  return static_cast<std::int32_t>(value);
}

inline std::string PipelineSpec::word(std::string_view name) {
  const PipelineField& entry = field(name);
  std::string text = take(entry), all;
  for (const std::string& word : detail::split(entry.fallback, '|')) {
    if (text == word) return text;
    all.append(all.empty() ? "" : ", ").append(word);
  }
  fail(entry.name + (" is " + detail::quoted(text)) + ", must be one of " + all);
}

inline std::vector<float> PipelineSpec::numbers(std::string_view name) {
  const PipelineField& entry = field(name);
  const std::string text = take(entry);
  std::vector<float> out;
  if (text.empty()) return out;
  for (const std::string& part : detail::split(text, '-')) {
    double number = 0;
    if (!detail::read_number(part, number) || !(number >= entry.low && number <= entry.high))
      fail(entry.name + (" is " + detail::quoted(text)) + ", must be numbers from " +
           detail::range_of(entry) + " with dashes between them");
    out.push_back(static_cast<float>(number));
  }
  if (out.size() > entry.most)
    fail(entry.name + (" has more than " + detail::number(entry.most)) + " numbers");
  return out;
}

inline std::vector<std::vector<std::int32_t>> PipelineSpec::paths(std::string_view name) {
  const PipelineField& entry = field(name);
  const std::string text = take(entry);
  const bool nested = entry.kind == PipelineField::Kind::paths;
  std::vector<std::vector<std::int32_t>> out;
  if (text.empty()) return out;
  for (const std::string& path : detail::split(text, '-')) {
    out.emplace_back();
    for (const std::string& part : nested ? detail::split(path, '.') : std::vector{path}) {
      std::int32_t number = 0;
      if (!detail::read_number(part, number) || number < entry.low || number > entry.high)
        fail(entry.name + (" is " + detail::quoted(text)) + ", must be " +
             (nested ? "paths with dashes between them, each of numbers from " + detail::range_of(entry) +
                           " with points between them"
                     : "numbers from " + detail::range_of(entry) + " with dashes between them"));
      out.back().push_back(number);
    }
  }
  if (out.size() > entry.most)
    fail(entry.name + (" has more than " + detail::number(entry.most)) + (nested ? " paths" : " numbers"));
  return out;
}

inline std::vector<std::int32_t> PipelineSpec::wholes(std::string_view name) {
  std::vector<std::int32_t> out;
  for (const auto& path : paths(name)) out.push_back(path.front());
  return out;
}

inline void PipelineSpec::done(const std::string& usage) const {
  const auto unknown = [&](const std::string& part) {
    fail("does not know what to do with " + detail::quoted(part) + "; it is written " + usage);
  };
  for (const Value& size : sizes_)
    if (!size.read) unknown(size.text);
  std::vector<std::string> keys;
  for (const PipelineField& entry : known_)
    if (entry.kind != PipelineField::Kind::size) keys.emplace_back(entry.name);
  for (const auto& [key, value] : options_) {
    if (value.read) continue;
    const auto closest = nearest(key, keys, 1);
    if (!closest.empty() && closest.front() != key && edit_distance(key, closest.front()) <= 2)
      fail("has no option " + detail::quoted(key) + ", is " +
           detail::cut(closest.front() + "=" + value.text, detail::kMaxQuoted) + " meant? It is written " +
           usage);
    unknown(key + "=" + value.text);
  }
}

}  // namespace specula
