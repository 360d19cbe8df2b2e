// SPDX-License-Identifier: MIT
#include "llama.hpp"

#include <algorithm>
#include <cmath>
#include <specula/cpu/read_model_config.hpp>
#include <stdexcept>

#include "distillation.hpp"
#include "draft_vocabulary.hpp"
#include "fused.hpp"
#include "pieces.hpp"
#include "safetensors.hpp"
#include "stop_tokens.hpp"

namespace specula_train {

using torch::Tensor;

void DecoderConfig::validate() const {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw std::invalid_argument("model: " + message);
  };
  require(vocab_size > 3 && layers > 0 && heads > 0 && kv_heads > 0 && intermediate > 0,
          "layers, heads, kv-heads and intermediate must be positive");
  require(hidden > 0 && head_size >= 0 && max_positions > 0,
          "hidden and the longest text must be positive, head-dim not negative");
  require(head_size != 0 || hidden % heads == 0, "hidden " + std::to_string(hidden) +
                                                     " must be a multiple of heads " + std::to_string(heads) +
                                                     ", or head-dim be given");
  require(head_dim() > 0 && head_dim() % 2 == 0,
          "the size of a head must be even, is " + std::to_string(head_dim()));
  require(heads % kv_heads == 0,
          "heads " + std::to_string(heads) + " must be a multiple of kv-heads " + std::to_string(kv_heads));
  for (std::size_t i = 0; i < exits.size(); ++i)
    require(exits[i] > (i ? exits[i - 1] : 0), "exits must ascend, from 1 on");
  require(exits.empty() || exits.back() == layers,
          "the last exit must be " + std::to_string(layers) + ", the number of layers");
  require((qkv_bias || !output_bias) && (!query_key_norms || qkv_bias == output_bias),
          "no architecture has these biases and norms");
  require(target_hidden_size >= 0 && (target_hidden_size == 0 || !tied_head),
          "a draft over its target's embedding has an LM head of its own");
  require(target_hidden_size == 0 || (!qkv_bias && !query_key_norms),
          "a draft over its target's embedding has no biases, nor norms of queries and keys");
  require(draft_vocab_size >= 0 && draft_vocab_size <= vocab_size,
          "a draft vocabulary of " + std::to_string(draft_vocab_size) + " tokens: expected at most the " +
              std::to_string(vocab_size) + " of the vocabulary");
}

specula::cpu::AttentionShape DecoderConfig::attention() const {
  return {.heads = static_cast<std::int32_t>(heads),
          .kv_heads = static_cast<std::int32_t>(kv_heads),
          .head_dim = static_cast<std::int32_t>(head_dim()),
          .rope_theta = rope_theta,
          .rope_scaling = rope_scaling};
}

DecoderConfig named_config(const std::string& name) {
  DecoderConfig config;
  if (name == "target") return config;
  if (name == "base") {
    config.layers = 4;
    config.hidden = 192;
    config.heads = 6;
    config.kv_heads = 3;
    config.intermediate = 512;
    return config;
  }
  if (name == "small") {
    config.layers = 3;
    config.hidden = 128;
    config.heads = 4;
    config.kv_heads = 2;
    config.intermediate = 352;
    return config;
  }
  if (name == "deep") {
    config.layers = 16;
    config.hidden = 160;
    config.heads = config.kv_heads = 5;
    config.intermediate = 432;
    return config;
  }
  throw std::invalid_argument("model name '" + name + "': expected target, deep, base or small");
}

specula::cpu::DecoderConfig read_inference_config(const std::filesystem::path& directory) {
  return specula::cpu::read_model_config(directory);
}

