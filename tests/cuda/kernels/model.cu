// SPDX-License-Identifier: MIT
#include <specula/cuda/model/detail/pass_bodies.cuh>

using namespace specula::cuda::detail;

template <class Body>
void use(const Body& body) {
  body_kernel<Body><<<static_cast<unsigned>(body.blocks()), Body::kThreads>>>(body);
}

void use_all(const Embed& embed, const Norm& norm, const FinalNorm& last, const PlaceHeads<64>& narrow,
             const PlaceHeads<128>& wide, const SiluProduct& silu) {
  use(embed), use(norm), use(last), use(narrow), use(wide), use(silu);
}
