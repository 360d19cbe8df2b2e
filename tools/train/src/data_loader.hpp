// SPDX-License-Identifier: MIT
// From documents to batches of token rows. Deterministic: a batch depends on the seed and on how many
// rows of each style were read, so a checkpoint needs only a position of two integers per style.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tokens.hpp"

namespace specula_train {

/// Packs documents into rows of `length` tokens, end to end. A document that is cut by the end of a row
/// continues in the next row, unless it fits a row as a whole: then it starts again there. So a short
/// document (a question and its answer) is always trained with its beginning visible.
std::vector<Document> pack_rows(const std::vector<const Document*>& documents, std::size_t length);

/// An endless, shuffled supply of rows of one style. Every epoch has the same rows in another order, so what
/// is stored of a row can be used again.
class RowStream {
 public:
  RowStream(const std::vector<Document>& documents, std::uint64_t seed);

  /// The next row of `length` tokens. Changing the length in the middle starts a new epoch, of other rows.
  const Document& next(std::size_t length);

  std::int64_t epoch() const { return epoch_; }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t epoch, std::int64_t position);

 private:
  void pack(std::size_t length);
  void shuffle_rows();  // by the epoch

  const std::vector<Document>* documents_;
  std::uint64_t seed_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  std::size_t length_ = 0;  // 0: the rows are not made yet
  std::vector<Document> rows_;
  std::vector<std::size_t> order_;  // of the rows in this epoch
};

/// Marks the prompts of the texts as given, but for those of the styles that `learned` names. Returns whether
/// there are prompts at all. Throws std::invalid_argument for a name that is no style's.
bool mark_prompts(std::vector<TokenizedStyle>& styles, const std::vector<std::string>& learned);

/// The share of the rows that each style has, in order: what `given` ("NAME=0.4") says; the other styles
/// share the rest equally. A share of 0 leaves a style out. Throws std::invalid_argument for an unknown name,
/// one given twice, a share outside [0, 1], a sum above 1 or, if all are given, other than 1.
std::vector<double> parse_shares(const std::vector<TokenizedStyle>& styles,
                                 const std::vector<std::string>& given);

/// Batches in which styles have their shares of the rows: after any number of rows, each style has had its
/// share to within as many rows as there are styles.
class BatchLoader {
 public:
  /// `shares` as from parse_shares(); none: equal ones.
  BatchLoader(const std::vector<TokenizedStyle>& styles, std::uint64_t seed, std::vector<double> shares = {});

  /// Token ids, (rows, context + 1), int64: inputs and, shifted by one, the tokens to predict.
  torch::Tensor next(std::int64_t rows, std::int64_t context);

  /// (styles + 1, 2), int64: epoch and position of each stream, then the number of its rows used.
  torch::Tensor state() const;
  void restore(const torch::Tensor& state);

  /// "gsm8k 3, python 1": the epochs of each style that has a share.
  std::string epochs() const;

 private:
  /// The style of the next row.
  std::size_t next_style();

  std::vector<std::string> names_;
  std::vector<RowStream> streams_;
  std::vector<double> shares_;
  std::vector<std::int64_t> counts_;  // rows given out
  std::int64_t rows_ = 0;             // their sum
};

/// At most `max_rows` held-out rows of a style, evenly spread over its text, (rows, context + 1), int64.
torch::Tensor heldout_rows(const TokenizedStyle& style, std::int64_t context, std::int64_t max_rows);

}  // namespace specula_train
