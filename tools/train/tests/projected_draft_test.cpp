// SPDX-License-Identifier: MIT
// Drafts over their target's embedding, and draft vocabularies: inputs, losses, exports.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <specula/cpu/tensor_files.hpp>
#include <stdexcept>

#include "export.hpp"
#include "glide.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
using torch::Tensor;

namespace {

const std::vector<std::int32_t> kTokens{0, 2, 3, 7, 11, 12, 20, 31, 44, 49};

st::DecoderConfig projected(std::int64_t layers, bool some_tokens = true) {
  auto config = tiny_draft(layers);
  config.tied_head = false;
  config.target_hidden_size = tiny_target().hidden;
  if (some_tokens) config.draft_vocab_size = static_cast<std::int64_t>(kTokens.size());
  return config;
}

Tensor draft_tokens() { return torch::tensor(kTokens, torch::kInt64); }

struct Pair {
  explicit Pair(const st::DecoderConfig& config)
      : target(tiny_target()),
        draft(config, target->embedding(),
              config.draft_vocab_size != 0 ? kTokens : std::vector<std::int32_t>{}) {
    torch::manual_seed(4);
    enlarge(*target);
    enlarge(*draft);
    for (auto& parameter : target->parameters()) parameter.requires_grad_(false);
  }
  st::Llama target, draft;
};

/// Gives `plain`, with an embedding of its own and all tokens, the weights of a draft over `embedding`.
void unfold(const torch::nn::Module& draft, const Tensor& embedding, torch::nn::Module& plain) {
  torch::NoGradGuard no_grad;
  const auto from = draft.named_parameters();
  for (auto& item : plain.named_parameters()) {
    auto to = item.value();
    if (item.key() == "model.embed_tokens.weight")
      to.copy_(torch::linear(embedding, from["model.embed_projection.weight"]));
    else if (item.key() == "lm_head.weight")
      to.zero_().index_copy_(0, draft_tokens(), from[item.key()]);
    else
      to.copy_(from[item.key()]);
  }
}

st::DecoderConfig unfolded(st::DecoderConfig config) {
  config.target_hidden_size = config.draft_vocab_size = 0;
  return config;
}

/// Minus the mean of log q(token), over the tokens of rows[:, 1:] that are in the draft vocabulary and not
/// marked, from logits (B, T, D).
double direct_loss(const Tensor& logits, const Tensor& rows) {
  const auto log_q = torch::log_softmax(logits.to(torch::kFloat64), -1);
  double sum = 0;
  int count = 0;
  for (std::int64_t b = 0; b < rows.size(0); ++b)
    for (std::int64_t t = 0; t + 1 < rows.size(1); ++t)
      for (std::size_t d = 0; d < kTokens.size(); ++d)
        if (rows[b][t + 1].item<std::int64_t>() == kTokens[d]) {
          sum -= log_q[b][t][static_cast<std::int64_t>(d)].item<double>();
          ++count;
        }
  return sum / count;
}

}  // namespace

TEST_CASE("a draft over its target's embedding has a projection and an LM head of its tokens") {
  Pair pair(projected(2));
  const auto parameters = pair.draft->named_parameters();
  CHECK(parameters.size() == 1 + 2 * 9 + 1 + 1);
  CHECK((parameters["model.embed_projection.weight"].sizes() == torch::IntArrayRef{36, 32}));
  CHECK((parameters["lm_head.weight"].sizes() == torch::IntArrayRef{10, 36}));
  CHECK((pair.draft->head(torch::ones({3, 36})).sizes() == torch::IntArrayRef{3, 10}));
  CHECK(st::Llama(projected(1, false), pair.target->embedding())
            ->named_parameters()["lm_head.weight"]
            .size(0) == kVocab);
}

TEST_CASE("a projection begins with inputs as large as those of an embedding, whatever the target's are") {
  torch::manual_seed(3);
  for (const double scale : {1e-3, 1.0, 50.0}) {
    const auto embedding = torch::randn({kVocab, 32}) * scale;
    const auto input = st::add_token_input(*std::make_shared<torch::nn::Module>(), projected(1), embedding);
    const auto rows = input(torch::arange(kVocab), torch::kFloat32);
    CHECK(rows.square().mean().sqrt().item<double>() == doctest::Approx(0.02).epsilon(0.1));
  }
}

