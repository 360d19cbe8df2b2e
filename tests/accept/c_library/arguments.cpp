// SPDX-License-Identifier: MIT
// Arguments of specula.h: mistakes are refused or reported of their sequence, by name; damage reads and
// writes nothing beyond the caller's arrays.
#include <doctest/doctest.h>
#include <specula/accept/compile_c_library.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "c_rounds.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// Null, or misaligned.
template <class Pointer>
void damage_pointer(Random& random, Pointer& pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  pointer = random.bernoulli(0.5) || address == 0 ? nullptr : reinterpret_cast<Pointer>(address + 1);
}

}  // namespace

TEST_CASE("a mistake is refused with nothing written, and the message names argument and sequence") {
  using Change = std::function<void(CRound&, specula_round&)>;
  static std::int32_t map[5] = {0, 1, 2, 3, 5};
  const std::vector<std::pair<std::string, Change>> mistakes{
      {"struct_size is 3, must be the struct's size: this library, of specula_abi() 1, knows ",
       [](CRound&, specula_round& r) { r.struct_size = 3; }},
      {"so it may be older than your specula.h",
       [](CRound&, specula_round& r) { r.struct_size = sizeof(r) + 8; }},
      {"sequences is 0", [](CRound&, specula_round& r) { r.sequences = 0; }},
      {"nodes is 6, but the last sequence ends at begin[3], which is 5",
       [](CRound&, specula_round& r) { r.nodes = 6; }},
      {"begin[3] is 5, so that sequence 2 has 3 of 4 nodes", [](CRound&, specula_round& r) { r.nodes = 4; }},
      {"vocab is -1", [](CRound&, specula_round& r) { r.vocab = -1; }},
      {"width is 2, but sequence 2 has a path of 3 nodes", [](CRound&, specula_round& r) { r.width = 2; }},
      {"begin is null", [](CRound&, specula_round& r) { r.begin = nullptr; }},
      {"begin[0] is 1", [](CRound& c, specula_round&) { c.begin[0] = 1; }},
      {"begin[2] is 1, so that sequence 1 has -1", [](CRound& c, specula_round&) { c.begin[2] = 1; }},
      {"token is null", [](CRound&, specula_round& r) { r.token = nullptr; }},
      {"position is null", [](CRound&, specula_round& r) { r.position = nullptr; }},
      {"seed is not aligned to its elements of 8 bytes",
       [](CRound&, specula_round& r) {
         r.seed = reinterpret_cast<const std::uint64_t*>(reinterpret_cast<const char*>(r.seed) + 4);
       }},
      {"target is null", [](CRound&, specula_round& r) { r.target = nullptr; }},
      {"target is not aligned to its elements of 4 bytes",
       [](CRound&, specula_round& r) { r.target = static_cast<const char*>(r.target) + 2; }},
      {"target_rows is 4, but there are 5 nodes", [](CRound&, specula_round& r) { r.target_rows = 4; }},
      {"target_type is 3", [](CRound&, specula_round& r) { r.target_type = 3; }},
      {"target_stride is 3, but a row has vocab elements, which is 4",
       [](CRound&, specula_round& r) { r.target_stride = 3; }},
      {"target_stride is -9223372036854775808: the address of row 4 would wrap",
       [](CRound&, specula_round& r) { r.target_stride = std::numeric_limits<std::int64_t>::min(); }},
      {"target_row[4] is 5, of node 2 of sequence 2, must be in [0, target_rows - 1], which is 4",
       [](CRound&, specula_round& r) { r.target_row = map; }},
      {"rule is 6", [](CRound&, specula_round& r) { r.rule = 6; }},
      {"rule is -1", [](CRound&, specula_round& r) { r.rule = specula_rule("lenient"); }},
      {"out_token is null", [](CRound&, specula_round& r) { r.out_token = nullptr; }},
      {"out_status is null", [](CRound&, specula_round& r) { r.out_status = nullptr; }},
      {"draft is given, but draft_form is SPECULA_CHOSEN",
       [](CRound&, specula_round& r) { r.draft_form = 0; }},
      {"draft is null", [](CRound&, specula_round& r) { r.draft = nullptr; }},
      {"draft_form is 4", [](CRound&, specula_round& r) { r.draft_form = 4; }},
      {"draft_rows is 0", [](CRound&, specula_round& r) { r.draft_rows = 0; }},
      {"draft_stride is 2, but a row has vocab elements, which is 4",
       [](CRound&, specula_round& r) { r.draft_stride = 2; }},
      {"draft_type is 1, but probabilities are floats", [](CRound&, specula_round& r) { r.draft_type = 1; }},
      {"draft_token is null", [](CRound&, specula_round& r) { r.draft_form = SPECULA_FEW, r.few = 2; }},
      {"reserved is 1", [](CRound&, specula_round& r) { r.reserved = 1; }},
  };
  for (const auto& mistake : mistakes) {
    const std::string& text = mistake.first;
    CAPTURE(text);
    CRound round = small_round();
    specula_round r = round.round();
    mistake.second(round, r);
    const int returned = specula_verify(&r);
    CHECK(returned == SPECULA_INVALID);
    const std::string said = specula_error();
    CHECK(said.starts_with("specula_verify: "));
    CHECK(said.find(text) != std::string::npos);
    CHECK(std::string(specula_message(0)).empty());
    CHECK(untouched(round));
  }
  CHECK(specula_verify(nullptr) == SPECULA_INVALID);
  CHECK(specula_draw(nullptr) == SPECULA_INVALID);
  CHECK(std::string(specula_error()) == "specula_draw: the struct is null");

  // One sequence of the round alone.
  CRound round = small_round();
  round.token[1] = 7, round.probs[4] = 0.5f;
  specula_round r = round.round();
  CHECK(specula_verify(&r) == 2);
  CHECK(round.out_status == std::vector<std::int32_t>{SPECULA_BAD_TREE, SPECULA_OK, SPECULA_BAD_DRAFT_SUM});
  CHECK(std::string(specula_message(0)) == "sequence 0: node 1 is token 7, outside the vocabulary of 4");
  CHECK(std::string(specula_message(1)).empty());
  CHECK(std::string(specula_message(2))
            .starts_with("sequence 2: row 1 of the draft, of node 1: the probabilities add up to 1.25"));
  CHECK(std::string(specula_message(3)).empty());
  CHECK(std::string(specula_message(-1)).empty());
  CHECK(std::string(specula_error()) == specula_message(0));
  round = small_round(), r = round.round();
  CHECK(specula_verify(&r) == 0);
  CHECK(std::string(specula_error()).empty());

  Random random(5);
  Draws of(random, SPECULA_FLOAT, 3, 2, 5);
  of.origin[1] = 1000, of.temperature[2] = -1;
  CHECK(specula_draw(&of.fields) == 2);
  CHECK(of.status == std::vector<std::int32_t>{SPECULA_OK, SPECULA_BAD_TREE, SPECULA_BAD_PARAMETERS});
  CHECK(std::string(specula_message(1)) ==
        "row 1: origin is 1000, must be from 0 to position, which is " + std::to_string(of.position[1]));
  CHECK((of.token[2] == -1 && of.token[5] == -1 && of.scale[2] == 0));
  CHECK((of.stats[0].status == SPECULA_OK && of.stats[1].status != SPECULA_OK));
  of.fields.distinct = 2;
  CHECK(specula_draw(&of.fields) == SPECULA_INVALID);
  CHECK(std::string(specula_error()) == "specula_draw: distinct is 2, must be in [0, 1]");
  Draws skips(random, SPECULA_HALF, 2, 1, 3);
  skips.position[0] = -1;
  CHECK(specula_draw(&skips.fields) == 0);
  CHECK((skips.token[0] == -1 && skips.token[1] >= 0));
}

