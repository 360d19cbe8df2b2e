// SPDX-License-Identifier: MIT
// expect: error: [^!]*by exceptions: compile without -fno-exceptions[^!]*fatal error: [^!]*by exceptions
// flags: -fno-exceptions
#include <specula/specula.hpp>

int main() {}