DecoderConfig read_config(const std::filesystem::path& directory,
                          std::initializer_list<specula::Conditioning> allowed) {
  const auto read = read_inference_config(directory);
  if (std::ranges::find(allowed, read.conditioned_on) == allowed.end())
    throw std::runtime_error(specula::cpu::config_path(directory).string() + ": expected a plain decoder" +
                             (allowed.size() > 1 ? " or a GLIDE draft" : ""));
  DecoderConfig config{.vocab_size = read.vocab_size,
                       .hidden = read.hidden_size,
                       .layers = read.layers,
                       .heads = read.heads,
                       .kv_heads = read.kv_heads,
                       .intermediate = read.intermediate_size,
                       .norm_epsilon = read.rms_norm_eps,
                       .rope_theta = read.rope_theta,
                       .rope_scaling = read.rope_scaling,
                       .head_size = read.head_dim * read.heads == read.hidden_size ? 0 : read.head_dim,
                       .tied_head = read.tied_head,
                       .draft_vocab_size = read.draft_vocab_size,
                       .target_hidden_size = read.target_hidden_size,
                       .qkv_bias = read.qkv_bias,
                       .output_bias = read.output_bias,
                       .query_key_norms = read.query_key_norms};
  if (read.max_position > 0) config.max_positions = read.max_position;
  config.exits.assign(read.exits.begin(), read.exits.end());
  config.ends = specula_tools::read_stop_tokens(directory);
  config.validate();
  return config;
}

RmsNormImpl::RmsNormImpl(std::int64_t size, double epsilon)
    : weight_(register_parameter("weight", torch::ones({size}))), epsilon_(epsilon) {}

Tensor RmsNormImpl::forward(const Tensor& x, torch::ScalarType dtype) {
  return rms_norm(x, weight_, epsilon_, dtype);
}

Tensor add_matrix(torch::nn::Module& module, const std::string& name, std::int64_t out, std::int64_t in,
                  double deviation) {
  auto leaf = module.register_module(name, std::make_shared<torch::nn::Module>());
  return leaf->register_parameter("weight", torch::randn({out, in}) * deviation);
}

Tensor add_bias(torch::nn::Module& module, const std::string& name, std::int64_t size, bool has) {
  return has ? module.named_children()[name]->register_parameter("bias", torch::zeros({size})) : Tensor();
}

Tensor TokenInput::operator()(const Tensor& tokens, torch::ScalarType dtype) const {
  const auto rows = torch::embedding(embedding, tokens);
  if (!projection.defined()) return rows.to(torch::kFloat32);  // of a frozen model they are not
  return torch::linear(rows.to(dtype), projection.to(dtype)).to(torch::kFloat32);
}

TokenInput add_token_input(torch::nn::Module& module, const DecoderConfig& config,
                           const Tensor& target_embedding) {
  const auto width = config.target_hidden_size;
  if (target_embedding.defined() != (width != 0) ||
      (width != 0 && target_embedding.sizes() != torch::IntArrayRef{config.vocab_size, width}))
    throw std::invalid_argument(width == 0
                                    ? "a draft with an embedding of its own takes none of its target's"
                                    : "expected the target's embedding, " +
                                          std::to_string(config.vocab_size) + " x " + std::to_string(width));
  if (width == 0) return {add_matrix(module, "embed_tokens", config.vocab_size, config.hidden), {}};
  // Projected rows begin as large as those of an embedding, whatever the target's are.
  const auto size =
      target_embedding.norm().item<double>() / std::sqrt(static_cast<double>(config.vocab_size));
  return {target_embedding.detach(),
          add_matrix(module, "embed_projection", config.hidden, width, 0.02 / std::max(size, 1e-6))};
}

