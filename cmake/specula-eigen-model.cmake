# specula_add_eigen_model(): the static library specula_eigen_model, the CPU model compiled with the project's own
# options when something links specula::eigen. Once per project, however often it looks for specula.
set(SPECULA_EIGEN_MODEL ${CMAKE_CURRENT_LIST_DIR}/specula-eigen-model)
function(specula_add_eigen_model)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(TARGET specula_eigen_model OR NOT "CXX" IN_LIST languages)
    return()
  endif()
  add_library(specula_eigen_model STATIC EXCLUDE_FROM_ALL ${SPECULA_EIGEN_MODEL}.cpp ${SPECULA_EIGEN_MODEL}-double.cpp)
  set_target_properties(specula_eigen_model PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_link_libraries(specula_eigen_model PRIVATE ${ARGN} Eigen3::Eigen nlohmann_json::nlohmann_json Threads::Threads)
endfunction()
