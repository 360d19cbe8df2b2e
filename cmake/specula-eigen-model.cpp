// The CPU model, compiled once per project: specula-eigen-model.cmake makes a library of this file.
#include <specula/eigen/compile_llama.hpp>
