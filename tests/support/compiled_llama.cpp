#include "compiled_llama.hpp"

template class specula::eigen::Llama<float>;
template class specula::eigen::Llama<double>;
