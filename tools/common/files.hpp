// SPDX-License-Identifier: MIT
// Whole files: read with the file named in errors, written under another name and renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace specula_tools {

/// Throws std::runtime_error naming the file if it is a folder, cannot be read, or is a pointer of Git LFS.
std::string read_file(const std::filesystem::path& file);

/// Writes `text`, and `more` after it, to a new file in the same folder and renames it, so that a reader
/// finds the old contents or the new ones, whatever interrupts the program. What is no regular file (a pipe),
/// and a file that cannot be replaced (a mount point), is written directly; the file that the standard output
/// goes to is written through std::cout. Throws std::runtime_error naming the file; the old one is then what
/// it was, unless it was written directly.
void write_file(const std::filesystem::path& file, std::string_view text, std::string_view more = {});

/// To be called before long work: throws std::runtime_error as write_file() would. Changes nothing.
void check_writable(const std::filesystem::path& file);

/// Throws UsageError if `output` is the same file as `input`. `option` and `input_option` are how the command
/// line calls them.
void check_distinct(const char* option, const std::filesystem::path& output, const char* input_option,
                    const std::filesystem::path& input);

}  // namespace specula_tools