TEST_CASE("a struct that ends earlier has the defaults of the fields that it lacks") {
  CRound round = small_round();
  specula_round r = round.round();
  r.rule = specula_rule("greedy"), r.width = 3;
  r.struct_size =
      offsetof(specula_round, rule);  // without rule, stride and draft: "sampling" of chosen tokens
  const Apart<specula_round> old(r, r.struct_size);
  CHECK(specula_verify(old.get()) == 0);
  const std::vector<std::int32_t> got = round.out_token;
  specula_round full = round.round();
  full.rule = 0, full.target_stride = 0, full.draft_form = 0, full.draft = nullptr;
  CHECK(specula_verify(&full) == 0);
  CHECK(round.out_token == got);
}

TEST_CASE("10,000 damaged structs: refused, or what can be verified is") {
  Random random(6);
  int refused = 0, failed = 0, fine = 0;
  for (int i = 0; i < 10000; ++i) {
    CRound round = random_round(random);
    specula_round r = round.round();
    const auto bits = [&] { return static_cast<std::int32_t>(random.bits()); };
    const auto number = [&] { return random.bernoulli(0.5) ? -random.below(3) : bits(); };
    const auto any = [&](auto& array) {
      if (array.empty()) return;
      auto& one = array[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(array.size())))];
      const std::uint64_t noise = random.bits();
      std::memcpy(&one, &noise, std::min(sizeof(one), sizeof(noise)));
    };
    const auto smaller = [&](auto& value) {  // a larger one is a lie about the caller's arrays
      using T = std::decay_t<decltype(value)>;
      const auto most = static_cast<std::int32_t>(std::max<T>(value, 1));
      value = random.bernoulli(0.5) ? random.below(most) : std::numeric_limits<T>::min() + random.below(5);
    };
    const auto stride = [&](std::int64_t& value) {
      const std::int64_t most = std::numeric_limits<std::int64_t>::max() / (1 + random.below(3));
      value = random.bernoulli(0.5)   ? 1 + random.below(round.fields.vocab)
              : random.bernoulli(0.5) ? most
                                      : -most;
      if (value == round.fields.vocab) value = std::numeric_limits<std::int64_t>::min();
    };
    const std::function<void()> damages[] = {
        [&] { r.struct_size = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(sizeof(r)))); },
        [&] { r.struct_size = static_cast<std::size_t>(random.bits()) | sizeof(r) << 1; },
        [&] { smaller(r.sequences); },
        [&] { r.nodes = number(); },
        [&] { smaller(r.vocab); },
        [&] { smaller(r.width); },
        [&] { smaller(r.target_rows); },
        [&] { r.rule = number(); },
        [&] { r.target_type = r.target_stride < 0 ? 3 : number(); },
        [&] { r.draft_form = random.bernoulli(0.5) ? 0 : number(); },
        [&] { r.draft_type = r.draft_stride < 0 ? 3 : number(); },
        [&] { smaller(r.draft_rows); },
        [&] { stride(r.target_stride); },
        [&] { stride(r.draft_stride); },
        [&] { smaller(r.few); },
        [&] { damage_pointer(random, r.begin); },
        [&] { damage_pointer(random, r.token); },
        [&] { damage_pointer(random, r.position); },
        [&] { damage_pointer(random, r.seed); },
        [&] { damage_pointer(random, r.target); },
        [&] { damage_pointer(random, r.target_row); },
        [&] { damage_pointer(random, r.parent); },
        [&] { damage_pointer(random, r.temperature); },
        [&] { damage_pointer(random, r.draft); },
        [&] { damage_pointer(random, r.draft_row); },
        [&] { damage_pointer(random, r.draft_scale); },
        [&] { damage_pointer(random, random.bernoulli(0.5) ? r.out_token : r.out_status); },
        [&] { any(random.bernoulli(0.5) ? round.begin : round.token); },
        [&] { any(random.bernoulli(0.5) ? round.position : round.parent); },
        [&] { any(random.bernoulli(0.5) ? round.target_row : round.draft_row); },
        [&] { any(random.bernoulli(0.5) ? round.temperature : round.top_p); },
        [&] { any(random.bernoulli(0.5) ? round.top_k : round.draft_token); },
        [&] { any(round.draft_scale); },
        [&] { any(round.probs); },
        [&] { any(round.draft_stats); },
        [&] { any(random.bernoulli(0.5) ? round.target.bytes : round.draft.bytes); }};
    for (int changes = 1 + random.below(2); changes > 0; --changes)
      damages[random.below(static_cast<std::int32_t>(std::size(damages)))]();
    const Apart<specula_round> apart(r, std::clamp(r.struct_size, sizeof(std::size_t), sizeof(r)));
    const int returned = specula_verify(apart.get());
    CHECK(returned >= SPECULA_INVALID);
    CHECK((returned == 0) == std::string(specula_error()).empty());
    if (returned < 0) {
      ++refused;
      CHECK(std::string(specula_error())
                .starts_with("specula_verify: "));  // not of the C++ call, whose names differ
      CHECK(untouched(round));
      continue;
    }
    CHECK(returned <= r.sequences);
    failed += returned;
    bool right = true;
    for (std::int32_t b = 0; b < r.sequences; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const std::int32_t count = round.out_count[at];
      const bool empty = r.begin[b] == r.begin[b + 1];
      right &= (round.out_status[at] == SPECULA_OK && !empty) == (count > 0) && count <= r.width;
      for (std::int32_t n = 0; n < r.width; ++n) {
        const Token token = round.out_token[static_cast<std::size_t>(b * r.width + n)];
        right &= n < count ? token >= 0 && token < r.vocab : token == -1;
      }
      fine += count > 0;
    }
    CHECK(right);
  }
  CHECK(refused > 2000);
  CHECK(failed > 500);
  CHECK(fine > 5000);
}

