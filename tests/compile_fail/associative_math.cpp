// SPDX-License-Identifier: MIT
// expect: -ffast-math, -Ofast, -fassociative-math
// flags: -fassociative-math -fno-signed-zeros -fno-trapping-math
// only: GNU
#include <specula/base/rows.hpp>

int main() {}
