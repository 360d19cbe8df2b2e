# SPDX-License-Identifier: MIT
# Fails if the facade, preprocessed by COMPILER, has more than MOST lines; the largest contributors are standard headers,
# which `-H` lists.
execute_process(COMMAND ${COMPILER} -std=c++20 -I${INCLUDE} -E -P -x c++ ${INCLUDE}/specula/specula.hpp
  OUTPUT_VARIABLE text ERROR_VARIABLE errors RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "the facade does not compile: ${errors}")
endif()
string(REGEX REPLACE "[^\n]+" "" newlines "${text}")
string(LENGTH "${newlines}" lines)
message(STATUS "specula/specula.hpp has ${lines} preprocessed lines, ${MOST} at most")
if(lines GREATER MOST OR lines EQUAL 0)
  message(FATAL_ERROR "too many: a header of the facade includes a large standard header; find it with ${COMPILER} -H")
endif()
