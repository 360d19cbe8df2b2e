// SPDX-License-Identifier: MIT
// specula in C99, for engines in any language: draft tokens drawn from rows of logits (specula_draw), and
// verified with those of the target (specula_verify), so that the text keeps the target's distribution.
// Library: specula_c.
//
// A struct is zeroed, then its size set, then its fields: `specula_round round = {0}; round.struct_size =
// sizeof round;`. Arrays are the caller's, in host memory, aligned to their elements, contiguous but for the
// strides of rows. Nothing has to be freed: each thread keeps its memory until it ends. Any thread may call
// at any time. The library prints nothing and ends no program.
#ifndef SPECULA_H
#define SPECULA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPECULA_API __attribute__((visibility("default")))  ///< a function that the shared library exports
#else
#define SPECULA_API  ///< a function that the shared library exports
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// Elements of rows of logits.
enum specula_type {
  SPECULA_FLOAT = 0,    ///< 32 bits
  SPECULA_HALF = 1,     ///< IEEE binary16
  SPECULA_BFLOAT16 = 2  ///< the upper half of a float
};

/// What is known of q, the distributions that the draft tokens were drawn from.
enum specula_form {
  SPECULA_CHOSEN = 0,         ///< nothing was drawn: the likeliest tokens, n-grams, tokens of a fixed list
  SPECULA_LOGITS = 1,         ///< rows of logits
  SPECULA_PROBABILITIES = 2,  ///< rows of probabilities as floats, which add up to 1
  SPECULA_FEW = 3             ///< a few tokens per row with their probabilities, which add up to 1
};

/// What became of a sequence, or of a row that was drawn from. Where it is not 0, nothing was emitted, and
/// specula_message() says why; the others are not affected.
enum specula_status {
  SPECULA_OK = 0,              ///< no error
  SPECULA_NOT_A_NUMBER = 1,    ///< a row holds NaN or +infinity
  SPECULA_EMPTY_ROW = 2,       ///< no logit of a row is above -infinity
  SPECULA_OVERFLOW = 3,        ///< a row's largest logit is above 1e38 times the temperature
  SPECULA_BAD_PARAMETERS = 4,  ///< temperature, top-k, top-p or min-p out of range
  SPECULA_BAD_TREE = 5,        ///< a token, a parent or a position out of range; a tree for a rule of chains
  SPECULA_BAD_DRAFT_ROW = 8,   ///< a draft token's row, or its statistics, out of range
  SPECULA_BAD_DRAFT_SUM = 9    ///< probabilities of the draft that do not add up to 1
};

/// What specula_verify() and specula_draw() return below 0. From 0 on it is the number of sequences or rows
/// whose status is not 0.
enum specula_error_code {
  SPECULA_INVALID = -1,    ///< an argument is wrong: nothing was written
  SPECULA_NO_MEMORY = -2,  ///< there is not enough memory: what was written is unspecified
  SPECULA_INTERNAL = -3    ///< a fault of the library: what was written is unspecified
};

/// The statistics of a row of logits, as specula_draw() writes them, so that specula_verify() need not read
/// the row for them again.
typedef struct specula_stats {
  double log_z;       ///< logarithm of the normaliser of what truncation kept, relative to `shift`
  float shift;        ///< the row's largest logit
  float temperature;  ///< 0: a point mass
  float min_logit;    ///< tokens below it have probability 0
  int32_t point;      ///< the token of a point mass; else -1
  int32_t status;     ///< a specula_status
  int32_t reserved;   ///< 0
} specula_stats;

