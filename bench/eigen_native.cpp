// SPDX-License-Identifier: MIT
// bench/eigen.cpp compiled with -march=native: Eigen has all instructions of the machine.
#include <Eigen/Core>

#include "eigen.cpp"
