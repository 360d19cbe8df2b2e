// SPDX-License-Identifier: MIT
#include "race.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <specula/study/benchmark.hpp>

#include "text_table.hpp"

namespace specula_tools {
namespace {

/// Sums of one side over all prompts.
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

std::int64_t accepted(const specula::Stats& stats) {
  return std::accumulate(stats.accepted.begin(), stats.accepted.end(), std::int64_t{0});
}

Decoded show(const Racer& racer, const RacePrompt& prompt, std::size_t number, const DecodeSettings& settings,
             const std::vector<std::string>& stops, const TextStream::BytesOf& bytes_of, const Paint& paint,
             std::ostream& out) {
  out << paint.bold("--- " + racer.name) << '\n' << std::flush;
  TokenPrinter printer(bytes_of, stops, paint, out);
  Decoded run = decode_printed(racer, prompt, number, settings, printer);
  std::string told = std::to_string(run.tokens.size()) + " tokens";
  if (const auto drafted = accepted(run.stats)) told += ", " + std::to_string(drafted) + " of them drafted";
  out << paint.dim(told + ", " + std::to_string(run.stats.target.calls) + " calls of the target, " +
                   fixed(Tally::rate(run), 1) + " tokens/s")
      << "\n\n";
  return run;
}

/// decode() with its rounds recorded. While it runs, the number of tokens is shown, outside of all times.
Decoded record(const Racer& racer, const RacePrompt& prompt, std::size_t number, DecodeSettings settings,
               const std::vector<std::string>& stops, const TextStream::BytesOf& bytes_of, std::ostream& out,
               Recording& recording) {
  using Clock = std::chrono::steady_clock;
  RoundTexts texts(bytes_of, stops);
  Clock::time_point shown{};
  const double before = racer.pipeline->stats().round_seconds;
  std::size_t tokens = 0;
  settings.ends = [&](Token token) { return texts.take(token); };
  Decoded run = decode(*racer.pipeline, prompt.tokens, settings, [&](Tokens fresh, std::size_t draft_tokens) {
    RoundTexts::Text text = texts.round(draft_tokens);
    tokens += fresh.size();
    recording.moments.push_back({racer.pipeline->stats().round_seconds - before, tokens,
                                 std::move(text.drafted), std::move(text.own)});
    if (racer.watch) racer.watch(number, fresh.size());
    if (Clock::now() - shown < std::chrono::milliseconds(100)) return;
    shown = Clock::now();
    out << "\rmeasuring " << recording.name << ": " << tokens << " tokens" << std::flush;
  });
  if (!recording.moments.empty()) recording.moments.back().own += texts.rest();
  out << "\r\x1b[K" << std::flush;
  return run;
}

/// Both sides on every prompt, and the number of identical texts.
struct Race {
  Tally plain, speculating;
  std::size_t same = 0;
  std::string difference;  // where the first text differs

  double gain() const { return plain.rates > 0 ? speculating.rates / plain.rates : 0.0; }
};

/// `one` decodes a prompt.
template <class One>
Race run_race(const Racer& plain, const Racer& speculating, std::size_t prompts,
              const DecodeSettings& settings, One one) {
  Race race;
  for (std::size_t p = 0; p < prompts; ++p) {
    DecodeSettings own = settings;
    own.sequence = static_cast<std::uint32_t>(p);
    const Decoded a = one(plain, p, own), b = one(speculating, p, own);
    race.plain.add(a), race.speculating.add(b);
    race.same += a.tokens == b.tokens;
    if (a.tokens == b.tokens || !race.difference.empty()) continue;
    const auto [at, other] =
        std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
    race.difference = "prompt " + std::to_string(p + 1) + " from token " +
                      std::to_string(at - a.tokens.begin() + 1) + " on";
  }
  return race;
}

/// All runs of a race: what the first came to, and the speedup of each.
struct Runs {
  Race first;
  std::vector<double> gains;
  std::size_t same = 0;  // prompts with the same text in all runs
  std::string difference;

