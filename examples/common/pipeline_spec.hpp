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
///   a word           a model of the pack, drafts from the largest to the smallest    chain:small
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
  /// Throws UsageError naming what no call has taken; `usage` is how the pipeline is written.
  void done(const std::string& usage) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string text_, name_;
  std::vector<std::string> words_;
  std::vector<std::int32_t> sizes_;
  std::vector<std::pair<std::string, std::string>> options_;
};

/// Splits at commas: "autoregressive,chain:small:4". Throws UsageError on an empty part.
std::vector<std::string> split_list(std::string_view text);

}  // namespace specula_examples
