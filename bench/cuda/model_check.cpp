// SPDX-License-Identifier: MIT
// The model on the device against the one on the CPU, over the models that come with the sources. With
// model_device.cu and model_cpu.cpp.
//
//   model_check model [--out FILE], in the top folder of the sources
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/model.hpp>
#include <specula/specula.hpp>

#include "model_program.hpp"

namespace specula_bench {
namespace {

namespace cpu = specula::cpu;
namespace cuda = specula::cuda;
using specula::NodeId;
using specula::Token;

template <class Real>
std::shared_ptr<const cpu::DecoderWeights<Real>> load(const char* name) {
  return std::make_shared<const cpu::DecoderWeights<Real>>(
      cpu::load_decoder_weights<Real>(std::string("examples/models/") + name));
}

std::vector<Token> prompt_of(int number, int vocab) {
  std::vector<Token> out{1};
  for (int i = 1; i < 24; ++i) out.push_back(3 + (i * 37 + number * 1009) % (vocab - 3));
  return out;
}

/// The largest relative error of a row over a tree, in the 2-norm: launched, captured, replayed.
void logits(Json& json) {
  const auto exact = load<double>("target");
  cpu::Decoder<double> reference(exact, {.capacity = 512});
  cuda::CudaDevice device;
  cuda::Model model(device, *exact, {.capacity = 512});
  const std::vector<Token> prompt = prompt_of(1, model.vocab_size());
  reference.append(prompt), model.append(prompt);
  std::vector<Token> tokens;
  std::vector<NodeId> parents;
  for (int i = 0; i < 60; ++i) {
    tokens.push_back((i * 101 + 5) % model.vocab_size());
    parents.push_back(i == 0 || i % 7 == 3 ? specula::kNoParent : (i - 1) / 2);
  }
  double worst = 0;
  for (int run = 0; run < 3; ++run) {
    const auto rows = model.extend(tokens, parents), expected = reference.extend(tokens, parents);
    for (int r = 0; r < rows.rows; ++r) {
      double difference = 0, norm = 0;
      for (std::size_t v = 0; v < rows.row(r).size(); ++v) {
        const double a = static_cast<double>(rows.row(r)[v]), b = static_cast<double>(expected.row(r)[v]);
        difference += (a - b) * (a - b), norm += b * b;
      }
      worst = worse(worst, std::sqrt(difference / norm));
    }
    model.truncate(model.size()), reference.truncate(reference.size());
  }
  json.field("largest_relative_error", worst);
  std::printf("| relative error of a row, pack | %.3g | at most 1.5e-2 |\n", worst);
  if (!(worst <= 1.5e-2)) throw std::runtime_error("the logits are not the reference's");
}

struct Text {
  std::vector<Token> tokens;
  std::int64_t rounds = 0;
};
template <class Target, class Draft, class Shape>
Text decode(Target& target, Draft& draft, const Shape& shape, const std::vector<Token>& prompt) {
  Text out;
  specula::Speculator run{specula::TreeVerifier{target, specula::Greedy{}, {.temperature = 0}},
                          specula::ModelDrafter{draft}, shape};
  run.generate(prompt, {.max_new_tokens = 64}, specula::PhiloxRandom{1},
               [&](specula::Tokens part) { out.tokens.insert(out.tokens.end(), part.begin(), part.end()); });
  out.rounds = run.stats().rounds;
  return out;
}

/// Greedy texts of the device's pipelines, against its plain decoding and the CPU's pipelines.
void texts(Json& json) {
  const auto target = load<float>("target"), small = load<float>("small");
  cpu::Decoder<float> of_cpu(target, {.capacity = 256}), draft_of_cpu(small, {.capacity = 256});
  cuda::CudaDevice device;
  cuda::Model model(device, *target, {.capacity = 256}), draft(device, *small, {.capacity = 256});
  specula::DynamicTree tree;
  tree.top_k = 4, tree.expansions = 3, tree.total = 12;
  const specula::Chain<> none{.length = 0}, chain{.length = 5};
  constexpr int kPrompts = 8;
  int chains = 0, trees = 0, as_cpu = 0, rounds = 0;
  for (int p = 0; p < kPrompts; ++p) {
    const std::vector<Token> prompt = prompt_of(p, model.vocab_size());
    const Text plain = decode(model, draft, none, prompt), line = decode(model, draft, chain, prompt),
               grown = decode(model, draft, tree, prompt),
               expected = decode(of_cpu, draft_of_cpu, chain, prompt);
    chains += line.tokens == plain.tokens ? 1 : 0, trees += grown.tokens == plain.tokens ? 1 : 0;
    as_cpu += line.tokens == expected.tokens ? 1 : 0, rounds += line.rounds == expected.rounds ? 1 : 0;
  }
  json.field("prompts", kPrompts).field("chains_as_plain", chains).field("trees_as_plain", trees);
  json.field("chains_as_cpu", as_cpu).field("rounds_as_cpu", rounds);
  std::printf("| greedy texts of chains that are plain decoding's | %d | of %d |\n", chains, kPrompts);
  std::printf("| of trees | %d | of %d |\n", trees, kPrompts);
  std::printf("| chains with the CPU's text, with its rounds | %d, %d | of %d |\n", as_cpu, rounds, kPrompts);
  if (chains != kPrompts) throw std::runtime_error("a chain's text is not plain decoding's");
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  return specula_bench::run_parts(argc, argv,
                                  {{"logits", specula_bench::logits}, {"texts", specula_bench::texts}});
}
