# SPDX-License-Identifier: MIT
# specula::c, the functions of specula.h as a library of C: static, or shared with BUILD_SHARED_LIBS=ON.
add_library(specula_c ${CMAKE_CURRENT_LIST_DIR}/specula-c-library.cpp)
add_library(specula::c ALIAS specula_c)
set_target_properties(specula_c PROPERTIES EXPORT_NAME c SOVERSION 1 POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
                      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_link_libraries(specula_c PRIVATE $<BUILD_INTERFACE:specula>)  # its users need no C++
target_include_directories(specula_c INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(specula_runtime specula_c)
if(NOT BUILD_SHARED_LIBS)  # a program in C does not link the runtime of C++ by itself
  foreach(library IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
    if(library MATCHES "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
      list(APPEND specula_runtime ${library})
      target_link_libraries(specula_c INTERFACE ${library})
    endif()
  endforeach()
endif()
target_compile_options(specula_c PRIVATE -ffunction-sections -fdata-sections)
# Also without a build type. clang's -O3 is larger by a tenth, above the bound that a test holds g++'s library to.
target_compile_options(specula_c PRIVATE
  $<$<OR:$<STREQUAL:$<CONFIG>,>,$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:Clang>>>:-O2>)
if(APPLE)
  target_link_options(specula_c PRIVATE -Wl,-dead_strip -Wl,-exported_symbol,_specula_*)
else()  # the standard library's own templates are visible, whatever the preset
  target_link_options(specula_c PRIVATE -Wl,--gc-sections
                      -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/specula-c-library.map)
  set_target_properties(specula_c PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/specula-c-library.map)
endif()

if(SPECULA_INSTALL)
  install(TARGETS specula_c EXPORT specula_c_targets)
  install(EXPORT specula_c_targets FILE specula-c-targets.cmake NAMESPACE specula:: DESTINATION ${package_dir})
  # The file of pkg-config finds its folders from its own, so that the prefix may be moved.
  file(RELATIVE_PATH specula_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" specula_prefix "${specula_prefix}")
  list(JOIN specula_runtime " -l" specula_libraries)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/specula_c.pc.in specula_c.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/specula_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
