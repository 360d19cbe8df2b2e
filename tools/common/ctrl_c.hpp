// SPDX-License-Identifier: MIT
// Ctrl-C as the end of a text.
#pragma once

#include <csignal>

namespace specula_tools {

/// While it lives, the first Ctrl-C is noted and the second ends the program, as it does without. Where the
/// signal is ignored, it stays so. At most one lives at a time.
class CtrlC {
 public:
  CtrlC() {
    pressed_ = 0;
    struct sigaction noted {};
    noted.sa_handler = [](int) { pressed_ = 1; };
    noted.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigemptyset(&noted.sa_mask);
    sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) sigaction(SIGINT, &noted, nullptr);
  }
  ~CtrlC() { sigaction(SIGINT, &before_, nullptr); }
  CtrlC(const CtrlC&) = delete;
  CtrlC& operator=(const CtrlC&) = delete;

  bool pressed() const { return pressed_ != 0; }

 private:
  static inline volatile std::sig_atomic_t pressed_ = 0;
  struct sigaction before_ {};
};

}  // namespace specula_tools
