// The CPU model, compiled once for all tests of it: it is most of what each of them would compile.
#pragma once

#include <specula/eigen/llama.hpp>

extern template class specula::eigen::Llama<float>;
extern template class specula::eigen::Llama<double>;
