// SPDX-License-Identifier: MIT
// specula.h: its functions let no exception out, and allocate in a thread's first calls alone.
#include <doctest/doctest.h>
#include <specula/accept/compile_c_library.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "c_rounds.hpp"
#include "count_allocations.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("an allocation that fails is an error like others, and the next call is right") {
  for (std::int32_t vocab : {4, 5}) {
    std::int64_t before = 0;
    for (bool done = false; !done; ++before) {
      CRound round = small_round();
      round.fields.vocab = vocab;
      round.fields.target_stride = 5;
      round.fields.draft_form = 0;
      round.target.bytes.resize(200);
      round.fields.temperature = nullptr;
      round.top_k = {2, 2, 2};
      round.token[1] = 7;  // a message, which takes memory
      const specula_round r = round.round();
      int returned = 0;
      std::thread([&] {  // whose memory is new
        const FailingAllocation fails(before);
        returned = specula_verify(&r);
        done = returned >= 0;
        if (!done) CHECK(std::string_view(specula_error()) == "there is not enough memory");
      })
          .join();
      CHECK(returned == (done ? 1 : SPECULA_NO_MEMORY));
      CHECK(specula_verify(&r) == 1);
    }
    CHECK(before > 5);
  }
}

TEST_CASE("calls of the same sizes allocate nothing; messages are a thread's own") {
  CRound round = small_round();
  const specula_round r = round.round();
  Random random(8);
  Draws of(random, SPECULA_BFLOAT16, 3, 2, 5);
  of.fields.distinct = 1;
  std::thread([&] {
    CHECK(specula_verify(&r) == 0);
    CHECK(specula_draw(&of.fields) == 0);
    const AllocationCount allocated;
    bool ok = true;
    for (int i = 0; i < 10; ++i) ok = specula_verify(&r) == 0 && specula_draw(&of.fields) == 0 && ok;
    const auto n = allocated.count();
    CHECK(ok);
    CHECK(n == 0);
  }).join();

  CHECK(specula_verify(nullptr) == SPECULA_INVALID);
  std::thread([] { CHECK(std::string(specula_error()).empty()); }).join();
  CHECK(!std::string(specula_error()).empty());
}

TEST_CASE("rules by name") {
  const std::array names{"sampling", "token", "block", "traversal", "match", "greedy"};
  for (std::size_t i = 0; i < names.size(); ++i) CHECK(specula_rule(names[i]) == static_cast<int>(i));
  CHECK(specula_rule("rejection") == specula_rule("token"));
  for (const char* name : {"", "Block", "typical", "lenient", static_cast<const char*>(nullptr)})
    CHECK(specula_rule(name) == -1);
  CHECK(specula_abi() == 1);
}
