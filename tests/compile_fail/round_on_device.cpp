// SPDX-License-Identifier: MIT
// expect: cuda::Round has no growth on the device for this shape.*cuda::Model
// expect: cuda::Round has no kernel for this rule.*cuda::Model
// expect: cuda::Round has no chain by shared noise
// expect: the rule is not lossless for proposals of the shape's kind
#include <specula/accept/gumbel_coupling.hpp>
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/shape/beam.hpp>

using namespace specula;

template <class Shape, class Rule>
std::size_t round_of() {
  return sizeof(cuda::Round<cuda::CudaDevice, Shape, Rule>);
}

#ifdef SPECULA_MUST_FAIL
std::size_t sizes() {
  return round_of<Beam, Greedy>() + round_of<Chain<>, GumbelCoupling>() +
         round_of<Chain<Draw::shared>, GumbelCoupling>() + round_of<Cape, Block>();
}
#else
std::size_t sizes() { return round_of<DynamicTree, Traversal>() + round_of<Chain<Draw::sampled>, Block>(); }
#endif
