// SPDX-License-Identifier: MIT
#include <specula/cuda/model/detail/pass_bodies.cuh>
#include <specula/cuda/model/detail/round_bodies.cuh>

using namespace specula::cuda::detail;

template <class Body>
void use(const Body& body) {
  body_kernel<Body><<<static_cast<unsigned>(body.blocks()), Body::kThreads>>>(body);
}

void use_all(const Embed& embed, const Gather& gather, const Norm& norm, const FinalNorm& last,
             const PlaceHeads<64>& narrow, const PlaceHeads<128>& wide, const SiluProduct& silu,
             const Spread& spread) {
  use(embed), use(gather), use(norm), use(last), use(narrow), use(wide), use(silu), use(spread);
}
void use_all(const ReadText& read, const BeginRound& begin, const EndRound& end) {
  use(read), use(begin), use(end);
}
