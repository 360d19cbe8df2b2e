#include <specula/eigen/llama.hpp>

#include <cstdint>

/// Called by nothing: that it links is the test.
std::int32_t exits(const char* directory) { return specula::eigen::Llama<float>(directory).exits(); }
