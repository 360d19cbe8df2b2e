// SPDX-License-Identifier: MIT
// What a pass is told: texts in the order of their slots, those without tokens, masks and rows.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <specula/cuda/model/pass_input.hpp>

#include "emulated_device.hpp"

using specula::Token;
using specula::cuda::DevicePass;
using specula_test::EmulatedDevice;

TEST_CASE("the device has what the host added, and texts that did not begin have no tokens") {
  EmulatedDevice device;
  specula::cuda::detail::PassInput<EmulatedDevice> input(device, 6, 5, 2, specula::Conditioning::nothing);
  for (const int extra : {1, 0}) {  // a second pass has nothing of the first
    input.clear();
    input.begin(1, 10, 2);
    input.add(7, 12, false, std::vector<std::uint64_t>{5, 6});
    if (extra > 0) input.add(8, 13, true, std::vector<std::uint64_t>{1});
    input.begin(3, 20, 0);
    input.add(9, 20, true, std::vector<std::uint64_t>{3});
    input.send(device);
    const DevicePass pass = input.pass(4, 64);
    CHECK(input.count() == 2 + extra);
    CHECK(input.rows() == 1 + extra);
    CHECK(pass.tokens.count == 4);
    CHECK(pass.tokens.sequences == 5);
    CHECK(pass.height == 64);
    CHECK(std::vector(pass.tokens.begin, pass.tokens.begin + 6) ==
          std::vector<std::int32_t>{0, 0, 1 + extra, 1 + extra, 2 + extra, 2 + extra});
    CHECK(std::vector(pass.tokens.length, pass.tokens.length + 5) ==
          std::vector<std::int32_t>{0, 10, 0, 20, 0});
    CHECK(std::vector(pass.tokens.earlier, pass.tokens.earlier + 5) ==
          std::vector<std::int32_t>{0, 2, 0, 0, 0});
    const auto last = static_cast<std::size_t>(1 + extra);
    CHECK(pass.tokens.token[0] == 7);
    CHECK(pass.tokens.token[last] == 9);
    CHECK(pass.tokens.position[0] == 12);
    CHECK(pass.tokens.position[last] == 20);
    CHECK(pass.row[0] == -1);
    CHECK(pass.row[last] == extra);
    CHECK(std::vector(pass.mask, pass.mask + 2) == std::vector<std::uint64_t>{5, 6});
    CHECK(std::vector(pass.mask + 2 * last, pass.mask + 2 * last + 2) == std::vector<std::uint64_t>{3, 0});
    // A token's place.
    CHECK(pass.tokens.place(0).sequence == 1);
    CHECK(pass.tokens.place(0).slot == 12);
    CHECK(pass.tokens.place(static_cast<int>(last)).sequence == 3);
    CHECK(pass.tokens.place(static_cast<int>(last)).slot == 20);
    CHECK(pass.tokens.place(static_cast<int>(last) + 1).sequence == -1);
  }
}

TEST_CASE(
    "of a draft that reads its target: where the features lie, and which of the target's tokens are seen") {
  using specula::Conditioning;
  using Input = specula::cuda::detail::PassInput<EmulatedDevice>;
  using Decoder = specula::cuda::DeviceDecoder<EmulatedDevice>;
  const std::vector<std::uint64_t> nodes{5}, before{3};
  for (const Conditioning reads : {Conditioning::nothing, Conditioning::features, Conditioning::key_values}) {
    EmulatedDevice device;
    Input input(device, 4, 2, 2, reads);
    input.clear();
    input.begin(1, 10, 2);
    input.add(7, 12, false, nodes, -4, before);
    input.add(8, 13, true, before, 12, nodes);
    input.send(device);
    const DevicePass pass = input.pass(2, 64);
    const auto target = input.target<Decoder>(nullptr, nullptr);
    CHECK((pass.feature != nullptr) == (reads == Conditioning::features));
    if (pass.feature) CHECK(std::vector(pass.feature, pass.feature + 2) == std::vector<std::int32_t>{-4, 12});
    CHECK(std::vector(pass.mask, pass.mask + 4) == std::vector<std::uint64_t>{5, 0, 3, 0});
    CHECK(pass.tokens.length[1] == 10);
    CHECK(target.length[1] == 10);
    CHECK(target.words == 2);
    if (reads == Conditioning::key_values)
      CHECK(std::vector(target.mask, target.mask + 4) == std::vector<std::uint64_t>{3, 0, 5, 0});
    CHECK(Input::bytes(4, 2, 2, reads) ==
          Input::bytes(4, 2, 2, Conditioning::nothing) + (reads == Conditioning::features     ? 16u
                                                          : reads == Conditioning::key_values ? 64u
                                                                                              : 0u));
  }
}
