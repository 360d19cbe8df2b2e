// The CPU model, compiled once for all its tests, since it dominates their compile time.
#pragma once

#include <specula/eigen/llama.hpp>

extern template class specula::eigen::Llama<float>;
extern template class specula::eigen::Llama<double>;
