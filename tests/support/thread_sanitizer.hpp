// Cases that the thread sanitizer leaves out: what runs on one thread has nothing for it to see, and where
// fibers switch stacks it loses count.
#pragma once

#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
#define SPECULA_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPECULA_THREAD_SANITIZER 1
#endif
#endif

/// A case of one thread, in a file labelled `threads`. Under the thread sanitizer its body becomes a template
/// that nobody instantiates: it is parsed, and no code is made of it, which is most of what such a file
/// costs.
#ifdef SPECULA_THREAD_SANITIZER
#define UNTHREADED_TEST_CASE(name) \
  template <class>                 \
  [[maybe_unused]] static void DOCTEST_ANONYMOUS(specula_untested_)()
#else
#define UNTHREADED_TEST_CASE(name) TEST_CASE(name)
#endif
