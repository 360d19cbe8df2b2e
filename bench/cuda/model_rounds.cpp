// SPDX-License-Identifier: MIT
// Whole rounds on the device beside its plain decoding, over the models that come with the sources or over
// SmolLM2: texts, tokens per round, speed; pipelines in turn, prompt by prompt. With model_device.cu and
// model_cpu.cpp.
//
//   model_rounds model [--out FILE] [--part pack|public], in the top folder of the sources
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <specula/base/stopwatch.hpp>
#include <specula/cpu/decoder_weights.hpp>
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include "model_program.hpp"

namespace specula_bench {
namespace {

namespace cpu = specula::cpu;
namespace cuda = specula::cuda;
using specula::Token;
using Weights = std::shared_ptr<const cpu::DecoderWeights<float>>;

constexpr int kPrompts = 60, kFresh = 128, kCapacity = 256;

Weights load(const std::filesystem::path& at, const Weights& target = nullptr) {
  return std::make_shared<const cpu::DecoderWeights<float>>(cpu::load_decoder_weights<float>(at, target));
}

/// What decodes a prompt: the text, and how many rounds it took.
struct Pipeline {
  std::string name;
  std::function<std::vector<Token>(const std::vector<Token>& prompt, std::int64_t& rounds)> decode;
};

/// Pipelines whose rounds stay on the device, which they keep.
class Pipelines {
 public:
  Pipelines(cuda::CudaDevice& device, const Weights& target)
      : device_(device), target_(target), target_on_device_(cuda::upload(device, *target, kCapacity)) {}

  /// `rule` by drawing at `temperature`, or the likeliest tokens.
  template <class Shape, class Rule>
  void add(const std::string& name, const cuda::DeviceWeights& draft, const Shape& shape, Rule rule,
           float temperature, bool plain = false) {
    auto run = std::make_shared<cuda::Round<cuda::CudaDevice, Shape, Rule>>(
        device_, target_on_device_, draft, shape, rule,
        cuda::RoundOptions{.capacity = kCapacity, .params = {.temperature = temperature}});
    all_.push_back({name, [run, length = plain ? 0 : run->longest()](const std::vector<Token>& prompt,
                                                                     std::int64_t& rounds) {
                      std::vector<Token> text;
                      run->generate(
                          prompt, {.max_new_tokens = kFresh}, 1,
                          [&](specula::Tokens part) { text.insert(text.end(), part.begin(), part.end()); },
                          length);
                      rounds = run->rounds();
                      return text;
                    }});
  }
  cuda::DeviceWeights draft(const std::filesystem::path& at) {
    const Weights weights = load(at, target_);
    return cuda::upload(device_, *weights, kCapacity, &target_on_device_);
  }
  const cuda::DeviceWeights& target() const { return target_on_device_; }

  void measure(Json& json) {
    // Prompts that the target would write.
    cuda::Round sampled(device_, target_on_device_, target_on_device_, specula::Chain<>{.length = 1},
                        specula::SampleAndMatch{}, {.capacity = kCapacity, .params = {.temperature = 0.8f}});
    std::vector<std::vector<Token>> prompts;
    for (std::uint64_t p = 0; p < kPrompts; ++p) {
      std::vector<Token>& prompt = prompts.emplace_back(1, 1);
      sampled.generate(
          std::vector<Token>{1}, {.max_new_tokens = 31}, p,
          [&](specula::Tokens part) { prompt.insert(prompt.end(), part.begin(), part.end()); }, 0);
    }
    std::vector<double> seconds(all_.size());
    std::vector<std::int64_t> rounds(all_.size());
    std::vector<int> same(all_.size());
    for (int turn = -2; turn < kPrompts; ++turn) {  // the first two launch and capture
      const std::vector<Token>& prompt = prompts[static_cast<std::size_t>(std::max(turn, 0))];
      std::vector<Token> plain;
      for (std::size_t i = 0; i < all_.size(); ++i) {
        std::int64_t count = 0;
        const double began = specula::detail::monotonic_seconds();
        const std::vector<Token> text = all_[i].decode(prompt, count);
        const double took = specula::detail::monotonic_seconds() - began;
        if (i == 0) plain = text;
        if (turn < 0) continue;
        seconds[i] += took, rounds[i] += count, same[i] += text == plain ? 1 : 0;
      }
    }
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const double tokens = double{kPrompts} * kFresh / static_cast<double>(rounds[i]);
      json.key(all_[i].name).begin_object();
      json.field("tokens_per_second", kPrompts * kFresh / seconds[i]).field("tokens_per_round", tokens);
      json.field("speedup", seconds[0] / seconds[i]).field("texts_as_plain", same[i]).end();
      std::printf("| %s, tokens/s | %.4g | %.3gx, %.3g tokens a round, %d of %d texts as plain |\n",
                  all_[i].name.c_str(), kPrompts * kFresh / seconds[i], seconds[0] / seconds[i], tokens,
                  same[i], kPrompts);
    }
  }

