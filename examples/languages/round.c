// SPDX-License-Identifier: MIT
// A round of an engine with a loop and arrays of its own: two texts, two draft tokens each.
//   cc -std=c99 round.c $(pkg-config --cflags --libs specula_c)
#include <specula.h>
#include <stdio.h>

int main(void) {
  enum { B = 2, K = 2, N = B * (K + 1), V = 4 };  // texts, draft tokens, nodes, vocabulary
  int32_t begin[] = {0, 3, 6}, position[] = {10, 25};
  int32_t token[] = {3, 2, 0, 3, 1, 1};  // of each text its last token, then the draft's
  uint64_t seed[] = {1, 2};
  float temperature[] = {0.8f, 0.8f};
  float target[N][V] = {{0}}, draft[B * K][V] = {{0}};  // logits of the engine's models
  int32_t out[B][K + 1], path[B][K + 1], count[B], status[B];
  specula_round r = {0};
  r.struct_size = sizeof r, r.rule = specula_rule("sampling"), r.temperature = temperature;
  r.sequences = B, r.nodes = N, r.vocab = V, r.width = K + 1;
  r.begin = begin, r.token = token, r.position = position, r.seed = seed;
  r.target = target, r.target_rows = N;
  r.draft_form = SPECULA_LOGITS, r.draft = draft, r.draft_rows = B * K;
  r.out_token = *out, r.out_accepted = *path, r.out_count = count, r.out_status = status;
  if (specula_verify(&r) != 0) return fprintf(stderr, "%s\n", specula_error()), 1;
  for (int b = 0; b < B; ++b)  // the accepted draft tokens, and one more
    for (int i = 0; i < count[b]; ++i)
      printf("%d%c", (int)out[b][i], i + 1 < count[b] ? ' ' : '\n');
  return 0;
}
