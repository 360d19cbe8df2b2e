// SPDX-License-Identifier: MIT
// Reading safetensors files: values of each type, and errors.
#include <specula/files/safetensors.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "safetensors_writer.hpp"

namespace {

using namespace specula::files;
using namespace specula_test;

Safetensors from_bytes(const std::string& bytes) {
  return Safetensors(std::make_unique<std::istringstream>(bytes), "file");
}

std::string error_of(const std::string& bytes) {
  try {
    from_bytes(bytes);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

/// A file with 16 bytes of data whose header is made of these entries.
std::string error_of_header(const std::string& header) {
  return error_of(safetensors_bytes(header, std::string(16, 'x')));
}

TEST_CASE("tensors are read as they were written") {
  const std::vector<float> values{0.0f, -1.5f, 0.25f, 3.0f, -0.0f, 448.0f};
  const std::string bytes = safetensors_bytes({{"b", "BF16", {2, 3}, values},
                                               {"a", "F32", {6}, values},
                                               {"c", "F16", {1, 6, 1}, values},
                                               {"empty", "F32", {0, 4}, {}}});
  Safetensors file = from_bytes(bytes);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.find("d") == nullptr);
  for (const auto* name : {"a", "b", "c"}) {
    const TensorInfo* tensor = file.find(name);
    REQUIRE(tensor);
    std::vector<float> back(6);
    decode(tensor->dtype, file.read(*tensor).data(), back);
    CHECK(back == values);
    CHECK(std::signbit(back[4]));
  }
  CHECK(file.find("b")->shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.find("b")->dtype == Dtype::bf16);
  CHECK(file.read(*file.find("empty")).empty());
}

TEST_CASE("every half-precision bit pattern is decoded correctly") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    float value = 0;
    decode(Dtype::f16, reinterpret_cast<const std::byte*>(&half), {&value, 1});
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    if (exponent == 31) {
      CHECK((fraction == 0 ? std::isinf(value) : std::isnan(value)));
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      REQUIRE(static_cast<double>(value) == ((bits & 0x8000u) != 0 ? -magnitude : magnitude));
      REQUIRE(half_bits(value) == half);
    }
    REQUIRE(std::signbit(value) == ((bits & 0x8000u) != 0));
  }
}

TEST_CASE("tensors of other types are listed, but not decoded") {
  Safetensors file = from_bytes(
      safetensors_bytes(R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})", std::string(16, 'x')));
  CHECK(file.find("x")->dtype == Dtype::other);
  CHECK(file.find("x")->dtype_name == "F64");
  CHECK(from_bytes(safetensors_bytes(R"({"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
                                     std::string(8, 'x')))
            .find("x")
            ->dtype == Dtype::i32);
}

TEST_CASE("errors of bad files name the file, the offset or tensor, and the expectation") {
  CHECK(error_of("") == "file: 0 bytes, expected 8 bytes of header length");
  CHECK(error_of("1234567") == "file: 7 bytes, expected 8 bytes of header length");
  CHECK(error_of(std::string("\x05\0\0\0\0\0\0\0{}", 10)) ==
        "file: offset 0: header of 5 bytes, expected at most 2");
  CHECK(error_of(std::string(8, '\xff') + "{}") ==
        "file: offset 0: header of 18446744073709551615 bytes, expected at most 2");
  CHECK(error_of(safetensors_bytes("", "")).starts_with("file (header): offset 0: parse error"));
  CHECK(error_of(safetensors_bytes("[]", "")) == "file: offset 8: the header is not a JSON object");
  CHECK(error_of(safetensors_bytes("{\"a\"", "")).starts_with("file (header): offset 4: parse error"));
  CHECK(error_of_header(R"({"a":1})") == "file: tensor 'a': expected a string 'dtype'");
  CHECK(error_of_header(R"({"a":{"dtype":"F32"}})") == "file: tensor 'a': expected an array 'shape'");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4]}})") ==
        "file: tensor 'a': expected 'data_offsets' [begin, end]");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})") ==
        "file: tensor 'a': expected 'data_offsets' [begin, end]");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})") ==
        "file: tensor 'a': expected natural numbers in 'shape'");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})") ==
        "file: tensor 'a': expected natural numbers in 'shape'");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,17]}})") ==
        "file: tensor 'a': data_offsets [0, 17], expected a range within the 16 bytes after the header");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})") ==
        "file: tensor 'a': data_offsets [16, 0], expected a range within the 16 bytes after the header");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[-1,15]}})") ==
        "file: tensor 'a': expected natural numbers in 'data_offsets'");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,9223372036854775808]}})") ==
        "file: tensor 'a': expected natural numbers in 'data_offsets'");
  CHECK(error_of_header(R"({"a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,16]}})") ==
        "file: tensor 'a': BF16 of shape [3, 2] needs 12 bytes, data_offsets have 16");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})") ==
        "file: tensor 'a': F32 of shape [4294967296, 4294967296] needs over 2^64 bytes, data_offsets have 0");
  CHECK(
      error_of_header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})") ==
      "file: tensor 'b': its bytes at data offset 4 overlap tensor 'a'");
  CHECK(
      error_of_header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})") ==
      "file (header): key \"a\" occurs twice in an object");
  CHECK(error_of_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})") ==
        "file: 16 bytes after the header, its tensors end after 8");
  CHECK(error_of_header("{}") == "file: 16 bytes after the header, its tensors end after 0");
  const TemporaryDirectory folder("folder");
  CHECK_THROWS_WITH_AS(Safetensors::open(folder.path),
                       (folder.path.string() + ": is a folder, expected a file").c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(Safetensors::open("no/such/file"), "no/such/file: cannot be opened",
                       std::runtime_error);
}

TEST_CASE("a file that shrinks after its header was read") {
  const TemporaryDirectory directory("shrinks");
  const std::string bytes = safetensors_bytes({{"a", "F32", {4}, {1, 2, 3, 4}}});
  write_file(directory.path / "x", bytes);
  Safetensors file = Safetensors::open(directory.path / "x");
  std::filesystem::resize_file(directory.path / "x", bytes.size() - 8);
  CHECK_THROWS_WITH_AS(file.read(*file.find("a")), doctest::Contains("expected 16 bytes, got 8"),
                       std::runtime_error);
}

}  // namespace