  void add(const Race& race) {
    if (gains.empty()) {
      first = race;
      same = race.same;
    }
    gains.push_back(race.gain());
    same = std::min(same, race.same);
    if (difference.empty()) difference = race.difference;
  }
};

std::string race_table(const Runs& runs, const Racer& plain, const Racer& speculating, std::size_t prompts) {
  const Tally &one = runs.first.plain, &two = runs.first.speculating;
  const auto share = [](const specula::Stats& stats) { return fixed(100 * stats.overhead_share(), 2) + "%"; };
  return text_table({{"", plain.name, speculating.name},
                     {"tokens/s", fixed(one.mean_rate(prompts), 1), fixed(two.mean_rate(prompts), 1)},
                     {"speedup", "1.00x", fixed(runs.first.gain(), 2) + "x"},
                     {"MAT (tokens per target call)", fixed(one.mat(), 2), fixed(two.mat(), 2)},
                     {"acceptance by depth", "-", acceptance_text(two.stats)},
                     {"time outside the models", share(one.stats), share(two.stats)},
                     {"same text", "-",
                      runs.same == prompts ? "yes"
                                           : "no, on " + std::to_string(runs.same) + " of " +
                                                 std::to_string(prompts) + " prompts"}});
}

/// The line that sums a race up.
std::string verdict(const Runs& runs, const Racer& speculating, std::size_t prompts) {
  std::string text = "speculation: ";
  if (runs.gains.size() == 1) {
    text += fixed(runs.first.gain(), 2) + "x plain decoding (" +
            fixed(runs.first.speculating.mean_rate(prompts), 1) + " tokens/s against " +
            fixed(runs.first.plain.mean_rate(prompts), 1) + ")";
  } else {
    const auto [low, high] = std::minmax_element(runs.gains.begin(), runs.gains.end());
    text += fixed(specula::detail::median(runs.gains), 2) + "x plain decoding in the median of " +
            std::to_string(runs.gains.size()) + " runs (" + fixed(*low, 2) + "x to " + fixed(*high, 2) + "x)";
  }
  if (runs.same == prompts) return text + ", same text";
  text += speculating.lossy   ? ", other text: the pipeline is lossy"
          : speculating.draws ? ", other text, drawn from the same distribution"
                              : ", other text";
  return text + " (" + runs.difference + ")";
}

}  // namespace

bool RoundTexts::take(Token token) {
  taken_.push_back(stream_.put(token));
  return stream_.stopped();
}

RoundTexts::Text RoundTexts::round(std::size_t draft_tokens) {
  Text text;
  for (std::size_t i = 0; i < taken_.size(); ++i) (i < draft_tokens ? text.drafted : text.own) += taken_[i];
  taken_.clear();
  return text;
}

void TokenPrinter::put(const std::string& text, bool green) {
  if (text.empty()) return;
  *out_ << (green ? paint_.green(text) : text);
  text_ += text;
  line_open_ = text.back() != '\n';
}

void TokenPrinter::print(std::size_t draft_tokens) {
  const RoundTexts::Text text = texts_.round(draft_tokens);
  put(text.drafted, true);
  put(text.own, false);
  if (!out_->flush()) throw std::runtime_error("the text cannot be written");
}

void TokenPrinter::finish() {
  put(texts_.rest(), false);
  if (std::exchange(line_open_, false)) *out_ << '\n';
  out_->flush();
}

Decoded decode_printed(const Racer& racer, const RacePrompt& prompt, std::size_t number,
                       DecodeSettings settings, TokenPrinter& printer) {
  settings.ends = [&](Token token) { return printer.take(token); };
  Decoded run = decode(*racer.pipeline, prompt.tokens, settings, [&](Tokens fresh, std::size_t draft_tokens) {
    printer.print(draft_tokens);
    if (racer.watch) racer.watch(number, fresh.size());
  });
  printer.finish();
  return run;
}

void race(const Racer& plain, const Racer& speculating, std::span<const RacePrompt> prompts,
          const DecodeSettings& settings, const std::vector<std::string>& stops,
          const TextStream::BytesOf& bytes_of, const Paint& paint, std::optional<TerminalSize> panes,
          std::int32_t runs, std::ostream& out, std::ostream& notes) {
  DecodeSettings warm_up = settings;
  warm_up.max_new_tokens = std::min(16, settings.max_new_tokens);
  warm_up.prefill = {};
  for (const Racer* racer : {&plain, &speculating}) decode(*racer->pipeline, prompts.front().tokens, warm_up);

  if (paint.on()) out << paint.green("green") << ": drafted and accepted; the rest is the target's own\n\n";
  Recording before, after;
  const auto shown = [&](const Racer& racer, std::size_t p, const DecodeSettings& own) {
    if (&racer == &plain) {
      out << paint.bold(heading(p, prompts.size())) << '\n' << paint.dim(prompts[p].text);
      if (!prompts[p].text.ends_with('\n')) out << '\n';
      if (panes) out << '\n';
    }
    if (!panes) return show(racer, prompts[p], p, own, stops, bytes_of, paint, out);
    Recording& recording = &racer == &plain ? before : after;
    recording = {.name = &racer == &plain ? "plain decoding" : racer.name, .moments = {}};
    Decoded run = record(racer, prompts[p], p, own, stops, bytes_of, out, recording);
    if (&racer == &speculating) replay(before, after, *panes, paint, out);
    return run;
  };
  const auto unseen = [&](const Racer& racer, std::size_t p, DecodeSettings own) {
    RoundTexts texts(bytes_of, stops);
    own.prefill = {};
    own.ends = [&](Token token) { return texts.take(token); };
    return decode(*racer.pipeline, prompts[p].tokens, own);
  };
  Runs all;
  all.add(run_race(plain, speculating, prompts.size(), settings, shown));
  for (std::int32_t r = 1; r < runs; ++r) {
    all.add(run_race(plain, speculating, prompts.size(), settings, unseen));
    notes << "run " << r + 1 << " of " << runs << ": " << fixed(all.gains.back(), 2) << "x\n" << std::flush;
  }
  out << race_table(all, plain, speculating, prompts.size()) << '\n'
      << paint.bold(verdict(all, speculating, prompts.size())) << '\n';
  if (const double seconds = all.first.plain.seconds; runs == 1 && seconds < 0.5)
    out << paint.dim("Plain decoding took " + fixed(seconds, 2) +
                     " s, too little for a reliable ratio: --runs 9 gives a median")
        << '\n';
}

}  // namespace specula_tools
