# SPDX-License-Identifier: MIT
# specula_add_cpu_model(): the static library specula_cpu_model, the CPU model compiled with the project's own
# options when something links specula::cpu. Once per project, however often it looks for specula.
set(SPECULA_CPU_MODEL ${CMAKE_CURRENT_LIST_DIR}/specula-cpu-model)
function(specula_add_cpu_model)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(TARGET specula_cpu_model OR NOT "CXX" IN_LIST languages)
    return()
  endif()
  add_library(specula_cpu_model STATIC EXCLUDE_FROM_ALL ${SPECULA_CPU_MODEL}.cpp
              ${SPECULA_CPU_MODEL}-blocks.cpp ${SPECULA_CPU_MODEL}-double.cpp)
  set_target_properties(specula_cpu_model PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_link_libraries(specula_cpu_model PRIVATE ${ARGN} Eigen3::Eigen nlohmann_json::nlohmann_json Threads::Threads)
endfunction()
