// SPDX-License-Identifier: MIT
// What a look at the end of a prompt says of an EAGLE-3 head, in words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <specula/cpu/check_head.hpp>

namespace specula_tools {

/// A head that is never right: it would cost time, and no one would see why.
class HeadRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::int32_t kLookedAt = 64;   // tokens at the end of a prompt
inline constexpr std::int32_t kFewest = 16;     // of which fewer say nothing
inline constexpr double kWeakAgreement = 0.15;  // below this a head is hardly worth its time

/// What is to be said of the head `name` whose rows these are; empty: nothing. Rows whose choice is outside
/// of its vocabulary do not count. Throws HeadRefused if it is right at none of kLookedAt rows, of which half
/// count.
inline std::string judge(const std::string& name, const specula::cpu::Eagle3Config& head,
                         const specula::cpu::HeadRows& rows) {
  using specula::cpu::StatesFrom;
  const auto counted = std::ranges::count_if(rows.losses, [](double loss) { return std::isfinite(loss); });
  if (counted < kFewest || rows.right >= kWeakAgreement * static_cast<double>(counted)) return "";
  if (rows.right > 0 && rows.count() < kLookedAt) return "";  // chance alone may do that
  const char* cause =
      head.states_from == StatesFrom::caller
          ? "layers= probably names other states, or in another order, than it was trained on"
      : rows.right > 0 ? "the text is probably unlike what it was trained on"
      : head.states_from == StatesFrom::standard
          ? "its file names no layers, and it was probably trained on others than 2, L / 2, L - 3: "
            "--draft PATH,layers=2-8-13 takes their numbers"
          : "it is probably made for another target, or its file names other states, or in another order, "
            "than it was trained on";
  const std::string what = "the head '" + name + "' is right at " +
                           (rows.right > 0 ? std::to_string(rows.right) : std::string("none")) +
                           " of the prompt's last " + std::to_string(rows.count()) + " tokens: " + cause +
                           "; specula head looks at more";
  if (rows.right == 0 && rows.count() >= kLookedAt && counted >= kLookedAt / 2) throw HeadRefused(what);
  return what;
}

}  // namespace specula_tools
