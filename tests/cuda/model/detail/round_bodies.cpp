// SPDX-License-Identifier: MIT
// The bookkeeping of a round: which tokens a pass reads of a short and of a long text, where a chain's tokens
// lie, and what ends a text.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <specula/cuda/model/detail/round_bodies.cuh>

#include "emulated_device.hpp"

using namespace specula::cuda::detail;
using specula::Status;
using specula::Token;
using specula_test::EmulatedDevice;
using Numbers = std::vector<std::int32_t>;

namespace {

struct Text {
  std::vector<Token> token;
  std::int32_t length, finished = 0, limit;
  std::vector<Token> stop;
  std::int32_t stops;
  Text(std::vector<Token> tokens, std::int32_t at_most, std::vector<Token> ends = {})
      : token(std::move(tokens)),
        length(static_cast<std::int32_t>(token.size())),
        limit(at_most),
        stop(std::move(ends)),
        stops(static_cast<std::int32_t>(stop.size())) {
    token.resize(32, -7);
  }
  RoundText on_device() { return {token.data(), &length, &finished, &limit, stop.data(), &stops}; }
};

struct Pass {
  std::vector<Token> token = std::vector<Token>(4);
  Numbers position = Numbers(4), row = Numbers(4), feature = Numbers(4), begin = Numbers(2);
  std::int32_t length = -1;
  TextPass arrays() {
    return {token.data(), position.data(), row.data(), feature.data(), begin.data(), &length, 4};
  }
};

}  // namespace

TEST_CASE("a pass over the text's last tokens, which may be fewer") {
  EmulatedDevice device;
  Text text({10, 11, 12, 13, 14, 15}, 20);
  Pass pass;
  std::int32_t skip = 1;
  device.run(ReadText{text.on_device(), pass.arrays(), &skip});
  CHECK(pass.token == std::vector<Token>{11, 12, 13, 14});
  CHECK(pass.position == Numbers{1, 2, 3, 4});
  CHECK(pass.row == Numbers{-1, -1, -1, 0});
  CHECK(pass.feature ==
        Numbers{Gather::of_target(0), Gather::of_target(1), Gather::of_target(2), Gather::of_target(3)});
  CHECK(pass.begin == Numbers{0, 4});
  CHECK(pass.length == 1);
  skip = 4;
  device.run(ReadText{text.on_device(), pass.arrays(), &skip});
  CHECK(pass.token == std::vector<Token>{10, 11, -1, -1});
  CHECK(pass.row == Numbers{-1, 0, -1, -1});
  CHECK(pass.feature[0] == Gather::kNoFeature);
  CHECK(pass.begin == Numbers{0, 2});
  CHECK(pass.length == 0);
  skip = 9;  // nothing
  device.run(ReadText{text.on_device(), pass.arrays(), &skip});
  CHECK(pass.begin == Numbers{0, 0});
}

TEST_CASE("before a round: the last tokens again, the root, and where a chain's tokens lie") {
  EmulatedDevice device;
  Text text({10, 11, 12, 13, 14, 15}, 20);
  Pass pass;
  Token root = 0;
  Numbers place(4), before(4);
  device.run(BeginRound{text.on_device(), pass.arrays(), 3, &root, place.data(), before.data()});
  CHECK(pass.token == std::vector<Token>{12, 13, 14, 15});
  CHECK(root == 15);
  CHECK(place == Numbers{5, 6, 7, 8});
  CHECK(before == Numbers{4, 5, 6, 7});
}

TEST_CASE("after a round: tokens up to a stop token or the limit; a bad row and an ended text add none") {
  EmulatedDevice device;
  const std::vector<Token> emitted{21, 22, 23};
  const auto end = [&](Text& text, std::int32_t count, Status status) {
    Numbers record(7, -5);
    device.run(EndRound{text.on_device(), emitted.data(), &count, &status, record.data()});
    return record;
  };
  Text goes_on({10, 11}, 20);
  CHECK(end(goes_on, 3, Status::ok) == Numbers{3, 0, 0, 5, 21, 22, 23});
  CHECK(goes_on.token[4] == 23);
  CHECK(end(goes_on, 1, Status::ok) == Numbers{1, 0, 0, 6, 21, -5, -5});
  Text limited({10, 11}, 4);
  CHECK(end(limited, 3, Status::ok) == Numbers{2, 1, 0, 4, 21, 22, -5});
  CHECK(limited.token[4] == -7);
  CHECK(end(limited, 3, Status::ok) == Numbers{0, 1, 0, 4, -5, -5, -5});  // idle
  Text stopped({10, 11}, 20, {99, 22});
  CHECK(end(stopped, 3, Status::ok) == Numbers{2, 1, 0, 4, 21, 22, -5});
  Text bad({10, 11}, 20);
  CHECK(end(bad, 0, Status::not_a_number) == Numbers{0, 1, 1, 2, -5, -5, -5});
  CHECK(end(bad, 3, Status::not_a_number)[2] == 0);  // idle: the status was told
}