TEST_CASE("it is the decoder whose embedding is the target's times the projection") {
  Pair pair(projected(2));
  st::Llama plain(unfolded(projected(2)));
  unfold(*pair.draft, pair.target->embedding(), *plain);
  const auto tokens = random_rows(2, 9);
  const auto features = pair.draft->features(tokens, torch::kFloat32);
  CHECK(torch::allclose(features, plain->features(tokens, torch::kFloat32), 1e-4, 1e-5));
  CHECK(torch::allclose(pair.draft->head(features), plain->head(features).index_select(-1, draft_tokens()),
                        1e-4, 1e-5));

  const st::GlideConfig config{.draft = projected(2), .target = tiny_target(), .block = 5};
  st::Glide glide(config, pair.target->embedding(), kTokens),
      plain_glide(st::GlideConfig{.draft = unfolded(projected(2)), .target = tiny_target(), .block = 5});
  enlarge(*glide);
  unfold(*glide, pair.target->embedding(), *plain_glide);
  const auto view = pair.target->target_view(tokens, config.layers_read(), false, torch::kFloat32);
  CHECK(torch::allclose(glide->features(tokens, view.layers, torch::kFloat32),
                        plain_glide->features(tokens, view.layers, torch::kFloat32), 1e-4, 1e-5));
  CHECK(glide->head(features).size(-1) == 10);
}

TEST_CASE("the loss over a draft vocabulary is that of the tokens in it") {
  auto config = projected(3);
  config.exits = {1, 3};
  Pair pair(config);
  auto rows = random_rows(4, 14);
  rows.select(1, 3).fill_(7);
  rows.select(1, 4).fill_(8);
  rows.select(1, 1).bitwise_not_();  // given
  const auto exits = pair.draft->exit_features(st::unmark(rows).narrow(1, 0, 13), torch::kFloat32);
  const auto losses = st::exit_losses(pair.draft, rows, torch::kFloat32);
  REQUIRE(losses.size() == 2);
  for (std::size_t e = 0; e < 2; ++e)
    CHECK(losses[e].item<double>() ==
          doctest::Approx(direct_loss(pair.draft->head(exits[e]).detach(), rows)).epsilon(1e-5));
  CHECK(st::next_token_loss(pair.draft, rows, torch::kFloat32).item<double>() ==
        doctest::Approx((losses[0].item<double>() + losses[1].item<double>()) / 2));

  const auto before = pair.target->embedding().clone();
  st::Optimizer optimizer(*pair.draft, {});
  st::next_token_loss(pair.draft, rows, torch::kFloat32).backward();
  CHECK(pair.draft->named_parameters()["model.embed_projection.weight"].grad().abs().max().item<double>() >
        0);
  optimizer.step(1e-2);
  CHECK(torch::equal(pair.target->embedding(), before));

  const auto none = torch::full_like(rows, 8);  // nothing to learn, and still a gradient
  const auto loss = st::next_token_loss(pair.draft, none, torch::kFloat32);
  CHECK(loss.item<double>() == 0);
  for (const auto& gradient : torch::autograd::grad({loss}, pair.draft->parameters()))
    CHECK(gradient.abs().max().item<double>() == 0);
}

TEST_CASE("losses over a vocabulary so large that rows are in pieces") {
  torch::manual_seed(6);
  constexpr std::int64_t kLarge = 60000, kRows = 4, kLength = 100;
  const auto features = torch::randn({kRows, kLength, 4}).requires_grad_();
  const st::LmHead head{.weight = torch::randn({kLarge, 4}).requires_grad_(), .tokens = {}, .columns = {}};
  auto rows = torch::randint(0, kLarge, {kRows, kLength + 1}, torch::kInt64);
  rows.narrow(1, 0, 10).bitwise_not_();
  const auto logits = torch::linear(features, head.weight);
  const auto same = [&](const Tensor& loss, const Tensor& direct) {
    CHECK(loss.item<double>() == doctest::Approx(direct.item<double>()).epsilon(1e-5));
    const auto a = torch::autograd::grad({loss}, {features, head.weight}),
               b = torch::autograd::grad({direct}, {features, head.weight}, {}, /*retain_graph=*/true);
    // Gradients are up to some 1e-3; sums of 60,000 floats differ by the order that a processor adds them in.
    for (std::size_t i = 0; i < 2; ++i) CHECK(torch::allclose(a[i], b[i], 1e-3, 1e-6));
  };
  same(st::next_token_loss(features, rows, head),
       torch::nn::functional::cross_entropy(logits.narrow(1, 9, kLength - 9).flatten(0, 1),
                                            rows.narrow(1, 10, kLength - 9).flatten()));
  const auto of_target = torch::randn({kRows, kLength, 3}), target_head = torch::randn({kLarge, 3});
  same(st::distillation_loss({features}, head, of_target, target_head),
       -(torch::softmax(torch::linear(of_target, target_head), -1) * torch::log_softmax(logits, -1))
            .sum(-1)
            .mean());
  CHECK(torch::equal(st::likeliest_tokens(features, head), logits.argmax(-1)));
}

