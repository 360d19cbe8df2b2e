// The CPU model, compiled once per project: specula-eigen-model.cmake makes a library of this file and the next.
#include <specula/eigen/compile_llama.hpp>
