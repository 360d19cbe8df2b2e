// SPDX-License-Identifier: MIT
// labels: optimised
// cuda::Model: chains have the bits of plain decoding. (Apart from model.cpp, since both take minutes under a
// sanitizer.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "small_model.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using specula::kNoParent;
using specula::NodeId;
using specula_test::EmulatedDevice;

namespace {

std::vector<NodeId> chain(int n) {
  std::vector<NodeId> out;
  for (int i = 0; i < n; ++i) out.push_back(i - 1);
  return out;
}
/// The rows after each token of a text, whose tokens come one by one.
template <class M>
std::vector<Row> plain_rows(M& model, const std::vector<Token>& prompt, const std::vector<Token>& text) {
  std::vector<Row> out;
  model.append(prompt);
  for (const Token token : text) {
    const std::vector<Token> one{token};
    const std::vector<NodeId> parent{kNoParent}, path{0};
    out.push_back(row_of(model.extend(one, parent), 0));
    model.commit(path);
  }
  return out;
}
/// The same by chains of up to `length` draft tokens, of which a random number is right.
template <class M>
std::vector<Row> chain_rows(M& model, const std::vector<Token>& prompt, const std::vector<Token>& text,
                            int length) {
  specula_test::Random random(static_cast<std::uint64_t>(length));
  std::vector<Row> out;
  model.append(prompt);
  while (out.size() < text.size()) {
    const int left = static_cast<int>(text.size() - out.size()), n = std::min(left, 1 + length),
              right = 1 + random.below(n);
    std::vector<Token> tokens(text.begin() + static_cast<std::ptrdiff_t>(out.size()),
                              text.begin() + static_cast<std::ptrdiff_t>(out.size()) + n);
    for (int i = right; i < n; ++i)
      tokens[static_cast<std::size_t>(i)] = (tokens[static_cast<std::size_t>(i)] + 1) % kVocab;
    const std::vector<NodeId> parents = chain(n);
    const LogitsView rows = model.extend(tokens, parents);
    std::vector<NodeId> path;
    for (int i = 0; i < right; ++i) out.push_back(row_of(rows, i)), path.push_back(i);
    model.commit(path);
  }
  return out;
}

/// How many rows of chains have the bits of plain decoding.
template <class Products>
int common_rows(bool hopper, int length, int prompt_size, int fresh, int layers = 2) {
  const auto weights = small_weights(layers);
  const auto prompt = random_tokens(prompt_size, 1), text = random_tokens(fresh, 2);
  const auto run = [&](auto decode) {
    EmulatedDevice device;
    device.hopper = hopper, device.order_depends_on_rows = true;
    cuda::Model<EmulatedDevice, Products> model(device, weights, {.capacity = prompt_size + 128});
    return decode(model);
  };
  const auto plain = run([&](auto&model) { return plain_rows(model, prompt, text); }),
             chains = run([&](auto&model) { return chain_rows(model, prompt, text, length); });
  int common = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) common += same_bits(plain[i], chains[i]) ? 1 : 0;
  return common;
}

}  // namespace

TEST_CASE("a chain's rows have the bits of plain decoding") {
  for (const bool hopper : {false, true}) {
    CAPTURE(hopper);
    CHECK(common_rows<cuda::PaddedProducts>(hopper, 4, 20, 24) == 24);
    CHECK(common_rows<cuda::PaddedProducts>(hopper, 1, 90, 12) == 12);
    // The texts cross the end of a tile of 64 keys.
    CHECK(common_rows<cuda::PaddedProducts>(hopper, 11, 120, 24) == 24);
    // The keys become more than one split.
    CHECK(common_rows<cuda::PaddedProducts>(hopper, 5, 2040, 16, 1) == 16);
    // This device's bits do depend on the rows of a pass: free products and plans do not have them.
    CHECK(common_rows<cuda::FreeProducts>(hopper, 4, 20, 24) < 24);
  }
}
