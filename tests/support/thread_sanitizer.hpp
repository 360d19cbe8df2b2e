// Whether the thread sanitizer watches: it loses count where fibers switch stacks, so of tests that run many
// of them only what runs on real threads is left then.
#pragma once

namespace specula_test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace specula_test
