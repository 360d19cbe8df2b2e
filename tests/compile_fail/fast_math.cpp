// expect: -ffast-math, -Ofast, -fassociative-math
// flags: -ffast-math
#include <specula/rows.hpp>

int main() {}
