# specula_find_llama(): makes the target `llama` if libllama (llama.cpp) is installed: below LLAMA_DIR if that is set,
# else where CMake looks for packages (CMAKE_PREFIX_PATH, llama_DIR, ...). A target `llama` that is there stays.
function(specula_find_llama)
  if(TARGET llama)
    return()
  endif()
  set(hints "")
  if(LLAMA_DIR)
    foreach(variable llama_DIR llama_LIBRARY ggml_DIR)  # of an earlier run, which may have had another LLAMA_DIR
      unset(${variable} CACHE)
    endforeach()
    list(PREPEND CMAKE_PREFIX_PATH ${LLAMA_DIR})
  elseif(llama_DIR)
    set(hints HINTS ${llama_DIR}/..)
  endif()
  find_package(ggml QUIET CONFIG ${hints})  # llama.cpp's configuration demands it, and would stop ours, QUIET or not
  if(ggml_FOUND)
    find_package(llama QUIET CONFIG)
  endif()
endfunction()