LmHead add_draft_tokens(torch::nn::Module& module, const DecoderConfig& config,
                        const std::vector<std::int32_t>& draft_tokens) {
  if (static_cast<std::int64_t>(draft_tokens.size()) != config.draft_vocab_size)
    throw std::invalid_argument("a draft vocabulary of " + std::to_string(draft_tokens.size()) +
                                " tokens, expected " + std::to_string(config.draft_vocab_size));
  for (std::size_t i = 0; i < draft_tokens.size(); ++i)
    if (draft_tokens[i] < (i ? draft_tokens[i - 1] + 1 : 0) || draft_tokens[i] >= config.vocab_size)
      throw std::invalid_argument("draft_tokens: expected ascending tokens below " +
                                  std::to_string(config.vocab_size));
  if (draft_tokens.empty()) return {};
  return {.weight = {},
          .tokens = module.register_buffer(kDraftTokens, torch::tensor(draft_tokens, torch::kInt32)),
          .columns = module.register_buffer("draft_columns", draft_columns(draft_tokens, config.vocab_size))};
}

LmHead add_head(torch::nn::Module& module, const DecoderConfig& config, const Tensor& embedding,
                const std::vector<std::int32_t>& draft_tokens) {
  const auto size = config.draft_vocab_size;
  if (config.tied_head && size != 0)
    throw std::invalid_argument("a draft vocabulary needs an LM head of its own: --untied");
  auto head = add_draft_tokens(module, config, draft_tokens);
  head.weight = config.tied_head
                    ? embedding
                    : add_matrix(module, "lm_head", size != 0 ? size : config.vocab_size, config.hidden);
  return head;
}

double added_deviation(const DecoderConfig& config) {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
}

SelfAttentionImpl::SelfAttentionImpl(const DecoderConfig& config) : config_(config) {
  const auto queries = config.heads * config.head_dim(), kv = config.kv_heads * config.head_dim();
  q_ = add_matrix(*this, "q_proj", queries, config.hidden);
  k_ = add_matrix(*this, "k_proj", kv, config.hidden);
  v_ = add_matrix(*this, "v_proj", kv, config.hidden);
  o_ = add_matrix(*this, "o_proj", config.hidden, queries, added_deviation(config));
  q_bias_ = add_bias(*this, "q_proj", queries, config.qkv_bias);
  k_bias_ = add_bias(*this, "k_proj", kv, config.qkv_bias);
  v_bias_ = add_bias(*this, "v_proj", kv, config.qkv_bias);
  o_bias_ = add_bias(*this, "o_proj", config.hidden, config.output_bias);
  if (!config.query_key_norms) return;
  q_norm_ = register_module("q_norm", RmsNorm(config.head_dim(), config.norm_epsilon));
  k_norm_ = register_module("k_norm", RmsNorm(config.head_dim(), config.norm_epsilon));
}

namespace {

/// x weight^T + bias, in x's dtype. An undefined bias: none.
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto dtype = x.scalar_type();
  return torch::linear(x, weight.to(dtype), bias.defined() ? bias.to(dtype) : bias);
}

}  // namespace

AttentionInputs SelfAttentionImpl::inputs(const Tensor& x, const RotaryTable& rotary) {
  const auto bias = config_.qkv_bias ? torch::cat({q_bias_, k_bias_, v_bias_}) : Tensor();
  auto qkv = product(x, frozen_qkv_.defined() ? frozen_qkv_ : torch::cat({q_, k_, v_}),
                     bias)  // one product for all three
                 .view({x.size(0), x.size(1), config_.heads + 2 * config_.kv_heads, config_.head_dim()});
  if (config_.query_key_norms) {
    const auto parts = torch::split_with_sizes(qkv, {config_.heads, config_.kv_heads, config_.kv_heads}, 2);
    const auto normed = [&](RmsNorm& norm, const Tensor& part) {
      return norm->forward(part.to(torch::kFloat32), x.scalar_type());
    };
    qkv = torch::cat({normed(q_norm_, parts[0]), normed(k_norm_, parts[1]), parts[2]}, 2);
  }
  return rotate_and_split(qkv, config_.heads, config_.kv_heads, rotary);
}

Tensor SelfAttentionImpl::output(const Tensor& mixed, std::int64_t batch, std::int64_t length) {
  return product(join_heads(mixed, batch, length), o_, o_bias_);
}

