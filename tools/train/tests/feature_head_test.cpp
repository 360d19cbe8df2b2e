// SPDX-License-Identifier: MIT
// Feature heads (EAGLE, HASS): forward passes, masks, loss, resuming.
#include "feature_head.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <losses/context_alignment.hpp>
#include <stdexcept>

#include "checkpoint.hpp"
#include "export.hpp"
#include "folder.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
using torch::Tensor;

namespace {

struct Pair {
  Pair() : target(tiny_target()), head(config()) {
    torch::manual_seed(2);
    enlarge(*target);
    enlarge(*head);
    head->borrow(target->lm_head(), torch::kFloat32);
  }
  static st::DecoderConfig config() {
    auto config = st::head_config(tiny_target());
    config.heads = 8;  // others than the target's
    config.kv_heads = 4;
    config.intermediate = 40;
    return config;
  }
  Tensor embed(const Tensor& tokens) { return torch::embedding(target->embedding(), tokens); }
  Tensor features(const Tensor& tokens) {
    return target->target_view(tokens, {}, true, torch::kFloat32).features;
  }
  std::vector<Tensor> predict(const Tensor& tokens, const Tensor& features, std::int64_t forwards) {
    return head->predict(embed(tokens), features, forwards, torch::kFloat32);
  }
  st::Llama target;
  st::FeatureHead head;
};

/// The (stream, column) pairs that a row of one sequence sees, from ContextAlignment.
std::vector<Tensor> predict_by_hand(Pair& pair, const Tensor& tokens, const Tensor& features,
                                    std::int32_t forwards) {
  const auto config = Pair::config();
  const auto length = tokens.size(0), size = config.head_dim(), group = config.heads / config.kv_heads;
  const auto weight = [p = pair.head->named_parameters()](const std::string& name) {
    const auto* in_layer = p.find("model.layers.0." + name);
    return in_layer ? *in_layer : p["model." + name];
  };
  const auto table = st::make_rotary_table(length, config.attention(), torch::kCPU);
  const auto rotate = [&](const Tensor& x, std::int64_t at) {  // (heads, D)
    const auto a = x.narrow(1, 0, size / 2), b = x.narrow(1, size / 2, size / 2);
    const auto c = table.cosine[at], s = table.sine[at];
    return torch::cat({a * c - b * s, b * c + a * s}, 1);
  };
  const auto embedded = pair.embed(tokens);
  const specula::ContextAlignment alignment{.forwards = forwards};
  std::vector<std::vector<Tensor>> inputs;  // (stream)(column): the fused input
  std::vector<Tensor> predicted;
  for (std::int32_t forward = 1; forward <= forwards; ++forward) {
    const auto before = forward == 1 ? features : predicted.back();
    inputs.emplace_back();
    for (std::int64_t c = 0; c < length; ++c) {
      const auto feature = c == 0 ? torch::zeros({config.hidden}) : before[c - 1];
      inputs.back().push_back(weight("fc.weight").mv(torch::cat({embedded[c], feature})) + weight("fc.bias"));
    }
    std::vector<Tensor> out;
    for (std::int32_t row = 0; row < length; ++row) {
      const auto x = inputs.back()[static_cast<std::size_t>(row)];
      const auto q = rotate(weight("self_attn.q_proj.weight").mv(x).view({config.heads, size}), row);
      std::vector<Tensor> keys, values;
      for (std::int32_t stream = 0; stream < forward; ++stream) {
        for (std::int32_t column = 0; column < length; ++column) {
          if (!alignment.sees(forward, row, stream, column)) continue;
          const auto y = inputs[static_cast<std::size_t>(stream)][static_cast<std::size_t>(column)];
          keys.push_back(rotate(weight("self_attn.k_proj.weight").mv(y).view({config.kv_heads, size}), column)
                             .repeat_interleave(group, 0));
          values.push_back(weight("self_attn.v_proj.weight")
                               .mv(y)
                               .view({config.kv_heads, size})
                               .repeat_interleave(group, 0));
        }
      }
      const auto k = torch::stack(keys), v = torch::stack(values);  // (seen, heads, D)
      const auto weights = torch::softmax((k * q).sum(-1) / std::sqrt(static_cast<double>(size)), 0);
      const auto mixed = (weights.unsqueeze(-1) * v).sum(0).flatten();
      const auto attended = x + weight("self_attn.o_proj.weight").mv(mixed);
      const auto normed = attended * torch::rsqrt(attended.square().mean() + config.norm_epsilon) *
                          weight("post_attention_layernorm.weight");
      const auto activated =
          torch::silu(weight("mlp.gate_proj.weight").mv(normed)) * weight("mlp.up_proj.weight").mv(normed);
      out.push_back(attended + weight("mlp.down_proj.weight").mv(activated));
    }
    predicted.push_back(torch::stack(out));
  }
  return predicted;
}

}  // namespace

