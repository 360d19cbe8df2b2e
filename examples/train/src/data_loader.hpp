// From documents to batches of token rows. Deterministic: a batch depends on the seed and on how many
// rows of each style were read, so a position of two integers a style is all that a checkpoint needs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "token_store.hpp"

namespace specula_train {

/// Packs documents into rows of `length` tokens, end to end. A document that is cut by the end of a row
/// goes on in the next row, unless it fits a row as a whole: then it starts again there. So a short
/// document (a question and its answer) is always trained with its beginning in view.
std::vector<Document> pack_rows(const std::vector<const Document*>& documents, std::size_t length);

/// An endless, shuffled supply of rows of one style.
class RowStream {
 public:
  RowStream(const std::vector<Document>& documents, std::uint64_t seed);

  /// The next row of `length` tokens. Changing the length in the middle starts a new epoch.
  const Document& next(std::size_t length);

  std::int64_t epoch() const { return epoch_; }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t epoch, std::int64_t position);

 private:
  void start_epoch(std::size_t length);

  const std::vector<Document>* documents_;
  std::uint64_t seed_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  std::size_t length_ = 0;  // 0: the epoch's rows are not made yet
  std::vector<Document> rows_;
};

/// Batches in which every style has the same share of the rows.
class BatchLoader {
 public:
  BatchLoader(const std::vector<TokenizedStyle>& styles, std::uint64_t seed);

  /// Token ids, (rows, context + 1), int64: inputs and, shifted by one, what is to be predicted.
  torch::Tensor next(std::int64_t rows, std::int64_t context);

  /// (styles + 1, 2), int64: epoch and position of each stream, then whose turn it is.
  torch::Tensor state() const;
  void restore(const torch::Tensor& state);

  /// "gsm8k 3, python 1": how often each style was gone through.
  std::string epochs() const;

 private:
  std::vector<std::string> names_;
  std::vector<RowStream> streams_;
  std::size_t turn_ = 0;
};

/// The first `max_rows` held-out rows of a style, (rows, context + 1), int64.
torch::Tensor heldout_rows(const TokenizedStyle& style, std::int64_t context, std::int64_t max_rows);

}  // namespace specula_train
