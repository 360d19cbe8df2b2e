// SPDX-License-Identifier: MIT
// --race on a wide terminal: two recorded runs side by side, replayed as they were measured.
#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "terminal.hpp"

namespace specula_tools {

/// A round of a run: when it ended and the text that it added.
struct Moment {
  double seconds = 0;        // of decoding, since the run began
  std::size_t tokens = 0;    // emitted so far
  std::string drafted, own;  // whole characters: of accepted draft tokens, then of the target's own token
};

struct Recording {
  std::string name;
  std::vector<Moment> moments;

  double seconds() const { return moments.empty() ? 0.0 : moments.back().seconds; }
};

struct TerminalSize {
  std::size_t columns = 0, rows = 0;
};

/// The size of the terminal that `descriptor` is, if it is wide and high enough for two panes and takes
/// escape codes; nothing for files, pipes and TERM=dumb.
std::optional<TerminalSize> size_for_panes(int descriptor);

/// Both runs as they were after `seconds`, as lines of at most `columns` columns: name, tokens and speed,
/// then the texts. `height` is the number of text lines; longer texts show their ends. 0: all lines. Control
/// characters become U+FFFD.
std::string side_by_side(const Recording& left, const Recording& right, double seconds, std::size_t columns,
                         std::size_t height, const Paint& paint);

/// How fast to show a run of so many seconds: 1, or a power of two so that it takes 2 to 20 seconds.
double replay_pace(double seconds);

/// Shows both from their first token on, at replay_pace() of the slower run; then both whole texts. The times
/// and speeds shown are the measured ones.
void replay(const Recording& left, const Recording& right, TerminalSize size, const Paint& paint,
            std::ostream& out);

}  // namespace specula_tools
