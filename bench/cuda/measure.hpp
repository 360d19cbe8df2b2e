// SPDX-License-Identifier: MIT
// Measurements on a GPU, host part: statistics, the table of bars, and a JSON writer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace specula_bench {

/// The middle value; the mean of the two in the middle of an even number. NaN for none.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The larger of two errors; NaN if one of them is, so that it is never lost among others.
inline double worse(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

/// Two measurements of the same thing: differences below their spread are noise.
struct Twice {
  double first = 0, second = 0;

  double slower() const { return std::max(first, second); }
  /// Relative to the smaller one.
  double spread() const { return std::abs(first - second) / std::min(first, second); }
};

/// Chi-square over its degrees of freedom as a standard normal number (Wilson and Hilferty 1931): above 3.7
/// with probability 1e-4.
inline double chi_square_deviate(double chi_square, double freedom) {
  const double part = 2 / (9 * freedom);
  return (std::cbrt(chi_square / freedom) - (1 - part)) / std::sqrt(part);
}

/// Writes JSON sequentially. NaN and infinities become null.
class Json {
 public:
  Json& begin_object() { return open('{'); }
  Json& begin_array() { return open('['); }
  Json& end() {
    const char last = scopes_.back();
    scopes_.pop_back();
    if (!fresh_) line();
    text_ += last;
    fresh_ = false;
    return *this;
  }
  Json& key(const std::string& name) {
    separate();
    quote(name);
    text_ += ": ";
    after_key_ = true;
    return *this;
  }
  Json& value(double number) {
    char out[40];
    std::snprintf(out, sizeof out, "%.9g", number);
    return raw(std::isfinite(number) ? out : "null");
  }
  Json& value(int number) { return value(static_cast<long long>(number)); }
  Json& value(long number) { return value(static_cast<long long>(number)); }
  Json& value(long long number) { return raw(std::to_string(number)); }
  Json& value(unsigned long number) { return raw(std::to_string(number)); }
  Json& value(unsigned long long number) { return raw(std::to_string(number)); }
  Json& value(bool yes) { return raw(yes ? "true" : "false"); }
  Json& value(const char* text) { return value(std::string(text)); }
  Json& value(const std::string& text) {
    separate();
    quote(text);
    return *this;
  }
  template <class T>
  Json& field(const std::string& name, const T& what) {
    return key(name).value(what);
  }
  template <class T>
  Json& values(const std::string& name, const std::vector<T>& all) {
    key(name).begin_array();
    for (const T& one : all) value(one);
    return end();
  }

  /// Everything so far, what is open closed: valid JSON at any time but between a key and its value.
  std::string text() const {
    std::string out = text_;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) out += *scope;
    return out + "\n";
  }
  /// Writes text() to a file, completely or not at all. False on failure.
  bool save(const std::string& path) const {
    const std::string unfinished = path + ".part";
    std::FILE* file = std::fopen(unfinished.c_str(), "w");
    if (!file) return false;
    const std::string all = text();
    const bool written = std::fwrite(all.data(), 1, all.size(), file) == all.size();
    return std::fclose(file) == 0 && written && std::rename(unfinished.c_str(), path.c_str()) == 0;
  }

 private:
  Json& open(char bracket) {
    separate();
    text_ += bracket;
    scopes_ += bracket == '{' ? '}' : ']';
    fresh_ = true;
    return *this;
  }
  Json& raw(const std::string& token) {
    separate();
    text_ += token;
    return *this;
  }
  void separate() {
    if (after_key_) {
      after_key_ = false;
    } else if (!scopes_.empty()) {
      if (!fresh_) text_ += ',';
      line();
    }
    fresh_ = false;
  }
  void line() {
    text_ += '\n';
    text_.append(scopes_.size(), ' ');
  }
  void quote(const std::string& what) {
    text_ += '"';
    for (const char c : what) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (byte < 0x20) {
        char out[8];
        std::snprintf(out, sizeof out, "\\u%04x", static_cast<unsigned>(byte));
        text_ += out;
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_, scopes_;
  bool fresh_ = true, after_key_ = false;
};

/// One line of the table of bars.
struct Bar {
  enum class Kind : std::uint8_t {
    at_most,   // the value must not be above the limit
    at_least,  // nor below it
    shown,     // there is no limit
    missing    // there is no value: `note` says what it needs
  };

  std::string name;
  Kind kind = Kind::shown;
  double limit = 0, value = 0;
  double next = 0;  // where there is one: the limit after this one
  std::string unit = "us";
  Twice time;        // us per launch
  double bytes = 0;  // that must be moved
  double flops = 0;  // that must be done
  double floor = 0;  // us: the bytes over the copy bandwidth
  std::string note;

  /// Above 1 where the bar is missed.
  double ratio() const {
    if (kind == Kind::at_most) return value / limit;
    if (kind == Kind::at_least) return limit / value;
    return 0;
  }
  bool has_limit() const { return kind == Kind::at_most || kind == Kind::at_least; }
  bool passes() const { return has_limit() && ratio() <= 1; }
  bool passes_next() const {
    return next > 0 && (kind == Kind::at_most ? value <= next : kind == Kind::at_least && value >= next);
  }
  const char* result() const {
    if (kind == Kind::missing) return "not measured";
    if (kind == Kind::shown) return "";
    return passes_next() ? "pass, the next too" : passes() ? "pass" : "FAIL";
  }
};

/// A bar over microseconds, `bandwidth` in bytes per second.
inline Bar time_bar(std::string name, double limit_us, Twice time, double bytes, double bandwidth) {
  Bar out;
  out.name = std::move(name);
  out.kind = limit_us > 0 ? Bar::Kind::at_most : Bar::Kind::shown;
  out.limit = limit_us;
  out.value = time.slower();
  out.time = time;
  out.bytes = bytes;
  out.floor = bytes / bandwidth * 1e6;
  return out;
}
inline Bar missing_bar(std::string name, double limit, std::string unit, std::string note) {
  Bar out;
  out.name = std::move(name);
  out.kind = Bar::Kind::missing;
  out.limit = limit;
  out.unit = std::move(unit);
  out.note = std::move(note);
  return out;
}

inline void write_bar(Json& json, const Bar& bar) {
  json.begin_object().field("name", bar.name);
  if (bar.kind == Bar::Kind::missing) {
    json.field("limit", bar.limit).field("unit", bar.unit).field("note", bar.note).end();
    return;
  }
  json.field("value", bar.value).field("unit", bar.unit);
  if (bar.has_limit()) {
    json.field("limit", bar.limit).field("bound", bar.kind == Bar::Kind::at_most ? "at most" : "at least");
    json.field("ratio", bar.ratio()).field("pass", bar.passes());
    if (bar.next > 0) json.field("next_limit", bar.next).field("next_pass", bar.passes_next());
  }
  json.field("us_first", bar.time.first).field("us_second", bar.time.second);
  json.field("spread", bar.time.spread()).field("bytes", bar.bytes).field("flops", bar.flops);
  json.field("floor_us", bar.floor).field("note", bar.note).end();
}

inline std::string table_head() {
  return "| work | time us | spread | MB | floor us | of floor | value | bar | ratio | |\n"
         "|---|---|---|---|---|---|---|---|---|---|\n";
}
inline std::string table_row(const Bar& bar) {
  char limit[64] = "", ratio[16] = "", next[24] = "", out[512];
  const char* than = bar.kind == Bar::Kind::at_least ? ">=" : "<=";
  if (bar.kind == Bar::Kind::missing) return "| " + bar.name + " | | | | | | | | | " + bar.note + " |\n";
  if (bar.has_limit()) {
    if (bar.next > 0) std::snprintf(next, sizeof next, ", then %.4g", bar.next);
    std::snprintf(limit, sizeof limit, "%s %.4g%s %s", than, bar.limit, next, bar.unit.c_str());
    std::snprintf(ratio, sizeof ratio, "%.2f", bar.ratio());
  }
  std::snprintf(out, sizeof out, "| %s | %.2f | %.1f%% | %.2f | %.2f | %.2f | %.4g %s | %s | %s | %s |\n",
                bar.name.c_str(), bar.time.slower(), 100 * bar.time.spread(), bar.bytes / 1e6, bar.floor,
                bar.floor > 0 ? bar.time.slower() / bar.floor : 0.0, bar.value, bar.unit.c_str(), limit,
                ratio, bar.result());
  return out;
}

}  // namespace specula_bench
