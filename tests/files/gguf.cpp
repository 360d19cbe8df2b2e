// SPDX-License-Identifier: MIT
// The GGUF container: keys of every type and tensors are read as they were written; errors of broken files.
#include <specula/files/gguf.hpp>

#include "specula/files/gguf.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../../tools/common/gguf_container.hpp"
#include "safetensors_writer.hpp"

namespace {

using specula::files::Gguf;
using specula_tools::GgufContainer;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

std::string error_of(const std::string& bytes) {
  try {
    const Gguf file(as_bytes(bytes), "file");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

template <class Read>
std::string error_of(const GgufContainer& container, Read read) {
  const std::string bytes = container.bytes();
  const Gguf file(as_bytes(bytes), "file");
  try {
    read(file);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text(std::string_view value) {
  return raw(static_cast<std::uint64_t>(value.size())).append(value);
}

/// A file of these counts, and what follows them.
std::string file_of(std::uint64_t tensors, std::uint64_t values, const std::string& rest,
                    std::uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(values) + rest;
}

/// The description of a tensor.
std::string tensor(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                   std::uint64_t offset) {
  std::string out = text(name) + raw(static_cast<std::uint32_t>(shape.size()));
  for (const std::uint64_t extent : shape) out += raw(extent);
  return out + raw(type) + raw(offset);
}

/// A file of such descriptions, with 64 bytes of data.
std::string error_of_tensors(const std::vector<std::string>& tensors) {
  std::string rest;
  for (const auto& one : tensors) rest += one;
  std::string bytes = file_of(tensors.size(), 0, rest);
  bytes.resize((bytes.size() + 31) / 32 * 32 + 64);
  return error_of(bytes);
}

}  // namespace

TEST_CASE("keys of all types, and tensors") {
  GgufContainer out;
  out.set("flag", true);
  out.set("u16", std::uint16_t{65535});
  out.set("u32", std::uint32_t{4000000000u});
  out.set("i32", -5);
  out.set("float", 1e-5f);
  out.set("text", "a\0b");
  const std::vector<std::string> texts{"", "x", "\xe2\x96\x81y"};
  const std::vector<float> floats{0.5f, -2};
  const std::vector<std::int32_t> integers{1, -1};
  out.set("texts", texts);
  out.set("floats", floats);
  out.set("integers", integers);
  out.add("a", 0, {2, 3}, std::string(24, 'a'));
  out.add("b", 8, {1, 32}, std::string(34, 'b'));
  out.add("c", 99, {7}, "");
  const std::string bytes = out.bytes();
  const Gguf file(as_bytes(bytes), "file");
  CHECK(file.source() == "file");
  CHECK(file.flag("flag") == true);
  CHECK(file.integer("u16") == 65535);
  CHECK(file.integer("u32") == 4000000000);
  CHECK(file.integer("i32") == -5);
  CHECK(file.number("i32") == -5.0);
  CHECK(file.number("float") == 1e-5);  // not 9.9999997e-06
  CHECK(file.text("text") == "a");
  CHECK(file.texts("texts") == std::vector<std::string_view>{"", "x", "\xe2\x96\x81y"});
  CHECK(file.floats("floats") == floats);
  CHECK(file.integers("integers") == integers);
  CHECK(file.is_array("floats"));
  CHECK(!file.is_array("u32"));
  CHECK(!file.contains("other"));
  CHECK(!file.integer("other"));
  CHECK(!file.number("other"));
  CHECK(!file.flag("other"));
  CHECK(!file.text("other"));
  CHECK(file.texts("other").empty());
  CHECK(file.floats("other").empty());
  CHECK(file.keys().size() == 9);
  CHECK(file.keys()[0] == "flag");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.tensors()[0].bytes.size() == 24);
  CHECK(file.tensors()[1].bytes.size() == 34);
  CHECK(file.tensors()[1].bytes[33] == std::byte{'b'});
  CHECK(file.tensors()[2].bytes.empty());  // an unknown type
}

TEST_CASE("the other widths of numbers") {
  const auto key = [](const char* name, std::uint32_t type, const std::string& value) {
    return text(name) + raw(type) + value;
  };
  const std::string bytes =
      file_of(0, 8,
              key("u8", 0, "\xff") + key("i8", 1, "\xff") + key("i16", 3, raw(std::int16_t{-3})) +
                  key("u64", 10, raw(std::uint64_t{1} << 62)) + key("wide", 10, raw(std::uint64_t{1} << 63)) +
                  key("i64", 11, raw(std::int64_t{-9})) + key("f64", 12, raw(0.1)) +
                  key("inf", 6, raw(std::numeric_limits<float>::infinity())),
              2);
  const Gguf file(as_bytes(bytes), "file");
  CHECK(file.integer("u8") == 255);
  CHECK(file.integer("i8") == -1);
  CHECK(file.integer("i16") == -3);
  CHECK(file.integer("u64") == std::int64_t{1} << 62);
  CHECK(file.integer("i64") == -9);
  CHECK(file.number("f64") == 0.1);
  CHECK(file.number("inf") == std::numeric_limits<double>::infinity());
  CHECK_THROWS_WITH_AS(file.integer("wide"),
                       "file: key 'wide': expected an integer below 2^63, found a 64-bit integer",
                       std::runtime_error);
}

TEST_CASE("a value of another type is named") {
  GgufContainer out;
  out.set("u32", std::uint32_t{1});
  out.set("text", "x");
  out.set("floats", std::span<const float>(std::vector<float>{1, 2}));
  CHECK(error_of(out, [](const Gguf& file) { file.text("u32"); }) ==
        "file: key 'u32': expected a string, found a 32-bit integer");
  CHECK(error_of(out, [](const Gguf& file) { file.flag("u32"); }) ==
        "file: key 'u32': expected true or false, found a 32-bit integer");
  CHECK(error_of(out, [](const Gguf& file) { file.integer("floats"); }) ==
        "file: key 'floats': expected an integer below 2^63, found an array of 2");
  CHECK(error_of(out, [](const Gguf& file) { file.number("text"); }) ==
        "file: key 'text': expected a number, found a string");
  CHECK(error_of(out, [](const Gguf& file) { file.texts("text"); }) ==
        "file: key 'text': expected an array of strings, found a string");
  CHECK(error_of(out, [](const Gguf& file) { file.texts("floats"); }) ==
        "file: key 'floats': expected an array of strings, found one of another type");
  CHECK(error_of(out, [](const Gguf& file) { file.integers("floats"); }) ==
        "file: key 'floats': expected an array of 32-bit integers, found one of another type");
}

TEST_CASE("broken headers and values") {
  CHECK(error_of("") == "file: offset 0: is no GGUF file: it does not begin with \"GGUF\"");
  CHECK(error_of("PK\x03\x04 and more") == error_of(""));
  CHECK(error_of("GGUF\x03") == "file: offset 4: expected 4 bytes of version, the file has 1 more");
  CHECK(error_of(file_of(0, 0, "", 1)) ==
        "file: offset 8: version 1, expected 2 or 3, little-endian; convert the model again with a current "
        "llama.cpp");
  CHECK(error_of(file_of(0, 0, "", 3u << 24)) ==
        "file: offset 8: version 50331648, expected 2 or 3, little-endian; convert it: gguf-py's "
        "gguf_convert_endian.py");
  CHECK(error_of(file_of(0, 1, "")) == "file: offset 24: 1 key-values, more than the file has bytes for");
  CHECK(error_of(file_of(1u << 31, 0, std::string(99, '\0'))) ==
        "file: offset 24: 2147483648 tensors, more than the file has bytes for");
  CHECK(error_of(file_of(0, 1, raw(~std::uint64_t{0}) + std::string(20, 'x'))) ==
        "file: offset 32: expected 18446744073709551615 bytes of a key, the file has 20 more");
  CHECK(error_of(file_of(0, 1, text("key") + raw(std::uint32_t{13}) + "x")) ==
        "file: key 'key': type 13, expected 0 to 12");
  CHECK(error_of(file_of(0, 1, text("key") + raw(std::uint32_t{12}) + "x")) ==
        "file: offset 39: expected 8 bytes of a value, the file has 1 more");
  const auto array = [&](std::uint32_t type, std::uint64_t count, const std::string& rest) {
    return error_of(file_of(0, 1, text("key") + raw(std::uint32_t{9}) + raw(type) + raw(count) + rest));
  };
  CHECK(array(9, 0, "") == "file: key 'key': an array of type 9, expected 0 to 12 except 9");
  CHECK(array(13, 0, "") == "file: key 'key': an array of type 13, expected 0 to 12 except 9");
  CHECK(array(4, std::uint64_t{1} << 62, "1234") ==
        "file: offset 51: 4611686018427387904 elements of an array, more than the file has bytes for");
  CHECK(array(8, 1, raw(std::uint64_t{5}) + "abc") ==
        "file: offset 59: expected 5 bytes of a string, the file has 3 more");
  CHECK(array(8, 0, "") == "no error");
  GgufContainer twice;
  twice.set("key", true), twice.set("key", false);
  CHECK(error_of(twice.bytes()) == "file: key 'key': occurs twice");
}

TEST_CASE("broken tensors") {
  CHECK(error_of_tensors({tensor("a", {4, 4}, 0, 0)}) == "no error");
  CHECK(error_of_tensors({tensor("a", {}, 0, 0)}) == "file: tensor 'a': 0 extents, expected 1 to 4");
  CHECK(error_of_tensors({tensor("a", {1, 1, 1, 1, 1}, 0, 0)}) ==
        "file: tensor 'a': 5 extents, expected 1 to 4");
  for (const std::uint64_t extent : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 49})
    CHECK(error_of_tensors({tensor("a", {4, extent}, 0, 0)}) ==
          "file: tensor 'a': shape [" + std::to_string(static_cast<std::int64_t>(extent)) +
              ", 4], expected extents from 1 on and at most 2^48 numbers");
  CHECK(error_of_tensors({tensor("a", {1u << 31, 1u << 31, 1u << 31, 1u << 31}, 0, 0)}).find("2^48") !=
        std::string::npos);
  CHECK(error_of_tensors({tensor("a", {48}, 8, 0)}) ==
        "file: tensor 'a': rows of 48 numbers are no whole blocks of Q8_0, which have 32");
  CHECK(error_of_tensors({tensor("a", {4}, 0, 4)}) ==
        "file: tensor 'a': offset 4 is no multiple of 32, the alignment");
  CHECK(
      error_of_tensors({tensor("a", {17}, 0, 0)}) ==
      "file: tensor 'a': its 68 bytes at offset 0 end after the file, which has 64 of data: is it cut off?");
  CHECK(
      error_of_tensors({tensor("a", {9}, 0, 32)}) ==
      "file: tensor 'a': its 36 bytes at offset 32 end after the file, which has 64 of data: is it cut off?");
  CHECK(error_of_tensors({tensor("a", {1}, 0, ~std::uint64_t{31})}).find("end after the file") !=
        std::string::npos);
  CHECK(error_of_tensors({tensor("a", {9}, 0, 0), tensor("b", {8}, 0, 32)}) ==
        "file: tensor 'b': shares bytes with 'a'");
  CHECK(error_of_tensors({tensor("a", {8}, 0, 0), tensor("a", {8}, 0, 32)}) ==
        "file: tensor 'a': occurs twice");
  const auto aligned = [&](std::uint32_t alignment) {
    std::string bytes = file_of(
        1, 1, text("general.alignment") + raw(std::uint32_t{4}) + raw(alignment) + tensor("a", {4}, 0, 0));
    bytes.resize(256);
    return error_of(bytes);
  };
  CHECK(aligned(64) == "no error");
  for (const std::uint32_t alignment : {0u, 48u, 1u << 21})
    CHECK(aligned(alignment) == "file: key 'general.alignment': " + std::to_string(alignment) +
                                    ", expected a power of two from 1 to 1048576");
}

TEST_CASE("a file is mapped, and outlives its name") {
  const specula_test::TemporaryDirectory folder("gguf_mapped");
  const auto path = folder.path / "model.gguf";
  GgufContainer out;
  out.set("key", "value");
  out.add("a", 0, {1}, "abcd");
  specula_test::write_file(path, out.bytes());
  const Gguf file = Gguf::open(path);
  std::filesystem::remove(path);
  CHECK(file.text("key") == "value");
  CHECK(file.tensors()[0].bytes[3] == std::byte{'d'});
  CHECK_THROWS_WITH_AS(Gguf::open(path), (path.string() + ": cannot be opened").c_str(), std::runtime_error);
}
