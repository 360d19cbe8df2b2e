// expect: ffast-math
#ifdef SPECULA_MUST_FAIL
#define __FAST_MATH__ 1
#endif
#include <specula/specula.hpp>

int main() {}