TEST_CASE("a head has exactly the parameters of the format") {
  const auto parameters = st::FeatureHead(Pair::config())->named_parameters();
  CHECK((parameters["model.fc.weight"].sizes() == torch::IntArrayRef{32, 64}));
  CHECK((parameters["model.fc.bias"].sizes() == torch::IntArrayRef{32}));
  for (const auto* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"}) {
    CAPTURE(name);
    CHECK(parameters.contains(std::string("model.layers.0.").append(name).append(".weight")));
  }
  CHECK(parameters.size() == 10);
}

TEST_CASE("a head on several layers starts as one on the features, and learns to read all") {
  Pair pair;
  const auto tokens = random_rows(2, 9);
  auto config = st::head_config(tiny_target(), {1, 2});
  config.heads = 8, config.kv_heads = 4, config.intermediate = 40;
  st::FeatureHead head(config);
  const auto parameters = head->named_parameters();
  CHECK((parameters[st::kFeatureFusion].sizes() == torch::IntArrayRef{32, 96}));
  CHECK(parameters.size() == 11);

  const Folder folder("specula_train_feature_head_test");
  folder.write("t.model", "a tokenizer");
  st::export_feature_head(pair.head, folder.path / "t.model", {}, folder.path / "export");
  CHECK_THROWS_WITH_AS(st::load_weights(folder.path / "export", *head), doctest::Contains(st::kFeatureFusion),
                       std::runtime_error);
  st::load_weights(folder.path / "export", *head, st::Surplus::refused, {st::kFeatureFusion});
  st::load_weights(folder.path / "export", *pair.head);  // rounded as well
  const auto states = pair.target->states(tokens, {1, 2}, torch::kFloat32);
  CHECK(torch::equal(states.features, pair.features(tokens)));
  CHECK(torch::equal(states.all.narrow(-1, 64, 32), states.features));
  {
    torch::NoGradGuard no_grad;
    const auto started = head->predict(pair.embed(tokens), states.all, 3, torch::kFloat32);
    const auto before = pair.predict(tokens, states.features, 3);
    for (std::size_t forward = 0; forward < 3; ++forward)
      CHECK(torch::allclose(started[forward], before[forward], 1e-5, 1e-6));
  }

  const auto rows = random_rows(2, 9);
  const st::HeadLossOptions options{.distillation = {}, .noise = 0, .distance_weight = 0};
  CHECK_THROWS_WITH_AS(head->lm_head(), doctest::Contains("borrow"), std::logic_error);
  head->borrow(pair.target->lm_head(), torch::kFloat32);
  st::head_loss(head, pair.target, rows, options, torch::kFloat32).backward();
  const auto gradient = head->named_parameters()[st::kFeatureFusion].grad();
  for (std::int64_t part = 0; part < 3; ++part)
    CHECK(gradient.narrow(1, 32 * part, 32).abs().max().item<double>() > 0);
  CHECK_THROWS_WITH_AS(st::head_config(tiny_target(), {1, 3}), doctest::Contains("feature layer 3"),
                       std::invalid_argument);
  CHECK_THROWS_AS(st::head_config(tiny_target(), {2, 1}), std::invalid_argument);
}