 private:
  cuda::CudaDevice& device_;
  Weights target_;
  cuda::DeviceWeights target_on_device_;
  std::vector<Pipeline> all_;
};

specula::DynamicTree tree(int top_k, int expansions, int total) {
  specula::DynamicTree out;
  out.top_k = top_k, out.expansions = expansions, out.total = total;
  return out;
}

/// Plain decoding first, then chains, CAPE and trees by a plain draft, a head and GLIDE.
void add_all(Pipelines& on, const std::filesystem::path& models, const std::string& plain_draft,
             const std::vector<std::string>& heads, const std::string& glide) {
  using specula::Chain, specula::Greedy;
  const cuda::DeviceWeights small = on.draft(models / plain_draft);
  on.add("plain decoding", small, Chain<>{.length = 1}, Greedy{}, 0, true);
  for (const int length : {2, 4, 8})
    on.add("chain of " + std::to_string(length) + ", " + plain_draft, small, Chain<>{.length = length},
           Greedy{}, 0);
  on.add("CAPE, " + plain_draft, small, specula::Cape{}, Greedy{}, 0);
  for (const std::string& name : heads) {
    const cuda::DeviceWeights head = on.draft(models / name);
    on.add("chain of 5, " + name, head, Chain<>{.length = 5}, Greedy{}, 0);
    on.add("tree of 11, " + name, head, tree(3, 3, 11), Greedy{}, 0);
    on.add("tree of 23, " + name, head, tree(4, 4, 23), Greedy{}, 0);
    on.add("tree of 60, " + name, head, tree(10, 5, 60), Greedy{}, 0);
  }
  if (glide.empty()) return;
  const cuda::DeviceWeights reads = on.draft(models / glide);
  on.add("chain of 4, " + glide, reads, Chain<>{.length = 4}, Greedy{}, 0);
  on.add("CAPE, " + glide, reads, specula::Cape{}, Greedy{}, 0);
}

void pack(Json& json) {
  cuda::CudaDevice device;
  json.field("machine", device.machine());
  const std::filesystem::path models = "examples/models";
  Pipelines on(device, load(models / "target"));
  add_all(on, models, "small", {"eagle", "hass"}, "glide");
  on.measure(json);
}

/// SmolLM2-135M, where SPECULA_SMOLLM2 names its file.
void of_public(Json& json) {
  const char* const file = std::getenv("SPECULA_SMOLLM2");
  if (!file) {
    json.field("left_out", std::string("SPECULA_SMOLLM2 names no file"));
    return;
  }
  cuda::CudaDevice device;
  Pipelines on(device, load(file));
  const std::filesystem::path models = "examples/smollm2";
  add_all(on, models, "plain", {"hass"}, std::filesystem::exists(models / "glide") ? "glide" : "");
  on.measure(json);
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  return specula_bench::run_parts(argc, argv,
                                  {{"pack", specula_bench::pack}, {"public", specula_bench::of_public}});
}
