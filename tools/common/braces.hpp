// SPDX-License-Identifier: MIT
// Brace expansion, as in shells: chain:{2..4}@{small,base} are six names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace specula_tools {

/// The texts that `text` stands for, in order, the last braces changing fastest. `{a,b}` is either of its
/// alternatives, which may be empty or hold braces of their own; `{2..6}` is every whole number of the range,
/// `{8..2}` the same downwards. Text without braces is itself. Throws UsageError naming `text` where a brace
/// is not closed or not opened, or where it stands for more than 10,000 texts.
std::vector<std::string> expand_braces(std::string_view text);

/// Splits at blanks, which braces do not hide, and expands each part. Throws UsageError where there is none,
/// or an empty one.
std::vector<std::string> expand_list(std::string_view text);

/// Splits at commas, braces being nothing special: "base,small,max-gram". Throws UsageError on an empty part.
std::vector<std::string> split_list(std::string_view text);

}  // namespace specula_tools
