// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <stdexcept>
#include <string>

#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define SPECULA_LEAKS_ARE_NOT_OURS const __lsan::ScopedDisabler disabler
#endif
#endif
#ifndef SPECULA_LEAKS_ARE_NOT_OURS
#define SPECULA_LEAKS_ARE_NOT_OURS
#endif

namespace specula_test {

/// Numbers with a decimal comma and points between thousands, as long as it lives: by C++'s global locale,
/// and by C's too where localedef can make one; no installed locale is needed.
class CommaLocale {
 public:
  CommaLocale() : before_(std::locale::global(std::locale(std::locale(), new Comma))) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("specula-locale-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "comma.txt") << "escape_char /\ncomment_char %\nLC_NUMERIC\ndecimal_point \",\"\n"
                                           "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    const std::string place = folder.string();
    // Warns of the other categories, and exits with 1.
    if (std::system(("localedef -c -i '" + place + "/comma.txt' -f ANSI_X3.4-1968 '" + place + "/comma' >'" +
                     place + "/log' 2>&1")
                        .c_str()) >= 0 &&
        setenv("LOCPATH", place.c_str(), 1) == 0)
      try {
        SPECULA_LEAKS_ARE_NOT_OURS;  // glibc's newlocale() loses its copy of LOCPATH
        std::locale::global(std::locale("comma"));  // C's as well
      } catch (const std::runtime_error&) {
      }
    fs::remove_all(folder);
    char text[8];
    std::snprintf(text, sizeof text, "%.1f", 0.5);
    in_c_ = std::string(text) == "0,5";
  }
  ~CommaLocale() {
    std::locale::global(before_);
    unsetenv("LOCPATH");
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  bool in_c() const { return in_c_; }  ///< whether C's functions have it too

 private:
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };

  std::locale before_;
  bool in_c_ = false;
};

}  // namespace specula_test
