// SPDX-License-Identifier: MIT
// Builds the weights of an EAGLE-3 head from its file, whatever names its writer gave the tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/weight_reader.hpp"
#include "specula/cpu/tensor_files.hpp"

namespace specula::cpu::detail {

/// The name that a file gives a tensor, which is called here as speculators does; that name if it has none.
inline std::string eagle3_name(const TensorFiles& files, const std::string& name) {
  constexpr std::string_view kFirst = "layers.0.";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOld{
      {{"fc_norm.0.weight", "aux_norm_low.weight"},
       {"fc_norm.1.weight", "aux_norm_mid.weight"},
       {"fc_norm.2.weight", "aux_norm_high.weight"}}};
  std::vector<std::string> names{name};
  if (name.starts_with(kFirst)) names.push_back("midlayer." + name.substr(kFirst.size()));
  for (const auto& [own, old] : kOld)
    if (name == own) names.emplace_back(old);
  for (const std::string& some : names)
    for (const std::string& full : {some, "model." + some})
      if (files.contains(full)) return full;
  return name;
}

/// The config with what the tensors say: whether there are an embedding, an LM head and biases. A flat config
/// may have attention_bias for a head without any.
inline DecoderConfig eagle3_as_stored(DecoderConfig config, const TensorFiles& files) {
  const auto has = [&](const char* name) { return files.contains(eagle3_name(files, name)); };
  config.eagle3->own_embedding = has("embed_tokens.weight");
  config.eagle3->own_head = has("lm_head.weight");
  const bool biases = has("layers.0.self_attn.q_proj.bias") || has("layers.0.self_attn.o_proj.bias");
  config.qkv_bias = config.qkv_bias && biases;
  config.output_bias = config.output_bias && biases;
  return config;
}

/// Throws std::runtime_error for the folder of a quantised head.
inline void expect_unquantised(const std::filesystem::path& folder) {
  if (const auto file = folder / "hf_quant_config.json"; std::filesystem::exists(file))
    throw std::runtime_error(file.string() + ": quantised heads are not read: take the head in BF16 or F16");
}

/// The target's tokens that the rows of the LM head are of, in the file's order: d2t has offsets. Empty: all.
/// Throws std::runtime_error for a token out of range or that occurs twice, or if t2d marks others.
inline std::vector<std::int32_t> eagle3_tokens(TensorFiles& files, const DecoderConfig& config,
                                               std::set<std::string, std::less<>>& read) {
  const std::string name = eagle3_name(files, "d2t"), marks_name = eagle3_name(files, "t2d");
  if (config.draft_vocab_size == 0 && !files.contains(name)) return {};
  const auto offsets = files.long_integers(name, config.head_rows());
  read.insert(name);
  const auto all = static_cast<std::size_t>(config.vocab_size);
  std::vector<std::uint8_t> marks(all, 1);
  if (files.contains(marks_name)) marks = files.booleans(marks_name, config.vocab_size);
  std::vector<std::int32_t> tokens;
  std::vector<bool> taken(all);
  for (const std::int64_t offset : offsets) {
    const auto i = static_cast<std::int64_t>(tokens.size());
    const auto fail = [&](const std::string& what) {
      files.fail(name, "entry " + std::to_string(i) + " is " + std::to_string(offset) + what);
    };
    if (offset < -i || offset >= config.vocab_size - i)
      fail(", expected an offset from " + std::to_string(i) + " to a token below " +
           std::to_string(config.vocab_size));
    const auto token = static_cast<std::size_t>(i + offset);
    if (taken[token]) fail(": token " + std::to_string(token) + " occurs twice");
    if (!marks[token]) fail(": t2d does not mark token " + std::to_string(token) + "; entries are offsets");
    taken[token] = true;
    tokens.push_back(static_cast<std::int32_t>(token));
  }
  return tokens;
}

/// Puts the rows of the LM head in the order of their tokens. Requires different ones.
template <class Real>
void sort_head(DecoderWeights<Real>& out) {
  auto& tokens = out.draft_tokens;
  if (!std::is_sorted(tokens.begin(), tokens.end())) {
    std::vector<std::int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
    });
    if (out.separate_head.rows() == 0)
      throw std::runtime_error("d2t reorders all tokens, but there is no lm_head.weight");
    out.separate_head = out.separate_head.select(order);
    std::sort(tokens.begin(), tokens.end());
  }
  if (tokens.size() == static_cast<std::size_t>(out.config.vocab_size)) tokens.clear();
}

template <class Real, class Source>
DecoderWeights<Real> build_eagle3_weights(const DecoderConfig& config, Source& source) {
  WeightReader<Real, Source> read(source);
  const Eagle3Config& head = *config.eagle3;
  const std::int32_t hidden = config.hidden_size, width = head.target_hidden_size,
                     all = width * static_cast<std::int32_t>(head.states.empty() ? 3 : head.states.size());
  const auto vectors = [&](const std::string& name, std::int32_t size) {
    return read.vectors({{source.name_of(name), size}});
  };
  DecoderWeights<Real> out;
  out.config = config;
  out.draft_tokens = source.draft_tokens(config);
  Eagle3Weights<Real>& own = out.eagle3.emplace();
  if (head.mixes_states()) own.fusion = read.matrix({{source.name_of("fc.weight"), hidden}}, all);
  if (head.norm_before_fc) own.state_norms.push_back(vectors("input_norm.weight", all));
  for (std::int32_t k = 0; head.fc_norm && k < all / width; ++k)
    own.state_norms.push_back(vectors("fc_norm." + std::to_string(k) + ".weight", width));
  own.embedding_norm = vectors("layers.0.input_layernorm.weight", hidden);
  if (const std::string norm = "layers.0.hidden_norm.weight"; head.mixes_states() || source.contains(norm)) {
    own.feature_norm = vectors(norm, hidden);
  } else {  // a head of one state may lack it: its weights are 1 then
    own.feature_norm.resize(static_cast<std::size_t>(round_up(hidden, kPanel)));
    std::fill_n(own.feature_norm.begin(), hidden, Real(1));
  }
  if (head.own_embedding)
    out.embedding = read.matrix({{source.name_of("embed_tokens.weight"), config.vocab_size}}, hidden);
  for (std::int32_t l = 0; l < config.layers; ++l) {
    constexpr std::string_view kOne = "self_attn.q_proj.weight";
    std::string at = source.name_of("layers." + std::to_string(l) + "." + std::string(kOne));
    at.resize(at.size() - kOne.size());
    out.layers.push_back(read_layer(read, config, at, l == 0 ? 2 * hidden : hidden, l > 0));
  }
  out.final_norm = vectors("norm.weight", hidden);
  if (head.own_head || config.draft_vocab_size > 0)
    out.separate_head = read.matrix({{source.name_of("lm_head.weight"), config.head_rows()}}, hidden);
  sort_head(out);
  return out;
}

/// Throws std::runtime_error naming a tensor that was not read and may be part of what the head computes.
inline void expect_all_read(const TensorFiles& files, const std::set<std::string, std::less<>>& read) {
  for (const auto& [name, file] : files.names()) {
    const auto is = [&, n = std::string_view(name)](std::string_view harmless) {
      return n == harmless || n == "model." + std::string(harmless);
    };
    if (read.contains(name) || is("t2d") || is("verifier_norm.weight") || is("verifier_lm_head.weight") ||
        name.ends_with("rotary_emb.inv_freq"))
      continue;
    files.fail(name, "is not known to be part of an EAGLE-3 head as config.json describes it");
  }
}

}  // namespace specula::cpu::detail
