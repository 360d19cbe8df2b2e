// SPDX-License-Identifier: MIT
// Choice of rounded inputs and weight types.
#include <specula/cpu/inputs.hpp>

// Included first: the header must define both without the model's.
using specula::cpu::Inputs;
using specula::cpu::WeightType;

#include <doctest/doctest.h>
#include <specula/cpu/decoder_options.hpp>
#include <specula/cpu/panel_matrix.hpp>

TEST_CASE("by default neither inputs nor weights are rounded") {
  CHECK(specula::cpu::DecoderOptions{}.inputs == Inputs::full);
  CHECK(specula::cpu::PanelMatrix<float>().type() == WeightType::full);
}