TEST_CASE("distillation: the target's distribution among the draft's tokens, at every exit and position") {
  auto config = projected(3);
  config.exits = {1, 2, 3};
  Pair pair(config);
  const auto rows = random_rows(4, 10);
  const auto head = st::rows_of_target_head(pair.target->lm_head(), pair.draft->lm_head(), torch::kFloat32);
  CHECK(torch::equal(head, pair.target->embedding().index_select(0, draft_tokens())));
  const auto loss = [&](const Tensor& part) {
    const auto tokens = st::unmark(part);
    return st::distillation_loss(pair.draft->exit_features(tokens, torch::kFloat32), pair.draft->lm_head(),
                                 pair.target->features(tokens, torch::kFloat32), head);
  };
  const auto exits = pair.draft->exit_features(rows, torch::kFloat32);
  const auto logits = pair.target->head(pair.target->features(rows, torch::kFloat32));
  const auto p = torch::softmax(logits.index_select(-1, draft_tokens()), -1);
  double direct = 0;
  for (const auto& exit : exits)
    direct -= (p * torch::log_softmax(pair.draft->head(exit), -1)).sum(-1).mean().item<double>() / 3;
  CHECK(loss(rows).item<double>() == doctest::Approx(direct).epsilon(1e-5));
  check_parts(loss, rows, *pair.draft);
}

TEST_CASE("the likeliest token of a draft is a token of the vocabulary") {
  Pair pair(projected(1));
  const auto features = pair.draft->features(random_rows(3, 8), torch::kFloat32);
  const auto likeliest = st::likeliest_tokens(features, pair.draft->lm_head());
  const auto at = pair.draft->head(features).argmax(-1);
  CHECK((likeliest.sizes() == torch::IntArrayRef{3, 8}));
  CHECK(torch::equal(likeliest.flatten(), draft_tokens().index_select(0, at.flatten())));
}

