// SPDX-License-Identifier: MIT
// Definitions of the functions of specula.h: include this in one file of a library or program. The CMake
// target specula::c compiles such a file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>

#include "specula.h"
#include "specula/accept/c_library/arguments.hpp"
#include "specula/accept/c_library/draw_rows.hpp"
#include "specula/accept/c_library/verify_round.hpp"
#include "specula/base/status.hpp"

namespace specula::detail {

static_assert(static_cast<int>(Status::not_a_number) == SPECULA_NOT_A_NUMBER &&
              static_cast<int>(Status::empty_row) == SPECULA_EMPTY_ROW &&
              static_cast<int>(Status::overflow) == SPECULA_OVERFLOW &&
              static_cast<int>(Status::bad_parameters) == SPECULA_BAD_PARAMETERS &&
              static_cast<int>(Status::bad_tree) == SPECULA_BAD_TREE &&
              static_cast<int>(Status::bad_draft_row) == SPECULA_BAD_DRAFT_ROW &&
              static_cast<int>(Status::bad_draft_sum) == SPECULA_BAD_DRAFT_SUM);

/// The message of a sequence or a row that failed, else an empty text; it ends with a 0.
inline std::string_view c_message(const CThread& thread, std::int32_t index) {
  constexpr std::string_view prefix = "verify_batch: ";
  std::string_view text;
  if (index >= 0 && index < thread.sequences) text = thread.memory.message(index);
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  if (index >= 0 && index < thread.rows) text = thread.row_messages[static_cast<std::size_t>(index)];
  return text.empty() ? std::string_view("") : text;
}

/// The result of call(thread), with no exception: a function of C has no caller that could catch it.
template <class Call>
int c_call(Call call) noexcept {
  CThread& thread = c_thread();
  thread.sequences = thread.rows = 0;
  thread.say("");
  const auto end = [&](int code, std::string_view text) {
    thread.sequences = thread.rows = 0;
    thread.say(text);
    return code;
  };
  try {
    const int failed = call(thread);
    const std::int32_t ran = std::max(thread.sequences, thread.rows);
    for (std::int32_t i = 0; failed > 0 && i < ran && thread.error[0] == 0; ++i)
      thread.say(c_message(thread, i));
    return failed;
  } catch (const std::invalid_argument& e) {
    return end(SPECULA_INVALID, e.what());
  } catch (const std::bad_alloc&) {
    return end(SPECULA_NO_MEMORY, "there is not enough memory");
  } catch (const std::length_error&) {
    return end(SPECULA_NO_MEMORY, "there is not enough memory");
  } catch (const std::exception& e) {
    return end(SPECULA_INTERNAL, e.what());
  } catch (...) {
    return end(SPECULA_INTERNAL, "an exception of no known type");
  }
}

}  // namespace specula::detail

/// @cond
// NOLINTBEGIN(misc-definitions-in-headers): one file includes this
extern "C" {

int specula_abi(void) { return 1; }

const char* specula_error(void) { return specula::detail::c_thread().error.data(); }

const char* specula_message(std::int32_t index) {
  return specula::detail::c_message(specula::detail::c_thread(), index).data();
}

int specula_rule(const char* name) {
  const std::string_view asked = name ? name : "";
  if (asked == "rejection") return static_cast<int>(specula::detail::CRule::token);
  for (std::size_t i = 0; i < specula::detail::kCRules.size(); ++i)
    if (asked == specula::detail::kCRules[i]) return static_cast<int>(i);
  return -1;
}

int specula_verify(const specula_round* round) {
  return specula::detail::c_call([&](auto& thread) { return specula::detail::verify_round(round, thread); });
}

int specula_draw(const specula_draft* draft) {
  return specula::detail::c_call([&](auto& thread) { return specula::detail::draw_rows(draft, thread); });
}

}  // extern "C"
// NOLINTEND(misc-definitions-in-headers)
/// @endcond
