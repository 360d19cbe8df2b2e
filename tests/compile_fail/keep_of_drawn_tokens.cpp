// SPDX-License-Identifier: MIT
// expect: no matching (member )?function for call to|invalid reference to function
// expect: constraints? not satisfied|was not satisfied|evaluated to false
// A choice among drawn tokens biases the text, so a pipeline that draws cannot leave any out.
#include <specula/model/batched.hpp>
#include <specula/specula.hpp>

#include "toy_batch.hpp"

using namespace specula;
using Slot = SlotOf<specula_test::ToyBatch>;

#ifdef SPECULA_MUST_FAIL
using Shape = Chain<Draw::sampled>;
#else
using Shape = Chain<>;
#endif

void keep(Speculator<TreeVerifier<Slot, Sampling>, ModelDrafter<Slot>, Shape>& run,
          std::span<const std::uint8_t> kept) {
  run.keep(kept);
}
