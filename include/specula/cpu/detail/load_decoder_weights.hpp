// SPDX-License-Identifier: MIT
// Builds the weights of a Llama-family decoder from a Hugging Face directory or GGUF, or random ones for
// tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/available_memory.hpp"
#include "specula/cpu/detail/block_layout.hpp"
#include "specula/cpu/detail/load_eagle3_weights.hpp"
#include "specula/cpu/detail/weight_reader.hpp"
#include "specula/cpu/int8_groups.hpp"
#include "specula/cpu/load_options.hpp"
#include "specula/cpu/panel_matrix.hpp"
#include "specula/cpu/read_model_config.hpp"
#include "specula/cpu/tensor_files.hpp"
#include "specula/files/safetensors.hpp"

namespace specula::cpu {

namespace detail {

template <class Real, class Source>
DecoderWeights<Real> build_decoder_weights(const DecoderConfig& config, Source& source) {
  if (config.eagle3) return build_eagle3_weights<Real>(config, source);
  WeightReader<Real, Source> read(source);
  const std::int32_t hidden = config.hidden_size;
  DecoderWeights<Real> out;
  out.config = config;
  if (config.draft_vocab_size > 0) out.draft_tokens = source.draft_tokens(config);
  if (config.conditioned_on == Conditioning::features) {
    FeatureInputWeights<Real>& input = out.feature_input.emplace();
    input.fusion = read.matrix({{"model.fc.weight", hidden}}, 2 * hidden);
    input.bias = read.vectors({{"model.fc.bias", hidden}});
    if (const auto states = static_cast<std::int32_t>(config.feature_layers.size()))
      input.states = read.matrix({{"model.feature_fc.weight", hidden}}, (states + 1) * hidden);
  } else {
    if (config.borrows_embedding())
      out.embed_projection =
          read.matrix({{"model.embed_projection.weight", hidden}}, config.target_hidden_size);
    else
      out.embedding = read.matrix({{"model.embed_tokens.weight", config.vocab_size}}, hidden);
    if (!config.tied_head) out.separate_head = read.matrix({{"lm_head.weight", config.head_rows()}}, hidden);
    out.final_norm = read.vectors({{"model.norm.weight", hidden}});
  }
  for (std::int32_t l = 0; l < config.layers; ++l)
    out.layers.push_back(read_layer(read, config, "model.layers." + std::to_string(l) + ".", hidden,
                                    config.conditioned_on != Conditioning::features));
  return out;
}

template <class Real>
void check_target(const DecoderConfig& config, const std::shared_ptr<const DecoderWeights<Real>>& target,
                  const std::string& source) {
  const bool lacks_states = config.eagle3 && config.eagle3->mixes_states() && config.eagle3->states.empty();
  if (!config.borrows_embedding() && !lacks_states && !(config.eagle3 && target)) return;
  Requirements{source}(target != nullptr,
                       config.conditioned_on == Conditioning::features
                           ? "a head that reads features is loaded with its target's weights"
                           : "a draft over its target's embedding is loaded with its target's weights");
  validate_target(config, target->config, source);
  if (!config.eagle3) return;
  const auto takes = [&](bool own, const char* name) {
    Requirements{source}(own || config.hidden_size == target->config.hidden_size,
                         std::string("it has no ") + name + ", and its hidden_size " +
                             std::to_string(config.hidden_size) + " is not the target's, " +
                             std::to_string(target->config.hidden_size));
  };
  takes(config.eagle3->own_embedding, "embed_tokens.weight");
  takes(config.eagle3->own_head || config.tied_head, "lm_head.weight");
}

/// A head's rows of the LM head are copied, so that they lie in panels as products read them.
template <class Real>
DecoderWeights<Real> share_target_weights(DecoderWeights<Real> draft,
                                          std::shared_ptr<const DecoderWeights<Real>> target) {
  if (!draft.config.borrows_embedding()) return draft;
  if (draft.feature_input && !draft.draft_tokens.empty())
    draft.separate_head = target->head().select(draft.draft_tokens);
  draft.target = std::move(target);
  return draft;
}

template <class Real>
struct FileWeights {
  TensorFiles& files;
  std::optional<WeightType> asked;
  std::set<std::string, std::less<>> read = {};  // names
  std::vector<StoredTensors> kept = {};

  std::string name_of(const std::string& name) const { return eagle3_name(files, name); }
  bool contains(const std::string& name) const { return files.contains(name_of(name)); }

  std::vector<std::int32_t> draft_tokens(const DecoderConfig& config) {
    if (config.eagle3) return eagle3_tokens(files, config, read);
    constexpr const char* kName = "draft_tokens";
    read.insert(kName);
    auto tokens = files.integers(kName, config.draft_vocab_size);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] < (i ? tokens[i - 1] + 1 : 0) || tokens[i] >= config.vocab_size)
        files.fail(kName, "entry " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                              ", expected ascending tokens from 0 to " +
                              std::to_string(config.vocab_size - 1));
    return tokens;
  }

