// Plain decoding and a pipeline, one after the other on the same prompts.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "decode.hpp"
#include "terminal.hpp"
#include "tokenizer.hpp"

namespace specula_examples {

struct Racer {
  std::string name;
  Pipeline* pipeline = nullptr;
  bool lossy = false;
  bool draws = false;  // temperature above 0: another text may be just as right
  std::function<void(std::size_t prompt)> watch = {};  // called after each round, outside of all times
};

struct RacePrompt {
  std::string text;           // as the model gets it
  std::vector<Token> tokens;  // of it
};

/// Prints the tokens of a run as they come, accepted guesses in green.
class TokenPrinter {
 public:
  TokenPrinter(const Tokenizer& tokenizer, const Paint& paint, std::ostream& out)
      : tokenizer_(&tokenizer), stream_(tokenizer), paint_(paint), out_(&out) {}
  void operator()(Tokens fresh, std::size_t guesses);
  /// Ends the text and its line.
  void finish();

 private:
  const Tokenizer* tokenizer_;
  TextStream stream_;
  Paint paint_;
  std::ostream* out_;
  bool line_open_ = false;
};

/// Warms both up, shows them on every prompt, then a table and one line that sums up. Times are those of the
/// rounds alone; printing is not among them.
void race(const Racer& plain, const Racer& guessing, std::span<const RacePrompt> prompts,
          const DecodeSettings& settings, const Tokenizer& tokenizer, const Paint& paint, std::ostream& out);

}  // namespace specula_examples
