// SPDX-License-Identifier: MIT
// Writes random rounds and draws with their results by the library that it is linked to, for rounds.py: for
// each the name of the function and what it returned, then the fields that are set, a number or an array
// each, a line of text before its bytes.
#include <specula.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "c_rounds.hpp"

using namespace specula_test;

namespace {

void number(const char* name, long long value) {
  if (value != 0) std::printf("%s %lld\n", name, value);
}
template <class T>
void array(const char* name, const std::vector<T>& values, std::size_t first = 0) {
  if (values.empty()) return;
  std::printf("%s: %zu %zu\n", name, values.size() * sizeof(T), first);
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

void write_round(CRound& round) {
  const specula_round r = round.round();
  std::printf("verify %d\n", specula_verify(&r));
  number("sequences", r.sequences), number("nodes", r.nodes), number("vocab", r.vocab),
      number("width", r.width);
  number("rule", r.rule), number("target_rows", r.target_rows), number("target_type", r.target_type);
  number("target_stride", r.target_stride), number("draft_form", r.draft_form);
  number("draft_type", r.draft_type), number("draft_rows", r.draft_rows),
      number("draft_stride", r.draft_stride);
  number("few", r.few);
  array("begin", round.begin), array("token", round.token), array("position", round.position);
  array("seed", round.seed), array("target_row", round.target_row), array("parent", round.parent);
  array("sequence", round.sequence), array("temperature", round.temperature), array("top_k", round.top_k);
  array("top_p", round.top_p), array("min_p", round.min_p), array("draft_row", round.draft_row);
  array("draft_scale", round.draft_scale), array("draft_stats", round.draft_stats);
  array("draft_token", round.draft_token), array("draft", round.probs);
  const auto rows = [](const char* name, const LogitRows& logits) {
    array(name, logits.bytes, static_cast<std::size_t>(logits.first() * logits.size()));
  };
  rows("target", round.target), rows("draft", round.draft);
  array("out_token", round.out_token), array("out_accepted", round.out_accepted);
  array("out_count", round.out_count), array("out_status", round.out_status);
  array("out_log_prob", round.out_log_prob);
  std::puts("");
}

void write_draws(Draws& of) {
  const specula_draft& d = of.fields;
  std::printf("draw %d\n", specula_draw(&d));
  number("rows", d.rows), number("draws", d.draws), number("vocab", d.vocab), number("type", d.type);
  number("stride", d.stride), number("distinct", d.distinct);
  array("logits", of.logits.bytes, static_cast<std::size_t>(of.logits.first() * of.logits.size()));
  array("position", of.position), array("origin", of.origin), array("seed", of.seed),
      array("first", of.first);
  array("sequence", of.sequence), array("temperature", of.temperature), array("out_token", of.token);
  array("out_status", of.status), array("out_prob", of.prob), array("out_scale", of.scale);
  array("out_stats", of.stats);
  std::puts("");
}

}  // namespace

int main(int, char** arguments) {
  Random random(11);
  for (int i = 0, rounds = std::atoi(arguments[1]); i < rounds; ++i) {
    CRound round = random_round(random);
    write_round(round);
    if (i % 10 != 0) continue;
    Draws draws(random, random.below(3), 1 + random.below(4), 1 + random.below(3), 2 + random.below(20));
    draws.fields.distinct = random.below(2);
    write_draws(draws);
  }
}