TEST_CASE("without the distance the loss depends only on the LM head's output") {
  Pair pair;
  const auto rows = random_rows(2, 9);
  const auto loss = [&](double weight) {
    return st::head_loss(pair.head, pair.target, rows,
                         {.distillation = {}, .noise = 0, .distance_weight = weight}, torch::kFloat32)
        .item<double>();
  };
  const double without = loss(0), once = loss(1);
  CHECK(once > without);
  CHECK(loss(3) - without == doctest::Approx(3 * (once - without)));
  torch::NoGradGuard no_grad;
  const auto tokens = rows.narrow(1, 0, 8);
  const auto states = pair.target->states(tokens, {}, torch::kFloat32);
  const auto predicted = pair.predict(tokens, states.features, 3);
  double by_hand = 0;
  for (std::int64_t forward = 0; forward < 3; ++forward) {
    const auto prediction = predicted[static_cast<std::size_t>(forward)].narrow(1, forward, 8 - forward);
    by_hand +=
        torch::smooth_l1_loss(prediction, states.features.narrow(1, forward, 8 - forward)).item<double>();
  }
  CHECK(once - without == doctest::Approx(by_hand).epsilon(1e-3));
}

TEST_CASE("forward passes use the masks of ContextAlignment") {
  Pair pair;
  torch::NoGradGuard no_grad;
  const auto tokens = random_rows(2, 9);
  const auto features = pair.features(tokens);
  const auto predicted = pair.predict(tokens, features, 4);
  REQUIRE(predicted.size() == 4);
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto expected = predict_by_hand(pair, tokens[row], features[row], 4);
    for (std::size_t forward = 0; forward < 4; ++forward) {
      CAPTURE(forward);
      CHECK(torch::allclose(predicted[forward][row], expected[forward], 1e-4, 1e-4));
    }
  }
}

TEST_CASE("one forward pass is a plain causal decoder layer") {
  Pair pair;
  const auto tokens = random_rows(2, 9);
  const auto features = pair.features(tokens);
  const auto all = pair.predict(tokens, features, 1)[0];
  for (std::int64_t length = 1; length <= 9; ++length) {
    const auto some = pair.predict(tokens.narrow(1, 0, length), features.narrow(1, 0, length), 1)[0];
    CHECK(torch::allclose(some, all.narrow(1, 0, length), 1e-4, 1e-5));
  }
  CHECK(torch::equal(pair.predict(tokens, features, 3)[0], all));  // further forwards change nothing
}

TEST_CASE("step j of a round sees the target's features before its root") {
  Pair pair;
  const auto tokens = random_rows(2, 9);
  const auto features = pair.features(tokens);
  const auto before = pair.predict(tokens, features, 4);
  for (std::int64_t at = 0; at < 9; ++at) {
    auto changed = features.clone();
    changed.select(1, at).mul_(-1);
    const auto after = pair.predict(tokens, changed, 4);
    for (std::int64_t forward = 1; forward <= 4; ++forward) {
      CAPTURE(at);
      CAPTURE(forward);
      const auto i = static_cast<std::size_t>(forward) - 1;
      CHECK(torch::equal(changed_rows(before[i], after[i]), torch::arange(9) >= at + forward));
    }
  }
}