  /// As asked. Else blocks as they are, where products have them; BF16, and blocks of other types, as
  /// bfloat16, which loses less than few bits lost before; F32 and F16 in the compute type. Without products
  /// of blocks all of a block's bits are kept.
  StoredType stored(const files::TensorInfo& tensor) const {
    constexpr bool kBlocks = std::is_same_v<Real, float>;
    const bool groups = tensor.dtype == files::Dtype::i8;
    const std::uint32_t blocks =
        groups ? static_cast<std::uint32_t>(files::GgufId::q8_0) : files.gguf_type(tensor);
    if (asked && *asked != WeightType::blocks) return {*asked};
    if (has_format(blocks) && kBlocks) return {WeightType::blocks, static_cast<files::GgufId>(blocks)};
    if (tensor.dtype == files::Dtype::bf16 || groups) return {WeightType::bf16};
    return {tensor.dtype == files::Dtype::blocks && kBlocks ? WeightType::bf16 : WeightType::full};
  }
  StoredType stored(const std::string& name, std::int32_t rows, std::int32_t cols) const {
    const std::int64_t shape[] = {rows, cols};
    return stored(files.weight(name, shape));
  }

  void fill(const std::string& name, std::int32_t rows, std::int32_t cols, PanelMatrix<Real>& matrix,
            std::int32_t first) {
    const std::int64_t shape[] = {rows, cols};
    const files::TensorInfo& tensor = files.weight(name, shape);
    note(tensor, matrix.stored_at(first));
    if (matrix.stored_at(first).type != WeightType::blocks)
      return this->rows(name, {rows, cols},
                        [&](std::int32_t r, std::span<const float> row) { matrix.set_row(first + r, row); });
    read.insert(name);
    if (tensor.dtype == files::Dtype::i8) read.insert(name + Int8Groups::kSuffix);
    files.blocks(tensor, [&](std::int64_t r, const std::byte* row) {
      if (const std::int32_t bad = matrix.set_blocks(first + static_cast<std::int32_t>(r), row); bad >= 0)
        files.fail(name, tensor.dtype_name + ", row " + std::to_string(r) + ": block " + std::to_string(bad) +
                             " has an infinite or undefined scale: the file is damaged; load it again");
    });
  }

  /// Counts a tensor under its type and what became of it.
  void note(const files::TensorInfo& tensor, const StoredType& as) {
    const auto at = std::find_if(kept.begin(), kept.end(), [&](const StoredTensors& known) {
      return known.type == tensor.dtype_name && known.as == as.type;
    });
    StoredTensors& known = at != kept.end() ? *at : kept.emplace_back();
    known.type = tensor.dtype_name, known.as = as.type;
    known.quantized = tensor.dtype == files::Dtype::blocks || tensor.dtype == files::Dtype::i8;
    ++known.tensors;
    known.bytes += stored_bytes(tensor, as);
  }

  /// Of a matrix in memory.
  static std::size_t stored_bytes(const files::TensorInfo& tensor, const StoredType& as) {
    const auto rows = static_cast<std::size_t>(tensor.shape[0]),
               cols = static_cast<std::size_t>(tensor.shape[1]);
    if (as.type == WeightType::blocks)
      return round_up(rows, std::size_t{kPanel}) / kPanel *
             static_cast<std::size_t>(BlockLayout(format_of(as.blocks))
                                          .panel_bytes(static_cast<std::ptrdiff_t>(Int8Groups::count(cols))));
    return rows * cols * (as.type == WeightType::bf16 ? 2 : sizeof(Real));
  }

  /// Before gigabytes are read: throws std::runtime_error, with both figures, if they will not fit.
  void expect_room(std::optional<std::uint64_t> available) const {
    std::uint64_t needed = 0;
    std::string expanded;
    for (const auto& [name, file] : files.names()) {
      const files::TensorInfo& tensor = files.find(name);
      if (tensor.shape.size() != 2 || !is_of_weights(tensor.dtype) || name.ends_with(Int8Groups::kSuffix))
        continue;
      const StoredType as = stored(tensor);
      needed += stored_bytes(tensor, as);
      if (tensor.dtype == files::Dtype::blocks && as.type != WeightType::blocks) expanded = tensor.dtype_name;
    }
    const auto gigabytes = [](std::uint64_t bytes) {
      const std::uint64_t tenths = bytes / 100'000'000;
      return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GB";
    };
    if (available && needed > *available)
      throw std::runtime_error(files.source() + ": its weights take " + gigabytes(needed) +
                               " in memory, of which " + gigabytes(*available) + " are free" +
                               (expanded.empty()
                                    ? std::string("; a file with fewer bits takes less")
                                    : ": " + expanded + " is expanded; as Q4_K or Q4_0 it is not"));
  }

  template <class Take>
  void rows(const std::string& name, std::initializer_list<std::int64_t> shape, Take take) {
    const files::TensorInfo& tensor = files.weight(name, std::span(shape.begin(), shape.size()));
    read.insert(name);
    if (tensor.dtype == files::Dtype::i8) read.insert(name + Int8Groups::kSuffix);
    files.rows(tensor,
               [&](std::int64_t r, std::span<const float> row) { take(static_cast<std::int32_t>(r), row); });
  }
};

