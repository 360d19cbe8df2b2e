// The files of a checkpoint: what is missing is named. Shards and their index are tested with the weights.
#include "specula/eigen/tensor_files.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>

TEST_CASE("a folder without tensors is named") {
  const auto folder = std::filesystem::temp_directory_path() / "specula_no_tensors";
  std::filesystem::create_directories(folder);
  CHECK_THROWS_WITH_AS(specula::eigen::TensorFiles{folder}, doctest::Contains("specula_no_tensors"),
                       std::runtime_error);
  std::filesystem::remove_all(folder);
}