TEST_CASE("the loss of a head") {
  Pair pair;
  const auto rows = random_rows(4, 12);
  const st::HeadLossOptions options{
      .forwards = 2, .distillation = {.k = 3, .weight = 0.7, .cross_entropy_weight = 0.2}, .noise = 0};
  const auto loss = [&](const Tensor& part) {
    return st::head_loss(pair.head, pair.target, part, options, torch::kFloat32);
  };
  check_parts(loss, rows, *pair.head);

  auto given = rows.clone();
  given[0].narrow(0, 0, 6).bitwise_not_();  // row 0 learns from column 5 on
  given.narrow(0, 2, 2).bitwise_not_();
  const auto tokens = rows.narrow(1, 0, 11);
  const auto features = pair.features(tokens);
  const auto predicted = pair.predict(tokens, features, 2);
  double expected = 0;
  for (std::int64_t forward = 1; forward <= 2; ++forward) {
    double sum = 0;
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t c = std::max<std::int64_t>(row == 0 ? 5 : 0, forward - 1); c < 11; ++c) {
        const auto prediction = predicted[static_cast<std::size_t>(forward) - 1][row][c];
        const auto p = torch::softmax(pair.target->head(features[row][c]), -1);
        const auto log_q = torch::log_softmax(pair.target->head(prediction), -1);
        const auto top = std::get<1>(p.topk(3));
        sum += torch::smooth_l1_loss(prediction, features[row][c]).item<double>() -
               0.2 * (p * log_q).sum().item<double>() -
               0.7 * (p.index_select(0, top) * log_q.index_select(0, top)).sum().item<double>();
        ++count;
      }
    }
    CHECK(count == (forward == 1 ? 6 + 11 : 6 + 10));
    expected += sum / (static_cast<double>(count) + 1e-5);
  }
  CHECK(loss(given).item<double>() == doctest::Approx(expected).epsilon(1e-4));
  CHECK(loss(rows.bitwise_not()).item<double>() == 0);
}

TEST_CASE("the loss of a head with a draft vocabulary is over its tokens alone, also in pieces") {
  for (const std::int64_t length : {12, 300}) {  // the latter in 7 pieces
    CAPTURE(length);
    Pair pair;
    auto config = Pair::config();
    const std::vector<std::int32_t> tokens{0, 2, 3, 7, 20, 21, 40, 49};
    CHECK_THROWS_AS(st::FeatureHead(config, tokens), std::invalid_argument);
    config.draft_vocab_size = 8;
    st::FeatureHead head(config, tokens);
    CHECK(head->parameters().size() == pair.head->parameters().size());
    st::copy_parameters(pair.head->parameters(), *head);
    head->borrow(pair.target->lm_head(), torch::kFloat32);
    CHECK(torch::equal(head->lm_head().weight[3], pair.target->lm_head().weight[7]));

    const st::HeadLossOptions options{.forwards = 2,
                                      .distillation = {.k = 3, .weight = 0.7, .cross_entropy_weight = 0.2},
                                      .noise = 0,
                                      .distance_weight = 0,
                                      .logits_at_once = 2 * 8 * 130};
    const auto rows = random_rows(3, length);
    const auto loss = [&](const Tensor& part) {
      return st::head_loss(head, pair.target, part, options, torch::kFloat32);
    };
    check_parts(loss, rows, *head);
    const auto inputs = rows.narrow(1, 0, length - 1);
    const auto features = pair.features(inputs);
    const auto predicted = pair.predict(inputs, features, 2);
    const auto index = torch::tensor(tokens).to(torch::kInt64);
    Tensor expected = torch::zeros({});
    for (std::int64_t forward = 0; forward < 2; ++forward) {
      const auto later = [&](const Tensor& x) {
        return x.narrow(1, forward, length - 1 - forward).flatten(0, 1);
      };
      const auto p = torch::softmax(pair.target->head(later(features)).index_select(1, index), -1);
      const auto log_q = torch::log_softmax(
          pair.target->head(later(predicted[static_cast<std::size_t>(forward)])).index_select(1, index), -1);
      const auto top = std::get<1>(p.topk(3));
      expected = expected - 0.2 * (p * log_q).sum(-1).mean() -
                 0.7 * (p.gather(1, top) * log_q.gather(1, top)).sum(-1).mean();
    }
    CHECK(loss(rows).item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-4));
  }
}