TEST_CASE("drafts that cannot be are refused") {
  const auto embedding = torch::ones({kVocab, 32});
  auto config = projected(1);
  CHECK_THROWS_WITH_AS((st::Llama{config}), doctest::Contains("expected the target's embedding, 50 x 32"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS((st::Llama{config, embedding, std::vector<std::int32_t>{0, 1}}),
                       doctest::Contains("2 tokens, expected 10"), std::invalid_argument);
  CHECK_THROWS_WITH_AS((st::Llama{tiny_draft(1), embedding}), doctest::Contains("embedding of its own"),
                       std::invalid_argument);
  auto tokens = kTokens;
  tokens[9] = 44;
  CHECK_THROWS_WITH_AS((st::Llama{config, embedding, tokens}), doctest::Contains("expected ascending"),
                       std::invalid_argument);
  tokens[9] = 50;
  CHECK_THROWS_WITH_AS((st::Llama{config, embedding, tokens}), doctest::Contains("below 50"),
                       std::invalid_argument);
  config.tied_head = true;
  CHECK_THROWS_WITH_AS((st::Llama{config, embedding, kTokens}), doctest::Contains("LM head of its own"),
                       std::invalid_argument);
  config = tiny_draft(1);
  config.draft_vocab_size = 10;
  CHECK_THROWS_WITH_AS((st::Llama{config, Tensor(), kTokens}), doctest::Contains("--untied"),
                       std::invalid_argument);
  config = projected(1);
  config.target_hidden_size = 33;
  CHECK_THROWS_WITH_AS((st::Glide{st::GlideConfig{.draft = config, .target = tiny_target()}}),
                       doctest::Contains("an embedding 33 wide: the target's is 32"), std::invalid_argument);
}

namespace {

struct Place {
  Place() { folder.write("t.model", "a tokenizer"); }
  nlohmann::json config() const {
    std::ifstream in(directory / "config.json");
    return nlohmann::json::parse(in);
  }
  Folder folder{"specula_train_projected_draft_test"};
  std::filesystem::path tokenizer = folder.path / "t.model", directory = folder.path / "export";
};

/// The weights of `written`, rounded to bfloat16, are those of `read`.
void check_same(const torch::nn::Module& written, const torch::nn::Module& read) {
  const auto of_read = read.named_parameters();
  REQUIRE(of_read.size() == written.named_parameters().size());
  for (const auto& item : written.named_parameters()) {
    CAPTURE(item.key());
    CHECK(torch::equal(of_read[item.key()], item.value().to(torch::kBFloat16).to(torch::kFloat32)));
  }
}

}  // namespace

TEST_CASE("the directory of a draft over its target's embedding, and a draft that starts from it") {
  const Place place;
  auto config = projected(3);
  config.exits = {1, 3};
  Pair pair(config);
  st::export_model(pair.draft, place.tokenizer, {.name = "draft", .progress = {}}, place.directory);
  const auto json = place.config();
  CHECK(json["architectures"][0] == "SpeculaDraft");
  CHECK(json["vocab_size"] == kVocab);
  CHECK(json["draft_vocab_size"] == 10);
  CHECK(json["target_hidden_size"] == 32);
  CHECK(json["tie_word_embeddings"] == false);
  specula::cpu::TensorFiles files(place.directory);
  CHECK(files.integers("draft_tokens", 10) == kTokens);
  CHECK_FALSE(files.contains("model.embed_tokens.weight"));
  CHECK_FALSE(files.contains("draft_columns"));

  const auto read = st::read_config(place.directory);
  CHECK(read.draft_vocab_size == 10);
  CHECK(read.target_hidden_size == 32);
  CHECK(read.exits == config.exits);
  st::Llama other(read, pair.target->embedding(), kTokens);
  st::load_weights(place.directory, *other);
  check_same(*pair.draft, *other);

  auto tokens = kTokens;
  tokens[9] = 48;
  st::Llama of_others(read, pair.target->embedding(), tokens);
  CHECK_THROWS_WITH_AS(st::load_weights(place.directory, *of_others),
                       doctest::Contains("predicts other tokens"), std::runtime_error);

  Pair all(projected(1, /*some_tokens=*/false));
  st::export_model(all.draft, place.tokenizer, {.name = "draft", .progress = {}}, place.directory);
  CHECK_FALSE(place.config().contains("draft_vocab_size"));
  CHECK(st::read_config(place.directory).target_hidden_size == 32);
}

TEST_CASE(
    "the directory of a GLIDE draft over its target's embedding; it starts from that, or from a plain "
    "draft") {
  const Place place;
  Pair pair(projected(2));
  const auto make = [&] {
    return st::Glide(st::GlideConfig{.draft = projected(2), .target = tiny_target()},
                     pair.target->embedding(), kTokens);
  };
  auto glide = make(), other = make(), from_plain = make();
  enlarge(*glide);
  st::export_glide(glide, place.tokenizer, {.name = "glide", .progress = {}}, place.directory);
  const auto json = place.config();
  CHECK(json["architectures"][0] == "SpeculaGlide");
  CHECK(json["target_hidden_size"] == 32);
  CHECK(json["draft_vocab_size"] == 10);
  CHECK(st::read_inference_config(place.directory).target_hidden_size == 32);
  st::load_weights(place.directory, *other);
  check_same(*glide, *other);

  st::export_model(pair.draft, place.tokenizer, {.name = "draft", .progress = {}}, place.directory);
  st::load_weights(place.directory, *pair.draft);  // rounded
  from_plain->silence_cross_attention();
  st::load_weights(place.directory, *from_plain, st::Surplus::refused,
                   {"model.layers.0.cross_attn.", "model.layers.1.cross_attn."});
  const auto rows = random_rows(2, 10);
  const auto tokens = rows.narrow(1, 0, 9);
  const auto view =
      pair.target->target_view(tokens, from_plain->config().layers_read(), true, torch::kFloat32);
  const auto features = from_plain->features(tokens, view.layers, torch::kFloat32);
  CHECK(torch::allclose(features, pair.draft->features(tokens, torch::kFloat32), 1e-4, 1e-5));
  const auto head = st::rows_of_target_head(pair.target->lm_head(), from_plain->lm_head(), torch::kFloat32);
  CHECK(st::glide_loss(from_plain, pair.target, rows, torch::kFloat32, head).item<double>() ==
        doctest::Approx(
            st::distillation_loss({features}, from_plain->lm_head(), view.features, head).item<double>()));
  CHECK(st::glide_loss(from_plain, pair.target, rows, torch::kFloat32).item<double>() ==
        doctest::Approx(st::next_token_loss(pair.draft, rows, torch::kFloat32).item<double>()).epsilon(1e-4));
}
