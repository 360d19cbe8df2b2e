// SPDX-License-Identifier: MIT
// Test cases that are left out under the thread sanitizer: single-threaded ones, and those with fibers,
// whose stack switches it does not follow.
#pragma once

#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
#define SPECULA_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPECULA_THREAD_SANITIZER 1
#endif
#endif

/// A single-threaded case in a file labelled `threads`. Under the thread sanitizer its body becomes a
/// template that is never instantiated: it is parsed, but the expensive code generation is saved.
#ifdef SPECULA_THREAD_SANITIZER
#define UNTHREADED_TEST_CASE(name) \
  template <class>                 \
  [[maybe_unused]] static void DOCTEST_ANONYMOUS(specula_untested_)()
#define UNTHREADED_TEST_CASE_TEMPLATE(name, T, ...) \
  template <class T>                                \
  [[maybe_unused]] static void DOCTEST_ANONYMOUS(specula_untested_)()
#else
#define UNTHREADED_TEST_CASE(name) TEST_CASE(name)
#define UNTHREADED_TEST_CASE_TEMPLATE(name, T, ...) TEST_CASE_TEMPLATE(name, T, __VA_ARGS__)
#endif
