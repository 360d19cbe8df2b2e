// SPDX-License-Identifier: MIT
// Names that other libraries define as macros. A specula header that uses one would break in such programs,
// so here each expands to a syntax error. The standard library, Eigen and nlohmann/json use some of them, so
// they are included first:
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cassert>
#include <charconv>
#include <chrono>
#include <cmath>
#include <complex>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#if __has_include(<immintrin.h>)
#include <immintrin.h>
#endif
#if __has_include(<Eigen/Dense>)
#include <Eigen/Dense>
#endif
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#endif

#define SPECULA_POISON(name, where) @the name name is a macro of where @

// <complex.h>
#define I SPECULA_POISON(I, complex.h)
// <windows.h>
#define small SPECULA_POISON(small, windows.h)
#define near SPECULA_POISON(near, windows.h)
#define far SPECULA_POISON(far, windows.h)
#define interface SPECULA_POISON(interface, windows.h)
#define IN SPECULA_POISON(IN, windows.h)
#define OUT SPECULA_POISON(OUT, windows.h)
#define OPTIONAL SPECULA_POISON(OPTIONAL, windows.h)
#define ERROR SPECULA_POISON(ERROR, windows.h)
// <termios.h>
#define B0 SPECULA_POISON(B0, termios.h)
// <sys/sysmacros.h>
#define major(...) SPECULA_POISON(major, sysmacros.h)
// <AssertMacros.h> of macOS.
#define check(...) SPECULA_POISON(check, AssertMacros.h)
#define require(...) SPECULA_POISON(require, AssertMacros.h)
#define verify(...) SPECULA_POISON(verify, AssertMacros.h)