/// Uniform numbers of variance 1 / cols (norms: around 1) from SplitMix64, the same on every machine and
/// exact in bfloat16.
struct RandomWeights {
  WeightType type;
  std::uint64_t state;

  static std::vector<std::int32_t> draft_tokens(const DecoderConfig& config) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < config.draft_vocab_size; ++i)
      tokens.push_back(static_cast<std::int32_t>(i * config.vocab_size / config.draft_vocab_size));
    return tokens;
  }

  static std::string name_of(const std::string& name) { return name; }
  static bool contains(const std::string&) { return true; }
  StoredType stored(const std::string&, std::int32_t, std::int32_t) const { return {type}; }

  template <class Matrix>
  void fill(const std::string& name, std::int32_t count, std::int32_t cols, Matrix& matrix,
            std::int32_t first) {
    rows(name, {count, cols},
         [&](std::int32_t r, std::span<const float> row) { matrix.set_row(first + r, row); });
  }
  template <class Take>
  void rows(const std::string&, std::initializer_list<std::int64_t> shape, Take take) {
    const bool is_norm = shape.size() == 1;
    const auto cols = static_cast<std::size_t>(shape.end()[-1]);
    std::vector<float> row(cols);
    for (std::int64_t r = 0; r < (is_norm ? 1 : *shape.begin()); ++r) {
      for (float& value : row) {
        const double uniform = static_cast<double>(next() >> 11) * 0x1p-52 - 1;  // in [-1, 1)
        const double real =
            is_norm ? 1 + 0.25 * uniform : uniform * std::sqrt(3.0 / static_cast<double>(cols));
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(real)) & 0xffff0000u);
      }
      take(static_cast<std::int32_t>(r), row);
    }
  }
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};

/// Has a head read the states that LoadOptions::overrule chose.
inline void take_states(DecoderConfig& config) {
  for (const std::int32_t state : config.eagle3->states)
    if (state < 0)
      throw std::invalid_argument("LoadOptions::overrule: state " + std::to_string(state) +
                                  ", must be at least 0");
  config.feature_layers = config.eagle3->ascending_states();
}

}  // namespace detail

template <class Real>
DecoderWeights<Real> load_decoder_weights(const std::filesystem::path& model,
                                          std::shared_ptr<const DecoderWeights<Real>> target,
                                          const LoadOptions& options) {
  DecoderConfig config = read_model_config(model);
  const std::string source_name = config_path(model).string();
  if (options.overrule) {
    const auto own = config.eagle3;
    options.overrule(config);
    if (config.eagle3 && (!own || config.eagle3->states != own->states)) detail::take_states(config);
    validate(config, source_name);
  }
  if (!config.eagle3) detail::check_target(config, target, source_name);
  TensorFiles files(model, options.expand);
  if (config.eagle3) {
    detail::expect_unquantised(model);
    config = detail::eagle3_as_stored(std::move(config), files);
    detail::check_target(config, target, source_name);
    if (target) config = for_target(std::move(config), target->config, source_name);
  }
  if (options.stored == WeightType::blocks && !std::is_same_v<Real, float>)
    throw std::invalid_argument("LoadOptions::stored is blocks, which take a model that calculates in float");
  if (!config.is_draft())  // EAGLE's has the config of a Llama
    for (const char* of_head : {"fc.weight", "d2t", "midlayer.self_attn.q_proj.weight"})
      if (files.contains(of_head)) files.fail(of_head, std::string("is of ") + detail::kOtherHead);
  detail::FileWeights<Real> source{files, options.stored};
  source.expect_room(detail::available_memory());
  auto weights = detail::build_decoder_weights<Real>(config, source);
  weights.kept = std::move(source.kept);
  if (config.eagle3) detail::expect_all_read(files, source.read);
  for (const auto& [name, file] : files.names()) {  // left over: another architecture, or more layers
    if (source.read.contains(name)) continue;
    for (const auto& [part, key] : {std::pair{"draft_tokens", "draft_vocab_size"},
                                    {"model.embed_projection.weight", "target_hidden_size"}})
      if (name == part) files.fail(name, std::string("is not used: config.json has no key '") + key + "'");
    if (name.ends_with(".bias") || (name.starts_with("model.layers.") && !name.ends_with(".inv_freq")))
      files.fail(name, "is no part of a model of " + std::to_string(config.layers) +
                           " layers of this architecture; " + detail::kAsGguf);
  }
  return detail::share_target_weights(std::move(weights), std::move(target));
}

template <class Real>
DecoderWeights<Real> random_decoder_weights(const DecoderConfig& config, std::uint64_t seed,
                                            WeightType stored,
                                            std::shared_ptr<const DecoderWeights<Real>> target) {
  validate(config, "DecoderConfig");
  detail::check_target(config, target, "DecoderConfig");
  detail::RandomWeights source{stored, seed};
  return detail::share_target_weights(detail::build_decoder_weights<Real>(config, source), std::move(target));
}

}  // namespace specula::cpu