TEST_CASE("distance and noise are relative to the features' scale") {
  Pair pair;
  const auto rows = random_rows(4, 12);
  const auto features = pair.features(rows.narrow(1, 0, 11));
  const auto scale = st::feature_scale(pair.target, rows, torch::kFloat32);
  CHECK(scale == doctest::Approx(features.square().mean().sqrt().item<double>()));
  const auto distance = [&](double by, double noise) {
    const auto loss = [&](double weight) {
      return st::head_loss(pair.head, pair.target, rows,
                           {.forwards = 1,
                            .distillation = {},
                            .noise = noise,
                            .distance_weight = weight,
                            .feature_scale = by},
                           torch::kFloat32)
          .item<double>();
    };
    return loss(1) - loss(0);
  };
  torch::NoGradGuard no_grad;
  const auto predicted = pair.predict(rows.narrow(1, 0, 11), features, 1)[0];
  CHECK(distance(scale, 0) ==
        doctest::Approx(torch::smooth_l1_loss(predicted / scale, features / scale).item<double>())
            .epsilon(1e-3));
  const auto with_noise = [&](double by, double noise) {
    return st::head_loss(
               pair.head, pair.target, rows,
               {.forwards = 1, .distillation = {}, .noise = noise, .distance_weight = 0, .feature_scale = by},
               torch::kFloat32)
        .item<double>();
  };
  CHECK(with_noise(4, 0.05) == doctest::Approx(with_noise(1, 0.2)));
  CHECK(with_noise(4, 0.2) != doctest::Approx(with_noise(1, 0.2)));
}

TEST_CASE("noise is the same for the same rows") {
  Pair pair;
  const auto rows = random_rows(4, 12);
  const auto loss = [&](double noise, const Tensor& part) {
    return st::head_loss(pair.head, pair.target, part, {.forwards = 1, .distillation = {}, .noise = noise},
                         torch::kFloat32)
        .item<double>();
  };
  CHECK(loss(0.2, rows) == loss(0.2, rows));
  CHECK(loss(0.2, rows) != loss(0, rows));
}

TEST_CASE("a head in bfloat16 is close to that in float32") {
  Pair pair;
  const auto rows = random_rows(8, 33);
  const auto in = [&](torch::ScalarType dtype) {
    return st::head_loss(pair.head, pair.target, rows, {.forwards = 3, .distillation = {}, .noise = 0}, dtype)
        .item<double>();
  };
  CHECK(in(torch::kBFloat16) == doctest::Approx(in(torch::kFloat32)).epsilon(0.02));
}

TEST_CASE("forward passes are back-propagated separately") {
  // The gradient of the second forward's loss does not reach the first forward's output.
  Pair pair;
  const auto tokens = random_rows(1, 6);
  const auto predicted = pair.predict(tokens, pair.features(tokens), 2);
  const auto gradient = torch::autograd::grad({predicted[1].sum()}, {predicted[0]}, {}, c10::nullopt, false,
                                              /*allow_unused=*/true);
  CHECK_FALSE(gradient[0].defined());
}

TEST_CASE("a resumed training of a head continues identically") {
  check_resume([] {
    torch::manual_seed(5);
    const st::Llama target(tiny_target());
    st::FeatureHead head(Pair::config());
    head->borrow(target->lm_head(), torch::kFloat32);
    return Trainee{head.ptr(), [=](const Tensor& rows) mutable {
                     auto own_head = head;
                     auto own_target = target;
                     return st::head_loss(own_head, own_target, rows, {}, torch::kFloat32);
                   }};
  });
}

TEST_CASE("rows shorter than a round are refused") {
  Pair pair;
  const auto tokens = random_rows(1, 3);
  CHECK_THROWS_WITH_AS(pair.predict(tokens, pair.features(tokens), 4), doctest::Contains("at least 4"),
                       std::invalid_argument);
}
