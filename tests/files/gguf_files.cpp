// SPDX-License-Identifier: MIT
// Models in several GGUF parts: found by name, and errors that name the part.
#include <specula/files/gguf_files.hpp>

#include "specula/files/gguf_files.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "../../tools/common/gguf_container.hpp"
#include "safetensors_writer.hpp"

namespace {

using namespace specula::files;
using specula_tools::GgufContainer;

/// Part `part`, from 0, of `count`, with a tensor of this name.
std::string part_of(std::uint16_t part, std::uint16_t count, const std::string& name,
                    std::int32_t total = -1) {
  GgufContainer out;
  out.set("split.no", part);
  out.set("split.count", count);
  if (total >= 0) out.set("split.tensors.count", total);
  if (!name.empty()) out.add(name, 0, {1}, std::string("\0\0\0", 3) + static_cast<char>(part));
  return out.bytes();
}

struct Parts {
  specula_test::TemporaryDirectory folder{"gguf_parts"};
  std::filesystem::path path(int part) const {
    return folder.path / ("m-0000" + std::to_string(part) + "-of-00003.gguf");
  }
  Parts() {
    specula_test::write_file(path(1), part_of(0, 3, "", 2));
    specula_test::write_file(path(2), part_of(1, 3, "a"));
    specula_test::write_file(path(3), part_of(2, 3, "b"));
  }
  std::string error(const std::filesystem::path& file) const {
    try {
      const GgufFiles files(file);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what()).substr(folder.path.string().size() + 1);
    }
    return "no error";
  }
};

}  // namespace

TEST_CASE("all parts are opened") {
  const Parts parts;
  const GgufFiles files(parts.path(1));
  CHECK(files.keys().source() == parts.path(1).string());
  CHECK(files.names().size() == 2);
  REQUIRE(files.find("b"));
  CHECK(files.find("b")->bytes[3] == std::byte{2});
  CHECK(files.part_of("b").source() == parts.path(3).string());
  CHECK(files.find("c") == nullptr);
  CHECK(is_gguf(parts.path(1)));
  CHECK(!is_gguf(parts.folder.path));
  CHECK(!is_gguf(parts.folder.path / "none"));
}

TEST_CASE("what is wrong with a part is named") {
  const Parts parts;
  CHECK(
      parts.error(parts.path(2)) ==
      "m-00002-of-00003.gguf: key 'split.no': is part 2 of 3 of a model, expected the first, whose name has "
      "00001");
  const auto renamed = parts.folder.path / "m.gguf";
  std::filesystem::copy_file(parts.path(1), renamed);
  CHECK(parts.error(renamed) ==
        "m.gguf: key 'split.count': is the first of 3 parts, whose name must end with "
        "'-00001-of-00003.gguf': rename it, and the others likewise");
  for (const int part : {1, 2, 3})
    std::filesystem::copy_file(parts.path(part),
                               parts.folder.path / ("n-0000" + std::to_string(part) + "-of-00003.gguf"));
  CHECK(parts.error(parts.folder.path / "n-00001-of-00003.gguf") == "no error");
  for (const std::int32_t total : {1, 3}) {
    specula_test::write_file(parts.path(1), part_of(0, 3, "", total));
    CHECK(parts.error(parts.path(1)) == "m-00001-of-00003.gguf: key 'split.tensors.count': " +
                                            std::to_string(total) + ", the parts have 2 tensors");
  }
  specula_test::write_file(parts.path(1), part_of(0, 3, "b"));
  CHECK(parts.error(parts.path(1)) ==
        "m-00003-of-00003.gguf: tensor 'b': is in " + parts.path(1).string() + ", too");
  specula_test::write_file(parts.path(2), part_of(2, 3, "a"));
  CHECK(parts.error(parts.path(1)) ==
        "m-00002-of-00003.gguf: key 'split.no': is no part 2 of 3, as its name says: rename it");
  specula_test::write_file(parts.path(2), "GGUF");
  CHECK(parts.error(parts.path(1)).starts_with("m-00002-of-00003.gguf: offset 4: "));
  std::filesystem::remove(parts.path(2));
  CHECK(parts.error(parts.path(1)) == "m-00002-of-00003.gguf: cannot be opened");
}
