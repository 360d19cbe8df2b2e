# SPDX-License-Identifier: MIT
# To be included by each folder that uses the common libraries: imported targets are known only to the folder that looked
# for them. Sets specula_tools_ready, and says once what is missing.
find_package(CLI11 QUIET)
find_package(nlohmann_json 3.7 QUIET)
include(${CMAKE_CURRENT_LIST_DIR}/tokenizers.cmake)

# A program of every pipeline takes long to compile: it is built where it is tested.
function(specula_add_program name)
  add_executable(${name} ${ARGN})
  if(SPECULA_BUILD_TESTS AND NOT SPECULA_TEST_LONG)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Lets a target expand all types of GGUF by ggml's own code, where libllama was found.
function(specula_link_ggml target)
  if(TARGET specula::llama_cpp)
    target_compile_definitions(${target} PRIVATE SPECULA_HAS_GGML=1)
    target_link_libraries(${target} PRIVATE llama)
  endif()
endfunction()

# Makes `constexpr char NAME[]` of an HTML page, in the header page.hpp, which `target` finds. The page gets the style
# and the script that all pages share.
function(specula_embed_page target page name)
  set(shared ${PROJECT_SOURCE_DIR}/tools/common)
  file(READ ${page} text)
  foreach(file page.css page.js)
    file(READ ${shared}/${file} content)
    string(REPLACE "/* ${file} */" "${content}" text "${text}")
    list(APPEND sources ${shared}/${file})
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page} ${sources})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/pages/${target}/page.hpp @ONLY CONTENT
       "#pragma once\ninline constexpr char @name@[] = R\"page(@text@)page\";\n")
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/pages/${target})
endfunction()

set(specula_tools_ready OFF)
if(CLI11_FOUND AND nlohmann_json_FOUND AND SENTENCEPIECE_INCLUDE_DIR AND SENTENCEPIECE_LIBRARY AND TARGET specula::cpu)
  set(specula_tools_ready ON)
  if(NOT TARGET specula_tools_common)
    add_subdirectory(${CMAKE_CURRENT_LIST_DIR} ${PROJECT_BINARY_DIR}/tools/common)
  endif()
else()
  get_property(told GLOBAL PROPERTY specula_tools_told)
  if(NOT told)
    set_property(GLOBAL PROPERTY specula_tools_told ON)
    message(STATUS "specula: the program is left out: it needs Eigen, CLI11, nlohmann-json and "
                   "SentencePiece (Debian: libeigen3-dev libcli11-dev nlohmann-json3-dev libsentencepiece-dev)")
  endif()
endif()
