#include <Eigen/Core>

#if __has_include(<specula/eigen/llama.hpp>)
#include <specula/eigen/llama.hpp>
#endif

static_assert(EIGEN_VERSION_AT_LEAST(3, 4, 0));