/// One round of B sequences: their proposals, rows of logits of the target, and q.
///
/// A proposal is a tree of nodes: node 0, the root, is the text's last token; the others are draft tokens,
/// parents before children. Without `parent` it is a chain. A sequence without draft tokens has its root
/// alone; a slot without nodes is empty, which is no error. The row of a node is of the token after it.
///
/// p is the softmax of the target's row under temperature, top-k, top-p and min-p, in this order. A caller
/// that truncates or penalises does so once, in p and q alike: by the parameters, or in the rows.
///
/// Fields up to out_status are required; the others may stay 0.
typedef struct specula_round {
  size_t struct_size;    ///< sizeof(specula_round). A newer library takes an older, shorter one
  int32_t sequences;     ///< B, at least 1
  int32_t nodes;         ///< N, of all sequences, roots included; must equal begin[B]
  int32_t vocab;         ///< V, at least 1
  int32_t width;         ///< of the results' rows: at least the nodes of the longest path, the root included
  const int32_t* begin;  ///< (B + 1) where a sequence's nodes begin in the arrays of N, ascending
  const int32_t* token;  ///< (N) 32 bits; negative: padding, and so are all nodes below it
  const int32_t* position;  ///< (B) of the root in its text: its index, from 0
  const uint64_t* seed;     ///< (B) of the uniform draws. (seed, sequence, position) must not recur in a text
  const void* target;       ///< (R, V) the target's logits, of target_type
  int64_t target_rows;      ///< R: at least N without target_row
  int32_t* out_token;       ///< (B, width) the emitted tokens: accepted draft tokens, then one more; then -1
  int32_t* out_accepted;    ///< (B, width) the accepted path of nodes, the root (0) first; then -1
  int32_t* out_count;   ///< (B) tokens emitted, accepted draft tokens + 1; 0 if the status is not 0, and of
                        ///< an empty slot
  int32_t* out_status;  ///< (B) a specula_status

  int32_t rule;               ///< of specula_rule(); 0: "sampling"
  int32_t target_type;        ///< a specula_type
  int64_t target_stride;      ///< elements from row to row, V or more, or -V or less; 0: V
  const int32_t* target_row;  ///< (N) the row of a node; not read for padding. Null: node i has row i
  const int32_t* parent;      ///< (N) in the numbers of its own sequence, -1 for a root; null: chains
  const uint32_t* sequence;   ///< (B) for texts of one seed: the text's number; null: 0
  const float* temperature;   ///< (B) 0: greedy, else at least 1e-4; null: 1
  const int32_t* top_k;       ///< (B) 0: off; null: 0
  const float* top_p;         ///< (B) in (0, 1], 1: off; null: 1
  const float* min_p;         ///< (B) in [0, 1], 0: off; null: 0

  int32_t draft_form;  ///< a specula_form; SPECULA_CHOSEN: the fields below are not read, and `draft` is null
  int32_t draft_type;  ///< SPECULA_LOGITS: a specula_type
  const void* draft;   ///< (R, V) logits or float probabilities, or for SPECULA_FEW (R, few) floats
  int64_t draft_rows;  ///< R, at least 1
  int64_t draft_stride;  ///< elements from row to row, as target_stride; 0: V, or few
  /// (N) the row that a draft token was drawn from, -1: it was chosen; not read for roots and padding. Null:
  /// draft token i of the round, roots not counted, has row i.
  const int32_t* draft_row;
  const double* draft_scale;  ///< (N) of tokens drawn without replacement: out_scale of specula_draw();
                              ///< 0 for others. Null: 0
  const specula_stats* draft_stats;  ///< SPECULA_LOGITS: (R) out_stats of specula_draw(); null: q is the
                                     ///< softmax of the draft's row under the parameters of p
  const int32_t* draft_token;        ///< SPECULA_FEW: (R, few) tokens, each at most once in a row; negative:
                                     ///< padding
  int32_t few;                       ///< SPECULA_FEW: tokens per row, at least 1
  int32_t reserved;                  ///< 0

  float* out_log_prob;  ///< (B, width) ln p of the emitted tokens; 0 at temperature 0. Null: not written
} specula_round;

