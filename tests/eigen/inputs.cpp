#include <specula/eigen/inputs.hpp>

// Before anything else could bring them: programs name both and do not compile the model.
using specula::eigen::Inputs;
using specula::eigen::WeightType;

#include <doctest/doctest.h>
#include <specula/eigen/llama_options.hpp>
#include <specula/eigen/panel_matrix.hpp>

TEST_CASE("inputs are rounded, and weights kept as wide as they are, by choice alone") {
  CHECK(specula::eigen::LlamaOptions{}.inputs == Inputs::full);
  CHECK(specula::eigen::PanelMatrix<float>().type() == WeightType::full);
}
