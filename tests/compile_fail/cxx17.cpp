// SPDX-License-Identifier: MIT
// expect: error: [^!]*specula needs C\+\+20: compile with -std=c\+\+20[^!]*fatal error: [^!]*needs C\+\+20
// flags: -std=c++17
#include <specula/base/rows.hpp>

int main() {}