namespace {

/// For matrices that are read in one product: their rows in `dtype`, one after the other; each is a view of
/// them.
Tensor join_rows(const std::vector<Tensor>& matrices, torch::ScalarType dtype) {
  torch::NoGradGuard no_grad;
  const auto joined = torch::cat(matrices).to(dtype);
  std::int64_t row = 0;
  for (auto matrix : matrices) {
    matrix.set_data(joined.narrow(0, row, matrix.size(0)));
    row += matrix.size(0);
  }
  return joined;
}

}  // namespace

void SelfAttentionImpl::freeze(torch::ScalarType dtype) {
  frozen_qkv_ = join_rows({q_, k_, v_}, dtype);
  o_.set_data(o_.to(dtype));
}

FeedForwardImpl::FeedForwardImpl(const DecoderConfig& config)
    : gate_(add_matrix(*this, "gate_proj", config.intermediate, config.hidden)),
      up_(add_matrix(*this, "up_proj", config.intermediate, config.hidden)),
      down_(add_matrix(*this, "down_proj", config.hidden, config.intermediate, added_deviation(config))) {}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  const auto weight =
      (frozen_gate_up_.defined() ? frozen_gate_up_ : torch::cat({gate_, up_})).to(x.scalar_type());
  return torch::linear(swiglu(torch::linear(x, weight)), down_.to(x.scalar_type()));
}

void FeedForwardImpl::freeze(torch::ScalarType dtype) {
  frozen_gate_up_ = join_rows({gate_, up_}, dtype);
  down_.set_data(down_.to(dtype));
}

DecoderLayerImpl::DecoderLayerImpl(const DecoderConfig& config)
    : input_norm_(register_module("input_layernorm", RmsNorm(config.hidden, config.norm_epsilon))),
      post_attention_norm_(
          register_module("post_attention_layernorm", RmsNorm(config.hidden, config.norm_epsilon))),
      attention_(register_module("self_attn", SelfAttention(config))),
      feed_forward_(register_module("mlp", FeedForward(config))) {}

AttentionInputs DecoderLayerImpl::inputs(const Tensor& x, const RotaryTable& rotary,
                                         torch::ScalarType dtype) {
  return attention_->inputs(input_norm_->forward(x, dtype), rotary);
}

Tensor DecoderLayerImpl::forward(const Tensor& x, const AttentionInputs& inputs, torch::ScalarType dtype) {
  const auto length = inputs.keys.k.size(1);
  return add_mixed(x, attend(inputs.q, inputs.keys, causal(length, inputs.q.device())), dtype);
}

Tensor DecoderLayerImpl::add_mixed(const Tensor& x, const Tensor& mixed, torch::ScalarType dtype) {
  // The residual stream is kept in float32: in bfloat16 small additions would be rounded away.
  const auto attended = x + attention_->output(mixed, x.size(0), x.size(1));
  return attended + feed_forward_->forward(post_attention_norm_->forward(attended, dtype));
}

void DecoderLayerImpl::freeze(torch::ScalarType dtype) {
  attention_->freeze(dtype);
  feed_forward_->freeze(dtype);
}

Tensor DecoderLayerImpl::forward(const Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype) {
  return forward(x, inputs(x, rotary, dtype), dtype);
}

namespace {

void check_length(const Tensor& tokens) {
  if (tokens.size(1) <= kMaxPositions) return;
  throw std::invalid_argument("rows of " + std::to_string(tokens.size(1)) + " tokens: expected at most " +
                              std::to_string(kMaxPositions));
}

}  // namespace

LlamaImpl::LlamaImpl(const DecoderConfig& config, const Tensor& target_embedding,
                     const std::vector<std::int32_t>& draft_tokens)
    : config_(config) {
  config.validate();
  auto model = register_module("model", std::make_shared<torch::nn::Module>());
  input_ = add_token_input(*model, config, target_embedding);
  auto list = model->register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), DecoderLayer(config)));
  }
  norm_ = model->register_module("norm", RmsNorm(config.hidden, config.norm_epsilon));
  head_ = add_head(*this, config, input_.embedding, draft_tokens);
  const auto table = make_rotary_table(kMaxPositions, config.attention(), torch::kCPU);
  cosine_ = register_buffer("rotary_cosine", table.cosine);
  sine_ = register_buffer("rotary_sine", table.sine);
}

