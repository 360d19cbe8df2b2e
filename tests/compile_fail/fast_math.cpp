// SPDX-License-Identifier: MIT
// expect: -ffast-math, -Ofast, -fassociative-math
// flags: -ffast-math
#include <specula/base/rows.hpp>

int main() {}
