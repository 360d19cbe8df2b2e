// SPDX-License-Identifier: MIT
// Losses over a large vocabulary, in pieces of rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>

namespace specula_train {

/// A scalar of some rows: inputs (n, ...) from row `first` on, and the weight.
using PieceLoss = std::function<torch::Tensor(const torch::Tensor& inputs, const torch::Tensor& weight,
                                              std::int64_t first)>;

/// The sum of loss() over pieces of the rows of inputs (n, ...). A loss that makes a row of `columns` numbers
/// of each row of the inputs needs memory for a piece of them only, since each piece's gradient is computed
/// with its loss; a piece has about `numbers` of them. Only inputs and weight have a gradient. The last piece
/// has the remaining rows; where one suffices, this is loss(inputs, weight, 0).
torch::Tensor sum_in_pieces(const torch::Tensor& inputs, const torch::Tensor& weight, std::int64_t columns,
                            const PieceLoss& loss, std::int64_t numbers = std::int64_t{1} << 24);

}  // namespace specula_train