Tensor LlamaImpl::features(const Tensor& tokens, torch::ScalarType dtype) {
  check_length(tokens);
  auto x = input_(tokens, dtype);
  for (auto& layer : layers_) x = layer->forward(x, RotaryTable{cosine_, sine_}, dtype);
  return norm_->forward(x, dtype);
}

void LlamaImpl::silence(std::int64_t first) {
  torch::NoGradGuard no_grad;
  for (auto l = static_cast<std::size_t>(first); l < layers_.size(); ++l)
    for (auto& item : layers_[l]->named_parameters())
      if (item.key().starts_with("self_attn.o_proj.") || item.key() == "mlp.down_proj.weight")
        item.value().zero_();
}

std::vector<Tensor> LlamaImpl::exit_features(const Tensor& tokens, torch::ScalarType dtype) {
  if (config_.exits.empty()) return {features(tokens, dtype)};
  check_length(tokens);
  std::vector<Tensor> all;
  auto x = input_(tokens, dtype);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(x, RotaryTable{cosine_, sine_}, dtype);
    if (static_cast<std::int64_t>(i) + 1 == config_.exits[all.size()])
      all.push_back(norm_->forward(x, dtype));
  }
  return all;
}

TargetStates LlamaImpl::states(const Tensor& tokens, const std::vector<std::int64_t>& layers,
                               torch::ScalarType dtype) {
  check_length(tokens);
  torch::NoGradGuard no_grad;
  std::vector<Tensor> all;
  auto x = input_(tokens, dtype);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(x, RotaryTable{cosine_, sine_}, dtype);
    if (all.size() < layers.size() && layers[all.size()] == static_cast<std::int64_t>(i) + 1)
      all.push_back((x * torch::rsqrt(x.square().mean(-1, true) + config_.norm_epsilon)).to(dtype));
  }
  all.push_back(norm_->forward(x, dtype));
  return {.all = torch::cat(all, -1), .features = all.back()};
}

TargetView LlamaImpl::target_view(const Tensor& tokens, const std::vector<std::int64_t>& layers,
                                  bool features, torch::ScalarType dtype) {
  check_length(tokens);
  torch::NoGradGuard no_grad;
  TargetView view;
  view.layers.resize(layers.size());
  auto x = input_(tokens, dtype);
  const auto last_wanted = layers.empty() ? -1 : *std::max_element(layers.begin(), layers.end());
  for (std::int64_t i = 0; i < config_.layers && (features || i <= last_wanted); ++i) {
    auto& layer = layers_[static_cast<std::size_t>(i)];
    const auto inputs = layer->inputs(x, {cosine_, sine_}, dtype);
    for (std::size_t wanted = 0; wanted < layers.size(); ++wanted)
      if (layers[wanted] == i) view.layers[wanted] = inputs.keys;
    if (features || i < last_wanted) x = layer->forward(x, inputs, dtype);
  }
  if (features) view.features = norm_->forward(x, dtype);
  return view;
}

TextCache LlamaImpl::text_cache(std::int64_t texts, std::int64_t capacity, torch::ScalarType dtype) const {
  if (texts < 1 || capacity < 1 || capacity > kMaxPositions)
    throw std::invalid_argument("texts of " + std::to_string(capacity) + " tokens: expected 1 to " +
                                std::to_string(kMaxPositions));
  TextCache cache{.layers = {}, .lengths = torch::zeros({texts}, torch::kInt64)};
  const auto options = embedding().options().dtype(dtype).requires_grad(false);
  const auto size = config_.head_dim(), blocks = (capacity + TextCache::kBlock - 1) / TextCache::kBlock;
  for (std::int64_t i = 0; i < config_.layers; ++i)
    cache.layers.push_back(
        {.k = torch::zeros({config_.kv_heads, texts, blocks, size, TextCache::kBlock}, options),
         .v = torch::zeros({config_.kv_heads, texts, blocks * TextCache::kBlock, size}, options)});
  return cache;
}

