// Plain decoding and a pipeline, one after the other on the same prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decode.hpp"
#include "terminal.hpp"
#include "text_stream.hpp"
#include "tokenizer.hpp"

namespace specula_examples {

struct Racer {
  std::string name;
  specula::Pipeline* pipeline = nullptr;
  bool lossy = false;
  bool draws = false;  // temperature above 0: another text may be just as right
  std::function<void(std::size_t prompt)> watch = {};  // called after each round, outside of all times
};

struct RacePrompt {
  std::string text;           // as the model gets it
  std::vector<Token> tokens;  // of it
};

/// Prints the tokens of a run as they come, accepted draft tokens in green, up to a stop string. Of a
/// character or a possible stop string that several tokens make up, the last one decides the colour.
class TokenPrinter {
 public:
  TokenPrinter(const Tokenizer& tokenizer, std::vector<std::string> stops, const Paint& paint,
               std::ostream& out)
      : stream_([&tokenizer](Token token) { return tokenizer.bytes(token); }, std::move(stops)),
        paint_(paint),
        out_(&out) {}

  /// To be called with each token before its round is printed. True: a stop string is complete.
  bool take(Token token);
  /// Prints the tokens of a round, of which the first `draft_tokens` are accepted draft tokens. Throws
  /// std::runtime_error if it cannot.
  void print(std::size_t draft_tokens);
  /// Ends the text and its line.
  void finish();
  /// All that was printed since the text began.
  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text, bool green);

  TextStream stream_;
  Paint paint_;
  std::ostream* out_;
  std::vector<std::string> taken_;
  std::string text_;
  bool line_open_ = false;
};

/// decode() with its text printed. `printer` is fresh.
Decoded decode_printed(const Racer& racer, const RacePrompt& prompt, std::size_t number,
                       DecodeSettings settings, TokenPrinter& printer);

/// Warms both up, shows them on every prompt, then a table and one line that sums up. Times are those of the
/// rounds alone; printing is not among them. Of more than one run, the first is shown, the others tell their
/// speedups on `notes`, and the last line has their median.
void race(const Racer& plain, const Racer& speculating, std::span<const RacePrompt> prompts,
          const DecodeSettings& settings, const std::vector<std::string>& stops, const Tokenizer& tokenizer,
          const Paint& paint, std::int32_t runs, std::ostream& out, std::ostream& notes);

}  // namespace specula_examples
