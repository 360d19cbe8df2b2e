// SPDX-License-Identifier: MIT
#include "panes.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "text_table.hpp"

namespace specula_tools {
namespace {

constexpr std::string_view kBetween = " | ";
constexpr std::size_t kMinColumns = 96, kMinRows = 12;

/// A character of valid UTF-8 as a terminal shows it.
struct Character {
  std::size_t length = 1;  // bytes of the text
  std::string_view shown;
  std::size_t columns = 1;
};

bool within(char32_t c, char32_t first, char32_t last) { return first <= c && c <= last; }

/// The blocks that matter: combining marks take none, East Asian characters and emoji take two.
std::size_t columns_of(char32_t c) {
  if (within(c, 0x300, 0x36F) || within(c, 0x200B, 0x200F) || within(c, 0x20D0, 0x20FF) ||
      within(c, 0xFE00, 0xFE0F))
    return 0;
  const bool wide = within(c, 0x1100, 0x115F) || within(c, 0x2E80, 0xA4CF) || within(c, 0xAC00, 0xD7A3) ||
                    within(c, 0xF900, 0xFAFF) || within(c, 0xFE30, 0xFE6F) || within(c, 0xFF00, 0xFF60) ||
                    within(c, 0xFFE0, 0xFFE6) || within(c, 0x1F300, 0x1FAFF) || within(c, 0x20000, 0x3FFFD);
  return wide ? 2 : 1;
}

/// The first character of `text`, which is not empty. A control character is shown as U+FFFD: an escape code
/// in a text must not reach the terminal.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = std::min<std::size_t>(lead < 0xC0   ? 1
                                                   : lead < 0xE0 ? 2
                                                   : lead < 0xF0 ? 3
                                                                 : 4,
                                                   text.size());
  char32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  const bool control = code < 0x20 || within(code, 0x7F, 0x9F) || within(code, 0x2028, 0x202E);
  if (control && code != '\n' && code != '\t') return {length, "\uFFFD", 1};
  return {length, text.substr(0, length), columns_of(code)};
}

/// Lines of one pane, broken where the columns end.
class Pane {
 public:
  Pane(std::size_t columns, const Paint& paint) : columns_(columns), paint_(paint) {}

  void put(std::string_view text, bool green) {
    while (!text.empty()) {
      const Character next = first_character(text);
      text.remove_prefix(next.length);
      if (next.shown == "\n") {
        end_line();
      } else if (next.shown == "\t") {
        do add(" ", 1, green);
        while (used_ % 4 != 0 && used_ < columns_);
      } else {
        add(next.shown, next.columns, green);
      }
    }
  }
  /// Each filled up with spaces.
  std::vector<std::string> lines() {
    if (used_ > 0 || !run_.empty()) end_line();
    return std::move(lines_);
  }

 private:
  void add(std::string_view bytes, std::size_t columns, bool green) {
    if (used_ + columns > columns_) end_line();
    if (green != green_) end_run();
    green_ = green;
    run_ += bytes;
    used_ += columns;
  }
  void end_run() {
    line_ += green_ ? paint_.green(run_) : run_;
    run_.clear();
  }
  void end_line() {
    end_run();
    lines_.push_back(line_ + std::string(columns_ - used_, ' '));
    line_.clear();
    used_ = 0;
  }

  std::size_t columns_, used_ = 0;
  Paint paint_;
  bool green_ = false;
  std::string run_, line_;
  std::vector<std::string> lines_;
};

std::string padded(std::string text, std::size_t columns) {
  text.resize(columns, ' ');
  return text;
}

/// Tokens and speed after `seconds`.
std::string state(const Recording& run, double seconds) {
  std::size_t tokens = 0;
  for (const Moment& moment : run.moments)
    if (moment.seconds <= seconds) tokens = moment.tokens;
  const double spent = std::min(seconds, run.seconds());
  return fixed(spent > 0 ? static_cast<double>(tokens) / spent : 0.0, 1) + " tokens/s, " +
         std::to_string(tokens) + " tokens in " + fixed(spent, 2) + " s" +
         (seconds >= run.seconds() ? ", done" : "");
}

std::string pace_text(double pace) {
  if (pace == 1) return "at the measured speed";
  return pace < 1 ? fixed(1 / pace, 0) + " times slower" : fixed(pace, 0) + " times faster";
}

std::vector<std::string> text_lines(const Recording& run, double seconds, std::size_t columns,
                                    const Paint& paint) {
  Pane pane(columns, paint);
  for (const Moment& moment : run.moments) {
    if (moment.seconds > seconds) break;
    pane.put(moment.drafted, true);
    pane.put(moment.own, false);
  }
  return pane.lines();
}

}  // namespace

double replay_pace(double seconds) {
  constexpr double kShortest = 2, kLongest = 20;
  double pace = 1;
  while (seconds > 0 && seconds / pace < kShortest) pace /= 2;
  while (seconds / pace > kLongest) pace *= 2;
  return pace;
}

std::optional<TerminalSize> size_for_panes(int descriptor) {
  winsize size{};
  if (!takes_escapes(descriptor) || ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col < kMinColumns ||
      size.ws_row < kMinRows)
    return std::nullopt;
  return TerminalSize{size.ws_col, size.ws_row};
}

std::string side_by_side(const Recording& left, const Recording& right, double seconds, std::size_t columns,
                         std::size_t height, const Paint& paint) {
  const std::size_t width = (columns - kBetween.size()) / 2;
  const std::string between = paint.dim(kBetween);
  std::string out =
      paint.bold(padded(left.name, width)) + between + paint.bold(padded(right.name, width)) + "\n";
  out += padded(state(left, seconds), width) + between + padded(state(right, seconds), width) + "\n";
  auto one = text_lines(left, seconds, width, paint), two = text_lines(right, seconds, width, paint);
  if (height == 0) height = std::max(one.size(), two.size());
  for (auto* lines : {&one, &two}) {
    if (lines->size() > height)
      lines->erase(lines->begin(), lines->end() - static_cast<std::ptrdiff_t>(height));
    lines->resize(height, std::string(width, ' '));
  }
  for (std::size_t line = 0; line < height; ++line) out += one[line] + between + two[line] + "\n";
  return out;
}

void replay(const Recording& left, const Recording& right, TerminalSize size, const Paint& paint,
            std::ostream& out) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kFrame(40);
  const double last = std::max(left.seconds(), right.seconds()), pace = replay_pace(last);
  const std::size_t columns = size.columns - 1;  // a line that fills the terminal may break
  const std::string whole = side_by_side(left, right, last, columns, 0, paint);
  const auto lines = static_cast<std::size_t>(std::count(whole.begin(), whole.end(), '\n'));
  const std::size_t height = std::clamp<std::size_t>(lines - 2, 1, size.rows - 4);
  out << paint.dim("measured one after the other, shown " + pace_text(pace)) << '\n';
  const std::string up = "\x1b[" + std::to_string(height + 2) + "A\r";
  const auto begin = Clock::now();
  for (double now = 0; now < last; now = pace * std::chrono::duration<double>(Clock::now() - begin).count()) {
    out << (now > 0 ? up : "") << side_by_side(left, right, now, columns, height, paint) << std::flush;
    std::this_thread::sleep_for(kFrame);
  }
  if (last > 0) out << up << "\x1b[J";
  out << whole << '\n' << std::flush;
}

}  // namespace specula_tools
