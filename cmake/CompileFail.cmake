# cmake -DSOURCE=<file> -DCOMMAND=<compiler;flags> -DMUST_FAIL=<ON|OFF> -P CompileFail.cmake
#
# ON: the file, with SPECULA_MUST_FAIL defined, must not compile, and the compiler must say what the file's first
# line, `// expect: <regex>`, expects. OFF: its passing twin must compile.
file(STRINGS ${SOURCE} first LIMIT_COUNT 1)
if(NOT first MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect: <regex>`")
endif()
set(expected "${CMAKE_MATCH_1}")

if(MUST_FAIL)
  list(APPEND COMMAND -DSPECULA_MUST_FAIL)
endif()
execute_process(COMMAND ${COMMAND} -fsyntax-only ${SOURCE}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(NOT MUST_FAIL)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the passing twin does not compile:\n${output}")
  endif()
elseif(status EQUAL 0)
  message(FATAL_ERROR "compiles, but must not")
elseif(NOT output MATCHES "${expected}")
  message(FATAL_ERROR "does not compile, as it should, but the compiler does not say `${expected}`:\n${output}")
endif()
