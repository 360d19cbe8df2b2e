#include "race.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "text_table.hpp"

namespace specula_examples {
namespace {

/// What one side did over all prompts.
struct Tally {
  specula::Stats stats;
  std::size_t tokens = 0;
  double seconds = 0, rates = 0;  // rates: sum over prompts of tokens per second

  void add(const Decoded& run) {
    stats += run.stats;
    tokens += run.tokens.size();
    seconds += run.decode_seconds;
    rates += rate(run);
  }
  static double rate(const Decoded& run) {
    return run.decode_seconds > 0 ? static_cast<double>(run.tokens.size()) / run.decode_seconds : 0.0;
  }
  double mean_rate(std::size_t prompts) const { return rates / static_cast<double>(prompts); }
  double mat() const {
    return stats.target.calls ? static_cast<double>(tokens) / static_cast<double>(stats.target.calls) : 0.0;
  }
};

std::string acceptance_text(const specula::Stats& stats) {
  std::string text;
  for (std::size_t d = 0; d < stats.offered.size() && stats.offered[d] > 0; ++d)
    text.append(d ? " " : "").append(fixed(stats.acceptance(static_cast<std::int32_t>(d) + 1), 2));
  return text.empty() ? "-" : text;
}

std::string heading(std::size_t prompt, std::size_t of) {
  std::string text = "=== prompt ";
  return text.append(std::to_string(prompt + 1)).append(" of ").append(std::to_string(of));
}

Decoded show(const Racer& racer, const RacePrompt& prompt, std::size_t number, const DecodeSettings& settings,
             const std::vector<std::string>& stops, const Tokenizer& tokenizer, const Paint& paint,
             std::ostream& out) {
  out << paint.bold("--- " + racer.name) << '\n' << std::flush;
  TokenPrinter printer(tokenizer, stops, paint, out);
  Decoded run = decode_printed(racer, prompt, number, settings, printer);
  out << paint.dim(std::to_string(run.tokens.size()) + " tokens, " + std::to_string(run.stats.target.calls) +
                   " calls of the target, " + fixed(Tally::rate(run), 1) + " tokens/s")
      << "\n\n";
  return run;
}

}  // namespace

bool TokenPrinter::take(Token token) {
  taken_.push_back(stream_.put(token));
  return stream_.stopped();
}

void TokenPrinter::put(const std::string& text, bool green) {
  if (text.empty()) return;
  *out_ << (green ? paint_.green(text) : text);
  text_ += text;
  line_open_ = text.back() != '\n';
}

void TokenPrinter::print(std::size_t guesses) {
  for (std::size_t i = 0; i < taken_.size(); ++i) put(taken_[i], i < guesses);
  taken_.clear();
  if (!out_->flush()) throw std::runtime_error("the text cannot be written");
}

void TokenPrinter::finish() {
  put(stream_.flush(), false);
  if (std::exchange(line_open_, false)) *out_ << '\n';
  out_->flush();
}

Decoded decode_printed(const Racer& racer, const RacePrompt& prompt, std::size_t number,
                       DecodeSettings settings, TokenPrinter& printer) {
  settings.ends = [&](Token token) { return printer.take(token); };
  Decoded run = decode(*racer.pipeline, prompt.tokens, settings, [&](Tokens, std::size_t guesses) {
    printer.print(guesses);
    if (racer.watch) racer.watch(number);
  });
  printer.finish();
  return run;
}

void race(const Racer& plain, const Racer& guessing, std::span<const RacePrompt> prompts,
          const DecodeSettings& settings, const std::vector<std::string>& stops, const Tokenizer& tokenizer,
          const Paint& paint, std::ostream& out) {
  DecodeSettings warm_up = settings;
  warm_up.max_new_tokens = std::min(16, settings.max_new_tokens);
  warm_up.prefill = {};
  for (const Racer* racer : {&plain, &guessing}) decode(*racer->pipeline, prompts.front().tokens, warm_up);

  Tally one, two;
  std::size_t same = 0;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    out << paint.bold(heading(p, prompts.size())) << '\n' << paint.dim(prompts[p].text);
    if (!prompts[p].text.ends_with('\n')) out << '\n';
    DecodeSettings own = settings;
    own.sequence = static_cast<std::uint32_t>(p);
    const Decoded a = show(plain, prompts[p], p, own, stops, tokenizer, paint, out),
                  b = show(guessing, prompts[p], p, own, stops, tokenizer, paint, out);
    one.add(a), two.add(b);
    same += a.tokens == b.tokens;
  }

  const double before = one.mean_rate(prompts.size()), after = two.mean_rate(prompts.size());
  const bool all_same = same == prompts.size();
  const std::string gain = fixed(before > 0 ? after / before : 0.0, 2) + "x";
  out << text_table(
      {{"", plain.name, guessing.name},
       {"tokens/s", fixed(before, 1), fixed(after, 1)},
       {"speedup", "1.00x", gain},
       {"MAT (tokens per target call)", fixed(one.mat(), 2), fixed(two.mat(), 2)},
       {"acceptance by depth", "-", acceptance_text(two.stats)},
       {"time outside the models", fixed(100 * one.stats.overhead_share(), 2) + "%",
        fixed(100 * two.stats.overhead_share(), 2) + "%"},
       {"same text", "-",
        all_same ? "yes"
                 : "no, on " + std::to_string(same) + " of " + std::to_string(prompts.size()) + " prompts"}});
  const std::string verdict = all_same         ? "same text"
                              : guessing.lossy ? "other text: the pipeline is lossy"
                              : guessing.draws ? "other text, drawn from the same law"
                                               : "other text";
  out << '\n'
      << paint.bold("speculation: " + gain + " plain decoding (" + fixed(after, 1) + " tokens/s against " +
                    fixed(before, 1) + "), " + verdict)
      << '\n';
}

}  // namespace specula_examples
