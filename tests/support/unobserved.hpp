// SPDX-License-Identifier: MIT
// Scopes that the thread sanitizer does not watch.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define SPECULA_OBSERVED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPECULA_OBSERVED 1
#endif
#endif

#ifdef SPECULA_OBSERVED
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}
#endif

namespace specula_test {

/// Of accesses; and of locks, which then order nothing, if `locks_too`.
class Unobserved {
 public:
#ifdef SPECULA_OBSERVED
  explicit Unobserved(bool locks_too) : locks_(locks_too) {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    if (locks_) AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  }
  ~Unobserved() {
    if (locks_) AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  explicit Unobserved(bool) {}
  ~Unobserved() {}
#endif
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
#ifdef SPECULA_OBSERVED
  bool locks_;
#endif
};

}  // namespace specula_test
