// Choice of rounded inputs and weight types.
#include <specula/eigen/inputs.hpp>

// Included first: the header must define both without the model's.
using specula::eigen::Inputs;
using specula::eigen::WeightType;

#include <doctest/doctest.h>
#include <specula/eigen/llama_options.hpp>
#include <specula/eigen/panel_matrix.hpp>

TEST_CASE("by default neither inputs nor weights are rounded") {
  CHECK(specula::eigen::LlamaOptions{}.inputs == Inputs::full);
  CHECK(specula::eigen::PanelMatrix<float>().type() == WeightType::full);
}