TEST_CASE("damaged structs of draws") {
  Random random(7);
  int refused = 0, failed = 0, fine = 0;
  for (int i = 0; i < 2000; ++i) {
    Draws of(random, random.below(3), 1 + random.below(3), 1 + random.below(3), 1 + random.below(8));
    specula_draft& d = of.fields;
    d.distinct = random.below(2);
    const auto bits = static_cast<std::int32_t>(random.bits());
    const std::function<void()> damages[] = {
        [&] {
          d.struct_size = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(sizeof(d)) + 9));
        },
        [&] { d.rows = -random.below(2); },
        [&] { d.draws = -random.below(2); },
        [&] { d.vocab = -random.below(2); },
        [&] { d.type = random.bernoulli(0.5) ? bits
                       : d.stride < 0        ? d.type
                                             : random.below(3); },
        [&] { d.stride = random.bernoulli(0.5) ? std::numeric_limits<std::int64_t>::max() : 1 - d.vocab; },
        [&] { d.distinct = bits; },
        [&] { damage_pointer(random, d.logits); },
        [&] { damage_pointer(random, d.position); },
        [&] { damage_pointer(random, d.seed); },
        [&] { damage_pointer(random, d.out_token); },
        [&] { damage_pointer(random, d.out_stats); },
        [&] { damage_pointer(random, d.first); },
        [&] { of.position[0] = bits; },
        [&] { of.origin[0] = bits; },
        [&] { of.first[0] = bits; },
        [&] { std::memcpy(&of.temperature[0], &bits, 4); },
        [&] { of.logits.set(0, random.below(d.vocab), std::numeric_limits<float>::quiet_NaN()); }};
    damages[random.below(static_cast<std::int32_t>(std::size(damages)))]();
    const Apart<specula_draft> apart(d, std::clamp(d.struct_size, sizeof(std::size_t), sizeof(d)));
    const int returned = specula_draw(apart.get());
    CHECK(returned >= SPECULA_INVALID);
    CHECK((returned == 0) == std::string(specula_error()).empty());
    refused += returned<0, failed += returned> 0, fine += returned == 0;
  }
  CHECK(refused > 500);
  CHECK(failed > 200);
  CHECK(fine > 200);
}
