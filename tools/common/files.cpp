// SPDX-License-Identifier: MIT
#include "files.hpp"

#include <unistd.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <specula/files/lfs_pointer.hpp>

#include "errors.hpp"

namespace specula_tools {
namespace {

namespace fs = std::filesystem;

std::runtime_error failure(const fs::path& file, const std::string& what) {
  return std::runtime_error(file.string() + ": " + what);
}

/// Whether there is something that a rename must not replace.
bool is_special(const fs::path& file) {
  std::error_code absent;
  const auto kind = fs::status(file, absent).type();
  return kind != fs::file_type::regular && kind != fs::file_type::not_found && kind != fs::file_type::none;
}

/// Whether the standard output goes to that file. A rename would take the file away from what was printed,
/// and what is printed later.
bool is_output(const fs::path& file) {
  std::error_code failed;
  return fs::equivalent(file, "/dev/stdout", failed) && !failed;
}

/// Where to write: beside the file itself, not beside a link to it.
fs::path beside(const fs::path& file) {
  return file.parent_path() / (file.filename().string() + ".unfinished-" + std::to_string(getpid()));
}

/// `text` and `more` in `file`, or what failed.
const char* put(const fs::path& file, std::string_view text, std::string_view more) {
  std::ofstream out(file, std::ios::binary);
  if (!out) return "cannot be opened for writing";
  return out << text << more << std::flush ? nullptr : "cannot be written";
}

fs::path without_links(const fs::path& file) {
  std::error_code failed;
  const fs::path real = fs::weakly_canonical(file, failed);
  return failed ? file : real;
}

void write_beside(const fs::path& file, std::string_view text, std::string_view more, bool keep) {
  const fs::path real = without_links(file), unfinished = beside(real);
  std::error_code failed;
  const char* problem = put(unfinished, text, more);
  if (!problem && keep) {
    const auto old = fs::status(real, failed);
    if (!failed && fs::exists(old)) fs::permissions(unfinished, old.permissions(), failed);
    fs::rename(unfinished, real, failed);
    if (failed) {  // a file that is a mount point, or another user's in a sticky folder
      if (put(real, text, more))
        throw failure(file, "cannot be written; the contents are in " + unfinished.string());
      keep = false;
    }
  }
  std::error_code ignored;
  if (problem || !keep) fs::remove(unfinished, ignored);
  if (problem) throw failure(file, problem);
}

}  // namespace

std::string read_file(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) throw failure(file, "is a folder, must be a file");
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.is_open() || in.bad()) throw failure(file, "cannot be opened for reading");
  if (specula::is_lfs_pointer(text)) throw failure(file, specula::kLfsPointer);
  return text;
}

void write_file(const fs::path& file, std::string_view text, std::string_view more) {
  if (is_output(file)) {
    if (!(std::cout << text << more << std::flush)) throw failure(file, "cannot be written");
    return;
  }
  if (!is_special(file)) return write_beside(file, text, more, true);
  if (const char* problem = put(file, text, more)) throw failure(file, problem);
}

void check_writable(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) throw failure(file, "is a folder, must be a file");
  if (!is_special(file) && !is_output(file)) write_beside(file, "", "", false);
}

void check_distinct(const char* option, const fs::path& output, const char* input_option,
                    const fs::path& input) {
  std::error_code absent;
  if (fs::equivalent(output, input, absent) && !absent)
    throw UsageError(std::string(option) + " " + output.string() + " is the file of " + input_option +
                     ": it would be overwritten");
}

}  // namespace specula_tools