void LlamaImpl::begin_text(const Tensor& tokens, std::int64_t place, TextCache& cache,
                           torch::ScalarType dtype) {
  torch::NoGradGuard no_grad;
  constexpr auto kBlock = TextCache::kBlock;
  const auto n = tokens.size(0), blocks = (n + kBlock - 1) / kBlock;
  if (n > cache.layers.front().v.size(2))
    throw std::invalid_argument("a text begins with " + std::to_string(n) + " tokens, the cache has " +
                                std::to_string(cache.layers.front().v.size(2)));
  auto x = input_(tokens.unsqueeze(0), dtype);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto inputs = layers_[i]->inputs(x, {cosine_, sine_}, dtype);
    const auto padded = torch::constant_pad_nd(inputs.keys.k, {0, 0, 0, blocks * kBlock - n});
    cache.layers[i]
        .k.select(1, place)
        .narrow(1, 0, blocks)
        .copy_(padded.view({padded.size(0), blocks, kBlock, padded.size(2)}).transpose(2, 3));
    cache.layers[i].v.select(1, place).narrow(1, 0, n).copy_(inputs.keys.v);
    if (i + 1 < layers_.size()) x = layers_[i]->forward(x, inputs, dtype);
  }
  cache.lengths.data_ptr<std::int64_t>()[place] = n;
}

Tensor LlamaImpl::go_on(const Tensor& tokens, TextCache& cache, torch::ScalarType dtype) {
  torch::NoGradGuard no_grad;
  if (cache.lengths.max().item<std::int64_t>() >= cache.layers.front().v.size(2))
    throw std::invalid_argument("a text is as long as the cache, " +
                                std::to_string(cache.layers.front().v.size(2)) + " tokens");
  const auto lengths = cache.lengths.to(tokens.device());
  // One row of tokens, each at a position of its own.
  const RotaryTable rotary{cosine_.index_select(0, lengths), sine_.index_select(0, lengths)};
  auto x = input_(tokens, dtype).unsqueeze(0);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto inputs = layers_[i]->inputs(x, rotary, dtype);
    x = layers_[i]->add_mixed(x, attend_texts(inputs.q, inputs.keys, cache.layers[i], lengths), dtype);
  }
  cache.lengths += 1;
  return norm_->forward(x, dtype).squeeze(0);
}

void LlamaImpl::freeze(torch::ScalarType dtype) {
  torch::NoGradGuard no_grad;
  for (auto& layer : layers_) layer->freeze(dtype);
  for (auto* matrix : {&input_.embedding, &head_.weight}) matrix->set_data(matrix->to(dtype));
}

Tensor LlamaImpl::head(const Tensor& features) {
  return torch::linear(features, head_.weight.to(features.scalar_type()));
}

Tensor unmark(const Tensor& rows) { return torch::where(rows < 0, rows.bitwise_not(), rows); }

LearnedPredictions learned_predictions(const Tensor& rows, const Tensor& columns) {
  constexpr std::int64_t kMultiple = 128;
  auto expected = rows.narrow(1, 1, rows.size(1) - 1).reshape({-1});
  if (columns.defined())
    expected = torch::where(expected >= 0, columns.index_select(0, expected.clamp_min(0)), -1);
  const auto places = (expected >= 0).nonzero().view(-1);
  const auto count = places.size(0);
  if (count == 0) return {places, places, 0};
  const auto rounded = std::min((count + kMultiple - 1) / kMultiple * kMultiple, expected.size(0));
  return {torch::constant_pad_nd(places, {0, rounded - count}),
          torch::constant_pad_nd(expected.index_select(0, places), {0, rounded - count}, -1), count};
}

