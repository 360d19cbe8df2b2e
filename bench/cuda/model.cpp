// SPDX-License-Identifier: MIT
// T(n), the time of a pass of a model over n nodes, of random weights. With model_device.cu.
//
//   model model [--out FILE] [--part 135m|1b|8b]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <specula/base/stopwatch.hpp>
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/model.hpp>

#include "model_program.hpp"

namespace specula_bench {
namespace {

namespace cuda = specula::cuda;
using cuda::CudaDevice;

specula::cpu::DecoderConfig size_of(int hidden, int intermediate, int layers, int heads, int kv_heads,
                                    int head_dim, int vocab, bool tied) {
  specula::cpu::DecoderConfig out;
  out.hidden_size = hidden, out.intermediate_size = intermediate, out.layers = layers;
  out.heads = heads, out.kv_heads = kv_heads, out.head_dim = head_dim;
  out.vocab_size = vocab, out.tied_head = tied;
  return out;
}

/// Random weights, as upload() lays them out. A block of random numbers is repeated: for times it is as good.
cuda::DeviceWeights random_weights(CudaDevice& device, const specula::cpu::DecoderConfig& c, int positions) {
  std::minstd_rand random(1);
  std::vector<cuda::BFloat16> block(std::size_t{8} << 20);
  for (cuda::BFloat16& x : block)
    x = cuda::detail::to_bfloat16((static_cast<float>(random() % 2001) - 1000) * 3e-5f);
  cuda::DeviceWeights out;
  out.hidden = c.hidden_size, out.intermediate = c.intermediate_size;
  out.heads = c.heads, out.kv_heads = c.kv_heads, out.vocab = c.vocab_size;
  out.head_size = out.head_dim = c.head_dim;
  out.positions = positions, out.eps = 1e-5f;
  const auto matrix = [&](int rows, int cols) {
    const auto n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    auto* const data = device.allocate<cuda::BFloat16>(n);
    for (std::size_t i = 0; i < n; i += block.size())
      device.put(data + i, block.data(), std::min(block.size(), n - i));
    out.bytes += 2 * n;
    return cuda::DeviceMatrix{data, rows, cols};
  };
  const auto filled = [&](std::size_t n, float x) {
    auto* const data = device.allocate<float>(n);
    device.put(data, std::vector<float>(n, x).data(), n);
    return static_cast<const float*>(data);
  };
  out.embedding = matrix(c.vocab_size, c.hidden_size);
  out.head = c.tied_head ? out.embedding : matrix(c.vocab_size, c.hidden_size);
  const auto hidden = static_cast<std::size_t>(c.hidden_size);
  out.final_norm = filled(hidden, 1);
  const auto angles = static_cast<std::size_t>(positions) * static_cast<std::size_t>(c.head_dim / 2);
  out.cosine = filled(angles, 0.8f), out.sine = filled(angles, 0.6f);
  for (int l = 0; l < c.layers; ++l) {
    cuda::DeviceLayer& layer = out.layers.emplace_back();
    layer.attention_norm = filled(hidden, 1), layer.mlp_norm = filled(hidden, 1);
    layer.qkv = matrix((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden_size);
    layer.output = matrix(c.hidden_size, c.heads * c.head_dim);
    layer.gate_up = matrix(2 * c.intermediate_size, c.hidden_size);
    layer.down = matrix(c.hidden_size, c.intermediate_size);
  }
  return out;
}

constexpr int kCapacity = 8192 + 128;
constexpr int kNodes[] = {1, 2, 4, 8, 16, 21, 32, 60};

/// Median wall milliseconds of extend() over a chain of n nodes, its rows on the host.
template <class M>
double milliseconds(M& model, int n) {
  std::vector<specula::Token> tokens;
  std::vector<specula::NodeId> parents;
  for (int i = 0; i < n; ++i) {
    tokens.push_back((i * 7919 + 13) % model.vocab_size());
    parents.push_back(i - 1);
  }
  const std::int32_t context = model.size();
  std::vector<double> times;
  for (int run = 0; run < 29; ++run) {
    const double began = specula::detail::monotonic_seconds();
    model.extend(tokens, parents);
    if (run >= 4) times.push_back(1e3 * (specula::detail::monotonic_seconds() - began));
    model.truncate(context);
  }
  return median(times);
}

template <class Products>
void measure_products(CudaDevice& device, const cuda::DeviceWeights& weights, const std::string& name,
                      Json& json) {
  cuda::Model<CudaDevice, Products> model(device, weights, {.capacity = kCapacity});
  for (const int context : {512, 8192}) {
    std::vector<specula::Token> text;
    for (int i = model.size(); i < context; ++i) text.push_back((i * 31 + 7) % model.vocab_size());
    model.append(text);
    for (const bool captures : {true, false}) {
      device.captures = captures;
      json.key(name + (captures ? ", replayed" : ", launched") + ", context " + std::to_string(context))
          .begin_object();
      double first = 0;
      for (const int n : kNodes) {
        const double ms = milliseconds(model, n);
        if (n == 1) first = ms;
        json.field(std::to_string(n), ms);
        if (captures && (n == 1 || n == 60))
          std::printf("| T(%d), %s, context %d, ms | %.4g | %.3g of T(1) |\n", n, name.c_str(), context, ms,
                      ms / first);
      }
      json.end();
    }
    device.captures = true;
  }
}

void measure(const std::string& name, const specula::cpu::DecoderConfig& config, Json& json) {
  CudaDevice device;
  const cuda::DeviceWeights weights = random_weights(device, config, kCapacity);
  json.field("weight_bytes", static_cast<unsigned long long>(weights.bytes))
      .field("machine", device.machine());
  std::printf("| %s, weights, GB | %.3g | |\n", name.c_str(), static_cast<double>(weights.bytes) * 1e-9);
  measure_products<cuda::FreeProducts>(device, weights, "free", json);
  measure_products<cuda::PaddedProducts>(device, weights, "padded", json);
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  using specula_bench::Json, specula_bench::measure, specula_bench::size_of;
  return specula_bench::run_parts(
      argc, argv,
      {{"135m", [](Json& json) { measure("135m", size_of(576, 1536, 30, 9, 3, 64, 49152, true), json); }},
       {"1b", [](Json& json) { measure("1b", size_of(2048, 8192, 16, 32, 8, 64, 128256, true), json); }},
       {"8b", [](Json& json) { measure("8b", size_of(4096, 14336, 32, 32, 8, 128, 128256, false), json); }}});
}
