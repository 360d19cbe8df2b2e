// SPDX-License-Identifier: MIT
// --race: plain decoding and a pipeline on the same prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decode.hpp"
#include "panes.hpp"
#include "terminal.hpp"
#include "text_stream.hpp"

namespace specula_tools {

struct Racer {
  std::string name;
  specula::Pipeline* pipeline = nullptr;
  bool lossy = false;
  bool draws = false;  // temperature above 0: another text is equally right
  // Called after each round, outside of all times.
  std::function<void(std::size_t prompt, std::size_t emitted)> watch = {};
};

struct RacePrompt {
  std::string text;           // with the style applied
  std::vector<Token> tokens;  // of it
};

/// The texts of the rounds, up to a stop string. For a character or possible stop string of several tokens,
/// the last token decides whether it counts as drafted.
class RoundTexts {
 public:
  struct Text {
    std::string drafted, own;  // of the accepted draft tokens, and of the target's own token
  };

  RoundTexts(const TextStream::BytesOf& bytes_of, std::vector<std::string> stops)
      : stream_(bytes_of, std::move(stops)) {}

  /// To be called with each token before its round is taken. True: a stop string is complete.
  bool take(Token token);
  /// The text of the tokens since the last call, of which the first `draft_tokens` are accepted draft tokens.
  Text round(std::size_t draft_tokens);
  /// What waits for further tokens. To be called when the text has ended.
  std::string rest() { return stream_.flush(); }

 private:
  TextStream stream_;
  std::vector<std::string> taken_;
};

/// Prints the tokens of a run as they are emitted, accepted draft tokens in green, up to a stop string.
class TokenPrinter {
 public:
  TokenPrinter(const TextStream::BytesOf& bytes_of, std::vector<std::string> stops, const Paint& paint,
               std::ostream& out)
      : texts_(bytes_of, std::move(stops)), paint_(paint), out_(&out) {}

  /// As RoundTexts::take().
  bool take(Token token) { return texts_.take(token); }
  /// Prints the tokens of a round, of which the first `draft_tokens` are accepted draft tokens. Throws
  /// std::runtime_error if it cannot.
  void print(std::size_t draft_tokens);
  /// Ends the text and its line.
  void finish();
  /// The text printed so far.
  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text, bool green);

  RoundTexts texts_;
  Paint paint_;
  std::ostream* out_;
  std::string text_;
  bool line_open_ = false;
};

/// decode() with its text printed. `printer` is fresh.
Decoded decode_printed(const Racer& racer, const RacePrompt& prompt, std::size_t number,
                       DecodeSettings settings, TokenPrinter& printer);

/// Warms both up, runs them on every prompt, then prints a table and a summary line. Times are those of the
/// rounds, without printing. With several runs only the first is printed; the others write their speedups to
/// `notes`, and the last line has the median. With `panes` both runs of a prompt are recorded, one after the
/// other, and then shown side by side; without, each is printed as it runs.
void race(const Racer& plain, const Racer& speculating, std::span<const RacePrompt> prompts,
          const DecodeSettings& settings, const std::vector<std::string>& stops,
          const TextStream::BytesOf& bytes_of, const Paint& paint, std::optional<TerminalSize> panes,
          std::int32_t runs, std::ostream& out, std::ostream& notes);

}  // namespace specula_tools
