# SPDX-License-Identifier: MIT
# specula_compiled_pipelines: the library's pipelines, compiled once for all programs and tests.
if(NOT TARGET specula_compiled_pipelines)
  add_library(specula_compiled_pipelines STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tools/common/pipelines.cpp)
  target_link_libraries(specula_compiled_pipelines PUBLIC specula::specula PRIVATE specula_warnings)
endif()
