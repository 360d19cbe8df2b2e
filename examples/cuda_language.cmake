# SPDX-License-Identifier: MIT
# Enables the language CUDA where nvcc works. To be included by a folder: a language is enabled for it and those below.
if(SPECULA_NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(ENV{CUDACXX} ${SPECULA_NVCC})
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80;90a-real")  # code for both, and what a driver translates for later ones
  endif()
  enable_language(CUDA)
endif()
