#include "llama.hpp"

#include <cmath>
#include <stdexcept>

#include "fused.hpp"

namespace specula_train {
namespace {

using torch::Tensor;

Tensor matrix(std::int64_t out, std::int64_t in, double deviation) {
  return torch::randn({out, in}) * deviation;
}

}  // namespace

void LlamaConfig::validate() const {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw std::invalid_argument("model: " + message);
  };
  require(vocab_size > 3 && layers > 0 && heads > 0 && kv_heads > 0 && intermediate > 0,
          "layers, heads, kv-heads and intermediate must be positive");
  require(hidden > 0 && hidden % heads == 0,
          "hidden " + std::to_string(hidden) + " must be a multiple of heads " + std::to_string(heads));
  require(head_dim() % 2 == 0, "hidden / heads must be even, is " + std::to_string(head_dim()));
  require(heads % kv_heads == 0,
          "heads " + std::to_string(heads) + " must be a multiple of kv-heads " + std::to_string(kv_heads));
}

LlamaConfig named_config(const std::string& name) {
  LlamaConfig config;
  if (name == "target") return config;
  if (name == "base") {
    config.layers = 2;
    config.hidden = 192;
    config.heads = 6;
    config.kv_heads = 3;
    config.intermediate = 512;
    return config;
  }
  if (name == "small") {
    config.layers = 1;
    config.hidden = 128;
    config.heads = 4;
    config.kv_heads = 2;
    config.intermediate = 352;
    return config;
  }
  throw std::invalid_argument("model name '" + name + "': expected target, base or small");
}

RmsNormImpl::RmsNormImpl(std::int64_t size, double epsilon)
    : weight_(register_parameter("weight", torch::ones({size}))), epsilon_(epsilon) {}

Tensor RmsNormImpl::forward(const Tensor& x, torch::ScalarType dtype) {
  return rms_norm(x, weight_, epsilon_, dtype);
}

DecoderLayerImpl::DecoderLayerImpl(const LlamaConfig& config) : config_(config) {
  const auto hidden = config.hidden;
  const auto kv = config.kv_heads * config.head_dim();
  const double deviation = 0.02;
  // What is added to the residual stream starts smaller, the more layers add to it (GPT-2).
  const double added = deviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  const auto projection = [this](const char* group, const char* name, Tensor value) {
    if (!named_children().contains(group)) register_module(group, std::make_shared<torch::nn::Module>());
    auto leaf = std::make_shared<torch::nn::Module>();
    named_children()[group]->register_module(name, leaf);
    return leaf->register_parameter("weight", std::move(value));
  };
  input_norm_ = register_module("input_layernorm", RmsNorm(hidden, config.norm_epsilon));
  post_attention_norm_ = register_module("post_attention_layernorm", RmsNorm(hidden, config.norm_epsilon));
  q_ = projection("self_attn", "q_proj", matrix(hidden, hidden, deviation));
  k_ = projection("self_attn", "k_proj", matrix(kv, hidden, deviation));
  v_ = projection("self_attn", "v_proj", matrix(kv, hidden, deviation));
  o_ = projection("self_attn", "o_proj", matrix(hidden, hidden, added));
  gate_ = projection("mlp", "gate_proj", matrix(config.intermediate, hidden, deviation));
  up_ = projection("mlp", "up_proj", matrix(config.intermediate, hidden, deviation));
  down_ = projection("mlp", "down_proj", matrix(hidden, config.intermediate, added));
}

Tensor DecoderLayerImpl::attend(const Tensor& x, const RotaryTable& rotary) {
  const auto batch = x.size(0), length = x.size(1);
  const auto heads = config_.heads, kv_heads = config_.kv_heads, size = config_.head_dim();
  const auto dtype = x.scalar_type();

  const auto weight = torch::cat({q_, k_, v_}).to(dtype);  // one product for all three
  const auto qkv = torch::linear(x, weight).view({batch, length, heads + 2 * kv_heads, size});
  const auto [q, k, v] = rotate_and_split(qkv, heads, kv_heads, rotary);

  const auto scores = torch::bmm(q, k.transpose(1, 2)).view({-1, length, length});
  const auto weights = causal_softmax(scores).view({batch * kv_heads, -1, length});
  const auto mixed = torch::bmm(weights, v)
                         .view({batch, heads, length, size})
                         .transpose(1, 2)
                         .reshape({batch, length, heads * size});
  return torch::linear(mixed, o_.to(dtype));
}

Tensor DecoderLayerImpl::feed_forward(const Tensor& x) {
  const auto dtype = x.scalar_type();
  const auto weight = torch::cat({gate_, up_}).to(dtype);
  return torch::linear(swiglu(torch::linear(x, weight)), down_.to(dtype));
}

Tensor DecoderLayerImpl::forward(const Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype) {
  // The residual stream stays float32: in bfloat16 small additions would be rounded away.
  const auto attended = x + attend(input_norm_->forward(x, dtype), rotary);
  return attended + feed_forward(post_attention_norm_->forward(attended, dtype));
}

LlamaImpl::LlamaImpl(const LlamaConfig& config) : config_(config) {
  config.validate();
  auto model = register_module("model", std::make_shared<torch::nn::Module>());
  auto tokens = model->register_module("embed_tokens", std::make_shared<torch::nn::Module>());
  embedding_ = tokens->register_parameter("weight", matrix(config.vocab_size, config.hidden, 0.02));
  auto list = model->register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), DecoderLayer(config)));
  }
  norm_ = model->register_module("norm", RmsNorm(config.hidden, config.norm_epsilon));
  const auto table = make_rotary_table(kMaxPositions, config.head_dim(), config.rope_theta, torch::kCPU);
  cosine_ = register_buffer("rotary_cosine", table.cosine);
  sine_ = register_buffer("rotary_sine", table.sine);
}

Tensor LlamaImpl::features(const Tensor& tokens, torch::ScalarType dtype) {
  if (tokens.size(1) > kMaxPositions) {
    throw std::invalid_argument("rows of " + std::to_string(tokens.size(1)) + " tokens: expected at most " +
                                std::to_string(kMaxPositions));
  }
  auto x = torch::embedding(embedding_, tokens);
  for (auto& layer : layers_) x = layer->forward(x, {cosine_, sine_}, dtype);
  return norm_->forward(x, dtype);
}

Tensor LlamaImpl::head(const Tensor& features) {
  return torch::linear(features, embedding_.to(features.scalar_type()));
}

Tensor next_token_loss(Llama& model, const Tensor& rows, torch::ScalarType dtype) {
  const auto context = rows.size(1) - 1;
  const auto given = rows < 0;
  const auto tokens = torch::where(given, rows.bitwise_not(), rows);
  auto features = model->features(tokens.narrow(1, 0, context), dtype);
  features = features.reshape({-1, features.size(-1)});
  auto expected = rows.narrow(1, 1, context).reshape({-1});
  if (given.any().item<bool>()) {
    const auto learned = (expected >= 0).nonzero().view(-1);
    if (learned.numel() == 0) return features.to(torch::kFloat32).sum() * 0;
    features = features.index_select(0, learned);
    expected = expected.index_select(0, learned);
  }
  return cross_entropy(model->head(features), expected);
}

}  // namespace specula_train
