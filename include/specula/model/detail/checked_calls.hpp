// SPDX-License-Identifier: MIT
// Calls of a model whose results are checked, and words on what is wrong with them: for check_model().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/model_finding.hpp"

namespace specula::detail {

/// Thrown after a finding that leaves no more to find.
struct CheckIsOver {};

/// A model under check: each call's size, rows and exceptions are looked at, and its rows can be compared
/// with those of plain decoding. `M` is a LanguageModel.
template <class M>
class CheckedCalls {
 public:
  using Text = std::vector<Token>;

  /// `whose`: put before each finding.
  CheckedCalls(M& model, std::vector<ModelFinding>& findings, std::string whose)
      : model_(&model), findings_(&findings), whose_(std::move(whose)) {}

  std::int32_t vocab_size() const { return model_->vocab_size(); }
  std::int32_t capacity() const { return model_->capacity(); }

  /// The context is these tokens, and there are no nodes.
  void begin(const Text& context) {
    calls_.clear();
    truncate(0);
    calls_.clear();
    append(context);
  }
  void append(const Text& tokens) {
    if (tokens.empty()) return;
    const std::int32_t size = model_->size();
    call("append(" + list(tokens) + ")", [&] { model_->append(tokens); });
    expect_size("append", size + static_cast<std::int32_t>(tokens.size()));
  }
  void extend(const Text& tokens, const std::vector<NodeId>& parents) {
    const std::int32_t size = model_->size();
    call("extend(" + list(tokens) + ", " + list(parents) + ")",
         [&] { take(model_->extend(tokens, parents), tokens.size()); });
    expect_size("sizes", size);
  }
  void commit(const std::vector<NodeId>& path) {
    const std::int32_t size = model_->size();
    call("commit(" + list(path) + ")", [&] { model_->commit(path); });
    expect_size(path.empty() ? "empty commit" : "commit", size + static_cast<std::int32_t>(path.size()));
  }
  void truncate(std::int32_t n) {
    call("truncate(" + number(n) + ")", [&] { model_->truncate(n); });
    expect_size("truncate", n);
  }

