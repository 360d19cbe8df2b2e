#include <specula/eigen/compile_llama_double.hpp>
