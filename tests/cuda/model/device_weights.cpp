// SPDX-License-Identifier: MIT
// Weights on the device: bit for bit where they have 16 bits or fewer, rounded with the distance where not.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/device_weights.hpp>

#include "emulated_device.hpp"

namespace cpu = specula::cpu;
namespace cuda = specula::cuda;
using specula_test::EmulatedDevice;

namespace {

cpu::DecoderConfig config_of(int head_dim) {
  cpu::DecoderConfig out;
  out.heads = 4, out.kv_heads = 2, out.head_dim = head_dim;
  out.vocab_size = 40, out.hidden_size = 64, out.intermediate_size = 96, out.layers = 2;
  out.qkv_bias = out.query_key_norms = true;
  return out;
}

/// How many numbers of a device's matrix, which has the rows and columns of `m` at these places and zeros
/// elsewhere, are others.
template <class Row, class Column>
int differences(const cuda::DeviceMatrix& matrix, const cpu::PanelMatrix<float>& m, Row row, Column column) {
  std::vector<std::uint16_t> expected(static_cast<std::size_t>(matrix.rows) *
                                      static_cast<std::size_t>(matrix.cols));
  for (int r = 0; r < m.rows(); ++r)
    for (int k = 0; k < m.cols(); ++k)
      expected[static_cast<std::size_t>(row(r) * matrix.cols + column(k))] =
          cuda::detail::to_bfloat16(m.value(r, k)).bits;
  int out = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) out += matrix.data[i].bits == expected[i] ? 0 : 1;
  return out;
}

}  // namespace

TEST_CASE("matrices arrive bit for bit, and halves of small heads are padded with zeros") {
  for (const int head_dim : {64, 32, 128, 80}) {
    CAPTURE(head_dim);
    const auto from = cpu::random_decoder_weights<float>(config_of(head_dim), 1, cpu::WeightType::bf16);
    EmulatedDevice device;
    const auto weights = cuda::upload(device, from, 10);
    const int size = head_dim <= 64 ? 64 : 128, half = head_dim / 2, padding = (size - head_dim) / 2;
    const auto same = [](int i) { return i; };
    const auto in_heads = [&](int i) { return i / half * (half + padding) + i % half; };
    CHECK(weights.distance == 0);
    CHECK(weights.head_size == size);
    CHECK(weights.layers[1].qkv.rows == 8 * size);
    CHECK(differences(weights.layers[1].qkv, from.layers[1].attention.qkv, in_heads, same) == 0);
    CHECK(differences(weights.layers[1].output, from.layers[1].attention.output, same, in_heads) == 0);
    CHECK(differences(weights.layers[0].gate_up, from.layers[0].mlp.gate_up, same, same) == 0);
    CHECK(differences(weights.layers[0].down, from.layers[0].mlp.down, same, same) == 0);
    CHECK(differences(weights.embedding, from.embedding, same, same) == 0);
    CHECK(differences(weights.head, from.head(), same, same) == 0);
    CHECK(weights.layers[0].qkv_bias[in_heads(head_dim + 3)] ==
          from.layers[0].attention.qkv_bias[static_cast<std::size_t>(head_dim + 3)]);
    CHECK(weights.bytes <= cuda::detail::device_bytes(from.config, 10));
  }
}

TEST_CASE("a tied head is the embedding, once") {
  auto config = config_of(64);
  config.tied_head = true;
  EmulatedDevice device;
  const auto weights = cuda::upload(device, cpu::random_decoder_weights<float>(config, 1), 10);
  CHECK(weights.head.data == weights.embedding.data);
}

TEST_CASE("blocks of 8 bits arrive as they are, floats are rounded and the distance says so") {
  EmulatedDevice device;
  const auto config = config_of(64);
  auto floats = cpu::random_decoder_weights<float>(config, 1, cpu::WeightType::full);
  double squares = 0, errors = 0;  // of the one matrix that has more bits
  for (std::int32_t r = 0; r < floats.layers[1].mlp.down.rows(); ++r) {
    std::vector<float> row(static_cast<std::size_t>(floats.layers[1].mlp.down.cols()));
    floats.layers[1].mlp.down.get_row(r, row.data());
    for (float& x : row) {
      x *= 1.003f;
      const auto rounded = static_cast<double>(cuda::detail::to_float(cuda::detail::to_bfloat16(x)));
      squares += std::pow(static_cast<double>(x), 2), errors += std::pow(rounded - static_cast<double>(x), 2);
    }
    floats.layers[1].mlp.down.set_row(r, row);
  }
  const double distance = cuda::upload(device, floats, 10).distance;
  CHECK(distance > 0);
  CHECK(distance < std::sqrt(errors / squares));  // the others have none
  CHECK(std::sqrt(errors / squares) < 4e-3);      // half a unit of 8 bits at most
  // int8 groups: eight bits times a power of two.
  const auto groups = cpu::random_decoder_weights<float>(config, 1, cpu::WeightType::blocks);
  const auto weights = cuda::upload(device, groups, 10);
  CHECK(weights.distance == 0);
  const auto same = [](int i) { return i; };
  CHECK(differences(weights.layers[0].down, groups.layers[0].mlp.down, same, same) == 0);
}