  /// Computes the row after `text` by plain decoding, for expect_row(). Changes the model.
  void know(const Text& text) {
    if (plain_.contains(text)) return;
    const std::size_t first = append_works ? text.size() - 1 : 0;
    begin({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first)});
    for (std::size_t i = first; i < text.size(); ++i) {
      extend({text[i]}, {kNoParent});
      plain_.try_emplace({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i) + 1}, rows_[0]);
      if (i + 1 < text.size()) commit({0});
    }
  }
  /// Takes the rows of a pass.
  void take(const LogitsView& rows, std::size_t nodes) {
    if (rows.rows < 0 || static_cast<std::size_t>(rows.rows) != nodes || rows.vocab != model_->vocab_size() ||
        !rows.data)
      end("rows", "extend() returned " + number(rows.rows) + " rows of " + number(rows.vocab) +
                      " logits, expected " + number(nodes) + " of " + number(model_->vocab_size()));
    if (nodes > 1 && std::abs(rows.stride) < rows.vocab)
      end("stride", "rows of " + number(rows.vocab) + " logits are " + number(rows.stride) + " floats apart");
    rows_.clear();
    for (std::int32_t i = 0; i < rows.rows; ++i) {
      rows_.emplace_back(rows.row(i).begin(), rows.row(i).end());
      const auto bad = [](float logit) {
        return std::isnan(logit) || logit == std::numeric_limits<float>::infinity();
      };
      if (std::ranges::any_of(rows_.back(), bad)) end("rows", "row " + number(i) + " holds NaN or infinity");
    }
  }
  /// Whether row `i` of the last pass is that after `text`; else it is a finding about `duty`, or about what
  /// it turns out to be.
  bool expect_row(const char* duty, std::size_t i, const Text& text, const std::string& more = "") {
    const std::vector<float>& expected = plain_.at(text);
    const double off = difference(rows_[i], expected);
    if (off <= tolerance) return true;
    std::string why = more;
    if (const auto shift = i > 0 ? shift_of(rows_[i], expected) : 0; shift != 0) {
      duty = "stride";
      why = "it begins " + number(std::abs(shift)) + " logits " + (shift > 0 ? "too early" : "too late") +
            " in memory: the view's stride is wrong";
    } else if (const auto same = where(rows_, rows_[i], i)) {
      duty = "rows", why = "it is row " + number(*same) + " of the pass";
    } else if (const auto other = where(rows_, expected, i)) {
      duty = "rows", why = "row " + number(*other) + " is that";
    } else {
      for (const auto& [known, row] : plain_)
        if (difference(rows_[i], row) <= tolerance) {
          why = "it is the row after " + tail(known) + (more.empty() ? "" : "; " + more);
          break;
        }
    }
    find(duty, calls_ + "row " + number(i) + " is not that of plain decoding after " + tail(text) +
                   ": likeliest token " + number(likeliest(rows_[i])) + ", expected " +
                   number(likeliest(expected)) + ", off by " + fixed(100 * off, 2) + "% of the row's range" +
                   (why.empty() ? "" : "; " + why));
    return false;
  }
  void find(std::string_view duty, const std::string& what) {
    if (!found(duty)) findings_->push_back({std::string(duty), whose_ + what});
  }
  [[noreturn]] void end(std::string_view duty, const std::string& what) {
    find(duty, calls_ + what);
    throw CheckIsOver{};
  }
  /// Runs what calls the model. What that throws is a finding.
  template <class Call>
  void attempt(const std::string& text, const Call& run) {
    calls_ += text + "; ";
    try {
      run();
    } catch (const CheckIsOver&) {
      throw;
    } catch (const std::exception& error) {
      end("calls", std::string("it threw: ").append(error.what()));
    } catch (...) {
      end("calls", "it threw what is no std::exception");
    }
  }
  /// The same for a call that changes the model.
  template <class Call>
  void call(const std::string& text, const Call& run) {
    const std::optional<std::uint64_t> count = changes();
    attempt(text, run);
    if (count && count == changes())
      find("change_count", calls_ + "the last call left it at " + number(*count));
  }
  bool found(std::string_view duty) const {
    return std::ranges::any_of(*findings_, [&](const ModelFinding& f) { return f.duty == duty; });
  }

  /// The rows of the last pass, and those of plain decoding that know() computed.
  const std::vector<std::vector<float>>& rows() const { return rows_; }
  const std::vector<float>& plain(const Text& text) const { return plain_.at(text); }
  void forget_plain() { plain_.clear(); }

  double tolerance = kLargest;                 // see ModelCheck
  bool append_works = false;                   // a context needs one call
  static constexpr double kLeast = 1.0 / 256;  // a unit of bfloat16 at the largest logit
  static constexpr double kLargest = 0.05;

  /// The largest difference of two logits, as a part of the range of `expected`.
  static double difference(const std::vector<float>& found, const std::vector<float>& expected) {
    double least = std::numeric_limits<double>::infinity(), most = -least, off = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double a = found[i], b = expected[i];
      if (a == b) {
        if (std::isinf(a)) continue;
      } else {
        off = std::max(off, std::abs(a - b));  // infinite if only one of them is
      }
      if (!std::isinf(b)) least = std::min(least, b), most = std::max(most, b);
    }
    return most > least ? off / (most - least) : off;
  }

 private:
  std::optional<std::uint64_t> changes() const {
    if constexpr (CountsChanges<M>) return model_->change_count();
    return std::nullopt;
  }
  void expect_size(const char* duty, std::int32_t size) {
    if (model_->size() != size)
      end(duty, "size() is " + number(model_->size()) + ", expected " + number(size));
  }
  /// By how many logits `found` begins before (or, below 0, after) the row that is expected; 0: it does not.
  std::ptrdiff_t shift_of(const std::vector<float>& found, const std::vector<float>& expected) const {
    const auto size = static_cast<std::ptrdiff_t>(found.size());
    double range = 0;
    const auto [least, most] = std::ranges::minmax_element(expected);
    if (std::isfinite(*least)) range = static_cast<double>(*most) - static_cast<double>(*least);
    const auto shifted = [&](const std::vector<float>& early, const std::vector<float>& late,
                             std::ptrdiff_t by) {
      for (std::ptrdiff_t i = by; i < size; ++i) {
        const double a = late[static_cast<std::size_t>(i)], b = early[static_cast<std::size_t>(i - by)];
        if (a != b && !(std::abs(a - b) <= tolerance * range)) return false;
      }
      return true;
    };
    for (std::ptrdiff_t by = 1; by <= size / 2; ++by) {
      if (shifted(expected, found, by)) return by;
      if (shifted(found, expected, by)) return -by;
    }
    return 0;
  }
  /// The first of `rows` that is `row`, other than number `but`.
  std::optional<std::size_t> where(const std::vector<std::vector<float>>& rows, const std::vector<float>& row,
                                   std::size_t but = std::size_t(-1)) const {
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i != but && difference(row, rows[i]) <= tolerance) return i;
    return std::nullopt;
  }
  static std::ptrdiff_t likeliest(const std::vector<float>& row) {
    return std::ranges::max_element(row) - row.begin();
  }

  // ---- words

  template <class T>
  static std::string list(const std::vector<T>& numbers) {
    if (numbers.size() > 16) return number(numbers.size()) + " of them";
    std::string out = "{";
    for (const T n : numbers) {
      if (out.size() > 1) out += ", ";
      out += number(n);
    }
    return out += '}';
  }
  static std::string tail(const Text& text) {
    if (text.size() <= 8) return list(text);
    return number(text.size()) + " tokens that end in " + list(Text{text.end() - 4, text.end()});
  }

  M* model_;
  std::vector<ModelFinding>* findings_;
  std::string whose_, calls_;  // calls_: since begin()
  std::map<Text, std::vector<float>> plain_;
  std::vector<std::vector<float>> rows_{1};
};

}  // namespace specula::detail