Tensor next_token_loss(const Tensor& features, const Tensor& rows, const LmHead& head) {
  const auto inputs = features.reshape({-1, features.size(-1)});
  const auto learned = learned_predictions(rows, head.columns);
  if (learned.count == 0) return inputs.to(torch::kFloat32).sum() * 0 + head.weight.sum() * 0;
  return sum_in_pieces(
      inputs.index_select(0, learned.places), head.weight.to(inputs.scalar_type()), head.weight.size(0),
      [&](const Tensor& piece, const Tensor& weight, std::int64_t first) {
        const auto counted = std::clamp<std::int64_t>(learned.count - first, 0, piece.size(0));
        if (counted == 0) return piece.to(torch::kFloat32).sum() * 0;
        const auto share = static_cast<double>(counted) / static_cast<double>(learned.count);
        return share *
               cross_entropy(torch::linear(piece, weight), learned.expected.narrow(0, first, piece.size(0)));
      });
}

Tensor distillation_loss(const std::vector<Tensor>& features, const LmHead& head, const Tensor& of_target,
                         const Tensor& target_head) {
  const auto exits = static_cast<std::int64_t>(features.size());
  std::vector<Tensor> flat;
  for (const auto& exit : features) flat.push_back(exit.reshape({-1, exit.size(-1)}));
  const auto inputs = torch::stack(flat, 1);  // (rows, exits, hidden): the target's row is that of all exits
  const auto wanted = of_target.detach().reshape({-1, of_target.size(-1)});
  return sum_in_pieces(inputs, head.weight.to(inputs.scalar_type()), head.weight.size(0) * exits,
                       [&](const Tensor& piece, const Tensor& weight, std::int64_t first) {
                         const auto target_logits =
                             torch::linear(wanted.narrow(0, first, piece.size(0)), target_head);
                         return distillation(torch::linear(piece.flatten(0, 1), weight),
                                             target_logits.repeat_interleave(exits, 0),
                                             {.k = 0, .weight = 0, .cross_entropy_weight = 1})
                                    .sum() /
                                (inputs.size(0) * exits);
                       });
}

Tensor rows_of_target_head(const LmHead& target, const LmHead& draft, torch::ScalarType dtype) {
  const auto weight = target.weight.detach();
  return (draft.tokens.defined() ? weight.index_select(0, draft.tokens) : weight).to(dtype);
}

Tensor likeliest_tokens(const Tensor& features, const LmHead& head) {
  constexpr std::int64_t kNumbers = std::int64_t{1} << 24;  // logits at a time
  torch::NoGradGuard no_grad;
  const auto weight = head.weight.to(features.scalar_type());
  std::vector<Tensor> rows;
  for (const auto& piece :
       features.reshape({-1, features.size(-1)}).split(std::max<std::int64_t>(1, kNumbers / weight.size(0))))
    rows.push_back(torch::linear(piece, weight).argmax(-1));
  const auto at = torch::cat(rows).view(features.sizes().slice(0, features.dim() - 1));
  return head.tokens.defined() ? head.tokens.to(torch::kInt64).index_select(0, at.flatten()).view_as(at) : at;
}

std::vector<Tensor> exit_losses(Llama& model, const Tensor& rows, torch::ScalarType dtype) {
  std::vector<Tensor> losses;
  for (const auto& features : model->exit_features(unmark(rows).narrow(1, 0, rows.size(1) - 1), dtype))
    losses.push_back(next_token_loss(features, rows, model->lm_head()));
  return losses;
}

Tensor next_token_loss(Llama& model, const Tensor& rows, torch::ScalarType dtype) {
  return torch::stack(exit_losses(model, rows, dtype)).mean();
}

}  // namespace specula_train
