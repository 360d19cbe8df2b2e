# SPDX-License-Identifier: MIT
# specula_find_llama(): makes the target `llama` if libllama (llama.cpp) is installed: in LLAMA_DIR and nowhere else if
# that is set, else where CMake searches for packages (CMAKE_PREFIX_PATH, llama_DIR, ...). An existing target `llama` is
# kept. LLAMA_DIR may be the prefix or, as other packages want it, the folder lib/cmake/llama below it. On the command
# line it is relative to where cmake was called, in a CMakeLists.txt to that file's folder.
function(specula_find_llama)
  if(TARGET llama)
    return()
  endif()
  set(where "")
  if(LLAMA_DIR)
    if(DEFINED CACHE{LLAMA_DIR})  # giving it the type PATH is what makes the command line's path absolute
      set(LLAMA_DIR "" CACHE PATH "Prefix that llama.cpp is installed in")
    endif()
    foreach(variable llama_DIR llama_LIBRARY ggml_DIR)  # may name another libllama, as those of an earlier run
      unset(${variable})
      unset(${variable} CACHE)
    endforeach()
    get_filename_component(prefix "${LLAMA_DIR}" ABSOLUTE)
    if(prefix MATCHES "/cmake/llama$")
      get_filename_component(prefix "${prefix}/../../.." ABSOLUTE)
    endif()
    set(where PATHS "${prefix}" NO_DEFAULT_PATH)
    # llama.cpp's configuration searches for the libraries itself, everywhere, but here first.
    set(llama_ROOT "${prefix}")
    set(ggml_ROOT "${prefix}")
  elseif(llama_DIR)
    set(where HINTS "${llama_DIR}/..")
  endif()
  find_package(ggml QUIET CONFIG ${where})  # llama.cpp's configuration demands it, and would stop ours, QUIET or not
  if(ggml_FOUND)
    find_package(llama QUIET CONFIG ${where})
  endif()
  if(LLAMA_DIR AND NOT TARGET llama)
    message(WARNING "LLAMA_DIR=${LLAMA_DIR}: no llama.cpp there")
  endif()
endfunction()
