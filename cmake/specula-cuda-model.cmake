# SPDX-License-Identifier: MIT
# specula_add_cuda_model(): specula::cuda_model, the model on a GPU, where the project has the language CUDA, and the toolkit has
# cuBLASLt. nvcc compiles what it must of it with the project's own options when something links it. Once per project.
set(SPECULA_CUDA_MODEL ${CMAKE_CURRENT_LIST_DIR}/specula-cuda-model)
function(specula_add_cuda_model)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(TARGET specula_cuda_model OR NOT "CUDA" IN_LIST languages)
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  if(NOT TARGET CUDA::cublasLt)
    return()
  endif()
  add_library(specula_cuda_model STATIC EXCLUDE_FROM_ALL ${SPECULA_CUDA_MODEL}.cu)
  target_compile_options(specula_cuda_model PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)  # CMake may not know a newer toolkit
  target_link_libraries(specula_cuda_model PUBLIC ${ARGN} CUDA::cublasLt CUDA::cudart)
  add_library(specula::cuda_model ALIAS specula_cuda_model)
endfunction()
