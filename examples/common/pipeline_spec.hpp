// How pipelines are named: chain:small:6:exit=0.3
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace specula_examples {

/// NAME followed by parts, each after a colon:
///
///   a word           a model of the pack, or a word that the pipeline knows          chain:small
///   a whole number   a size: length, width, ...                                      chain:small:6
///   key=value        an option                                                       chain:small:6:exit=0.3
///
/// Words, numbers and options each keep their order; between the three kinds the order does not matter. A
/// registry entry takes what it knows and calls done(), which complains about the rest.
class PipelineSpec {
 public:
  /// Throws UsageError if `text` does not follow the grammar.
  explicit PipelineSpec(std::string_view text);

  const std::string& text() const { return text_; }
  const std::string& name() const { return name_; }

  /// The next word, or `absent` if there is none.
  std::string word(const std::string& absent);
  /// The next number, or `absent`. Throws UsageError outside [low, high].
  std::int32_t size(const char* what, std::int32_t absent, std::int32_t low, std::int32_t high);
  /// The value of an option, or `absent`. Throws UsageError outside [low, high] or if it is no number.
  double option(const std::string& key, double absent, double low, double high);
  /// The same of a whole number.
  std::int32_t count(const std::string& key, std::int32_t absent, std::int32_t low, std::int32_t high);
  /// The value of an option whose values are words, or `absent`. Throws UsageError if it is not among
  /// `allowed`.
  std::string choice(const std::string& key, const std::string& absent,
                     const std::vector<std::string>& allowed);
  /// Sizes with dashes between them, as in widths=4-2-1, or `absent`. Throws UsageError if there are more
  /// than `most` of them or one is outside [low, high].
  std::vector<std::int32_t> sizes(const std::string& key, const std::vector<std::int32_t>& absent,
                                  std::size_t most, std::int32_t low, std::int32_t high);
  /// The same of numbers with a point, as in thresholds=0.5-0.7.
  std::vector<float> numbers(const std::string& key, const std::vector<float>& absent, std::size_t most,
                             double low, double high);
  /// Lists of whole numbers from 0 to `high`: points between the numbers of a list, dashes between lists, as
  /// in choices=0-1-0.0; or `absent`. Throws UsageError as sizes() does.
  std::vector<std::vector<std::int32_t>> paths(const std::string& key,
                                               const std::vector<std::vector<std::int32_t>>& absent,
                                               std::size_t most, std::int32_t high);
  /// The first word that is among `allowed`, whatever stands before it, or `absent`. For words that are no
  /// model.
  std::string keyword(const std::string& absent, const std::vector<std::string>& allowed);
  /// Throws UsageError naming what no call has taken; `usage` is how the pipeline is written.
  void done(const std::string& usage) const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool take(const std::string& key, std::string& value);

  std::string text_, name_;
  std::vector<std::string> known_;  // options that were asked for
  std::vector<std::string> words_;
  std::vector<std::int32_t> sizes_;
  std::vector<std::pair<std::string, std::string>> options_;
};

/// The message for a pipeline, written `text`, of whose name none of `names` is.
std::string unknown_pipeline(const std::string& text, const std::string& name,
                             const std::vector<std::string>& names);

/// Splits at commas: "autoregressive,chain:small:4". Throws UsageError on an empty part.
std::vector<std::string> split_list(std::string_view text);

}  // namespace specula_examples