/// Draft tokens for R nodes, each from its row of the draft's logits, n draws per row.
///
/// With rows in the order of draft tokens, out_token, out_scale and out_stats pass to specula_verify() as
/// they are; q is then SPECULA_LOGITS over the same rows. Uniform draws are those of the library's drafters:
/// none of specula_verify() is among them. Draws of one text differ in (seed, sequence, position, origin,
/// number of the drawn node), which must not recur.
///
/// Fields up to out_status are required; the others may stay 0.
typedef struct specula_draft {
  size_t struct_size;       ///< sizeof(specula_draft)
  int32_t rows;             ///< R, at least 1
  int32_t draws;            ///< n of each row, at least 1
  int32_t vocab;            ///< V, at least 1
  int32_t type;             ///< a specula_type
  const void* logits;       ///< (R, V) after each node
  const int32_t* position;  ///< (R) of the node in its text, whose children are drawn; negative: not this row
  const int32_t* origin;    ///< (R) position of the root of its tree: that of specula_round
  const uint64_t* seed;     ///< (R)
  int32_t* out_token;       ///< (R, n) in the order in which they must be verified; -1: no token was left
  int32_t* out_status;      ///< (R) a specula_status

  int64_t stride;        ///< elements from row to row, V or more, or -V or less; 0: V
  int32_t distinct;      ///< 1: without replacement, the tokens of a row differ; 0: they are independent
  int32_t reserved;      ///< 0
  const int32_t* first;  ///< (R) number in its tree of the first node that is drawn, at least 1; the other
                         ///< n - 1 follow. Null: position - origin + 1, for chains
  const uint32_t* sequence;  ///< (R) as in specula_round; null: 0
  const float* temperature;  ///< (R) as in specula_round; null: 1
  const int32_t* top_k;      ///< (R) null: 0
  const float* top_p;        ///< (R) null: 1
  const float* min_p;        ///< (R) null: 0
  float* out_prob;    ///< (R, n) q of each token, before earlier ones of its row are excluded; 0 for -1
  double* out_scale;  ///< (R, n) draft_scale of specula_round: 0 with replacement and at temperature 0
  specula_stats* out_stats;  ///< (R) draft_stats of specula_round
} specula_draft;

/// Verifies the proposals of a round, on the calling thread. Returns the number of sequences that could not
/// be verified, which is 0 if all is well, or a specula_error_code. A row is read where the rule needs it.
///
/// Refused, with nothing written: a null or misaligned array, a number or a stride out of range, `begin` that
/// descends or does not end with `nodes`, a path longer than `width`, a node without a row. A row of q
/// narrower than V is one of them: pad it with -infinity or 0, or pass SPECULA_FEW.
SPECULA_API int specula_verify(const specula_round* round);

/// Draws draft tokens. Returns the number of rows that could not be drawn from, or a specula_error_code.
SPECULA_API int specula_draw(const specula_draft* draft);

/// The number of a rule, for specula_round; -1 if there is none of this name.
/// - `sampling`: what to use: match for what was chosen, block for drawn chains, traversal for drawn trees
/// - `token`, also `rejection`: rejection sampling, token by token
/// - `block`: block verification, for chains
/// - `traversal`: block verification of trees
/// - `match`: the target's own draws, accepted as long as they are draft tokens
/// - `greedy`: the target's largest logits, whatever the parameters
SPECULA_API int specula_rule(const char* name);

/// What was wrong with this thread's last specula_verify() or specula_draw(): of a refused call its reason,
/// else the message of the first sequence or row that failed, else an empty text. Valid until this thread's
/// next call.
SPECULA_API const char* specula_error(void);

/// Why sequence `index` of this thread's last call, if that was specula_verify(), or row `index`, if it was
/// specula_draw(), failed; empty if it did not. It names the argument. Valid until this thread's next call.
SPECULA_API const char* specula_message(int32_t index);

/// The version of these declarations, which grows when a program has to be compiled anew: 1.
SPECULA_API int specula_abi(void);

#ifdef __cplusplus
}
#endif
#endif
