# SPDX-License-Identifier: MIT
# cmake -DSOURCE=<file> -DCOMMAND=<compiler;flags> -DPARSED=<header, precompiled> -P CompileFail.cmake
#
# The file, with SPECULA_MUST_FAIL defined, must not compile, and the compiler must say what the file's leading lines
# `// expect: <regex>` expect, one for each mistake in it. A line `// flags: <flags>` adds compiler flags.
file(STRINGS ${SOURCE} lines REGEX "^// (expect|flags): ")
set(expected "")
foreach(line IN LISTS lines)
  if(line MATCHES "^// expect: (.+)$")
    list(APPEND expected "${CMAKE_MATCH_1}")
  elseif(line MATCHES "^// flags: (.+)$")
    separate_arguments(flags UNIX_COMMAND "${CMAKE_MATCH_1}")
    list(APPEND COMMAND ${flags})
    set(PARSED "")  # it was precompiled with others
  endif()
endforeach()
if(NOT expected)
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect: <regex>`")
endif()

list(APPEND COMMAND -DSPECULA_MUST_FAIL)
if(PARSED)
  list(APPEND COMMAND -include ${PARSED})
endif()
execute_process(COMMAND ${COMMAND} -fsyntax-only ${SOURCE}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(status EQUAL 0)
  message(FATAL_ERROR "compiles, but must not")
else()
  foreach(regex IN LISTS expected)
    if(NOT output MATCHES "${regex}")
      message(FATAL_ERROR "does not compile, as it should, but the compiler does not say `${regex}`:\n${output}")
    endif()
  endforeach()
endif()
