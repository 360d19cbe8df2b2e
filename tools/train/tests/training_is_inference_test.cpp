// SPDX-License-Identifier: MIT
// Training equals inference: the logits of training rows are those of a round on specula's CPU model with the
// exported weights, for every draft step.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <specula/cpu/decoder.hpp>
#include <vector>

#include "export.hpp"
#include "feature_head.hpp"
#include "glide.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
using torch::Tensor;

namespace {

using Runner = specula::cpu::Decoder<double>;
using Weights = specula::cpu::DecoderWeights<double>;

constexpr std::int64_t kLength = 23;

struct Export {
  Export() { std::ofstream(tokenizer) << "a tokenizer"; }
  /// Afterwards the module has the file's weights: rounded to bfloat16, stored as float32.
  void reload(torch::nn::Module& module) const { st::load_weights(directory, module); }
  std::shared_ptr<const Weights> load(std::shared_ptr<const Weights> target = {}) const {
    return std::make_shared<const Weights>(
        specula::cpu::load_decoder_weights<double>(directory, std::move(target)));
  }
  Folder folder{"specula_train_inference_test"};
  std::filesystem::path tokenizer = folder.path / "t.model", directory = folder.path / "export";
};

/// A random target for training and for inference, both from the same directory. Rounded to
/// bfloat16; in `shards` files if that is not 0.
struct Target {
  Target(const st::DecoderConfig& config, std::size_t shards) {
    st::Llama made(config);
    enlarge(*made);
    const Export files;
    st::export_model(made, files.tokenizer, {}, files.directory);
    if (shards > 0) shard(files.directory, shards);
    model = st::Llama(st::read_config(files.directory));
    files.reload(*model);
    weights = files.load();
  }
  st::Llama model{nullptr};
  std::shared_ptr<const Weights> weights;
};

std::vector<specula::Token> list(const Tensor& tokens) {
  std::vector<specula::Token> list;
  for (std::int64_t i = 0; i < tokens.numel(); ++i) list.push_back(tokens[i].item<specula::Token>());
  return list;
}

/// A round whose root is at `root`: the logits of its steps (steps, V), each fed the token that follows.
template <class See>
Tensor run_round(Runner& target, Runner& draft, const std::vector<specula::Token>& tokens, std::size_t root,
                 std::size_t steps, See see) {
  const auto context = std::span(tokens).first(root);
  target.truncate(0);
  target.append(context);
  draft.truncate(0);
  draft.set_target_state(see(target));
  draft.append(context);
  std::vector<Tensor> rows;
  for (std::size_t step = 0; step < steps; ++step) {
    const specula::NodeId parent = step == 0 ? specula::kNoParent : static_cast<specula::NodeId>(step) - 1;
    draft.extend(std::span(tokens).subspan(root + step, 1), std::span(&parent, 1));
    std::vector<double> logits(draft.logits(0).begin(), draft.logits(0).end());
    rows.push_back(torch::tensor(logits, torch::kFloat64).to(torch::kFloat32));
  }
  return torch::stack(rows);
}

const std::vector<std::int32_t> kDraftTokens{0, 3, 4, 18, 29, 41, 49};

/// Logits (..., D) of a draft vocabulary as a runner gives them: minus infinity for other tokens.
Tensor spread(const Tensor& logits) {
  auto shape = logits.sizes().vec();
  shape.back() = kVocab;
  return torch::full(shape, -std::numeric_limits<float>::infinity())
      .index_copy_(-1, torch::tensor(kDraftTokens, torch::kInt64), logits);
}

/// A draft over the embedding of a target of this width, with that draft vocabulary.
st::DecoderConfig projected_draft(std::int64_t layers, std::int64_t target_hidden) {
  auto config = tiny_draft(layers);
  config.tied_head = false;
  config.target_hidden_size = target_hidden;
  config.draft_vocab_size = static_cast<std::int64_t>(kDraftTokens.size());
  return config;
}

bool same(const Tensor& a, const Tensor& b) { return torch::allclose(a, b, 1e-4, 1e-4); }

}  // namespace

TEST_CASE("a plain decoder: training logits equal inference logits") {
  for (const auto& config : {tiny_target(), other_target(), qwen2_target(), qwen3_target()}) {
    CAPTURE(config.tied_head);
    torch::manual_seed(6);
    st::Llama model(config);
    enlarge(*model);
    st::Optimizer optimizer(*model, {});
    for (int step = 0; step < 2; ++step) {
      model->zero_grad();
      st::next_token_loss(model, random_rows(4, 14), torch::kFloat32).backward();
      optimizer.step(1e-2);
    }
    torch::NoGradGuard no_grad;
    const Export files;
    st::export_model(model, files.tokenizer, {}, files.directory);
    files.reload(*model);
    const auto tokens = random_rows(1, kLength);
    const auto trained = model->head(model->features(tokens, torch::kFloat32))[0];
    const auto text = list(tokens[0]);
    Runner runner(files.load());
    for (std::int64_t t = 0; t < kLength; ++t) {
      const specula::NodeId root = specula::kNoParent;
      runner.extend(std::span(text).subspan(static_cast<std::size_t>(t), 1), std::span(&root, 1));
      std::vector<double> logits(runner.logits(0).begin(), runner.logits(0).end());
      CHECK(same(torch::tensor(logits, torch::kFloat64).to(torch::kFloat32), trained[t]));
      const specula::NodeId first = 0;
      runner.commit(std::span(&first, 1));
    }

    // No difference from a plain Llama is lost in the export.
    auto plain = config;
    plain.rope_scaling = {};
    st::Llama unscaled(plain);
    files.reload(*unscaled);
    const auto others = unscaled->head(unscaled->features(tokens, torch::kFloat32))[0];
    CHECK(same(others, trained) == (config.rope_scaling.type == specula::cpu::RopeType::none));
  }
}

TEST_CASE("a plain draft over its target's embedding: training logits equal inference logits at every exit") {
  for (const auto& of_target : {tiny_target(), other_target()}) {
    torch::NoGradGuard no_grad;
    torch::manual_seed(8);
    Target target(of_target, 0);
    auto config = projected_draft(3, of_target.hidden);
    config.exits = {1, 3};
    st::Llama draft(config, target.model->embedding(), kDraftTokens);
    enlarge(*draft);
    const Export files;
    st::export_model(draft, files.tokenizer, {}, files.directory);
    files.reload(*draft);
    const auto tokens = random_rows(1, kLength);
    const auto exits = draft->exit_features(tokens, torch::kFloat32);
    const auto text = list(tokens[0]);
    Runner runner(files.load(target.weights));
    REQUIRE(runner.exits() == 2);
    const auto check = [&](std::span<const float> logits, std::size_t exit, std::int64_t t) {
      CHECK(same(torch::tensor(std::vector<float>(logits.begin(), logits.end())),
                 spread(draft->head(exits[exit][0][t]))));
    };
    for (std::int64_t t = 0; t < kLength; ++t) {
      const specula::NodeId root = specula::kNoParent;
      const std::int32_t row = 0;
      check(runner.extend_to_exit(std::span(text).subspan(static_cast<std::size_t>(t), 1), {&root, 1}, 0)
                .row(0),
            0, t);
      check(runner.resume_to_exit({&row, 1}, 1).row(0), 1, t);
      const specula::NodeId first = 0;
      runner.commit(std::span(&first, 1));
    }
  }
}

TEST_CASE("GLIDE: a round from a block's first token has the training logits") {
  torch::NoGradGuard no_grad;
  struct Case {
    const char* name;
    st::DecoderConfig target;
    std::int64_t layers;
    std::vector<std::int64_t> reads;
    std::size_t shards;
    bool tied;
    bool projected = false;
  };
  for (const Case& c :
       {Case{"one layer", tiny_target(), 1, {}, 0, true}, Case{"two layers", tiny_target(), 2, {}, 0, true},
        Case{"another's Llama", other_target(), 1, {}, 3, true},
        Case{"another's, its layers chosen, a head of its own", other_target(), 2, {2, 0}, 3, false},
        Case{"Qwen3", qwen3_target(), 1, {}, 0, true},
        Case{"the lowest layer", tiny_target(), 1, {0}, 0, true},
        Case{"over the target's embedding", other_target(), 2, {}, 0, false, true}}) {
    CAPTURE(c.name);
    torch::manual_seed(c.layers);
    Target target(c.target, c.shards);
    auto draft_config = tiny_draft(c.layers);
    draft_config.tied_head = c.tied;
    if (c.projected) draft_config = projected_draft(c.layers, target.model->config().hidden);
    st::Glide draft(
        st::GlideConfig{
            .draft = draft_config, .target = target.model->config(), .block = 5, .target_layers = c.reads},
        c.projected ? target.model->embedding() : Tensor(),
        c.projected ? kDraftTokens : std::vector<std::int32_t>{});
    enlarge(*draft);
    const Export files;
    st::export_glide(draft, files.tokenizer, {}, files.directory);
    files.reload(*draft);

    const auto tokens = random_rows(1, kLength);
    const auto view =
        target.model->target_view(tokens, draft->config().layers_read(), false, torch::kFloat32);
    auto trained = draft->head(draft->features(tokens, view.layers, torch::kFloat32))[0];
    if (c.projected) trained = spread(trained);

    Runner target_runner(target.weights), draft_runner(files.load(target.weights));
    const auto run = [&](std::int64_t root, std::int64_t steps) {
      return run_round(target_runner, draft_runner, list(tokens[0]), static_cast<std::size_t>(root),
                       static_cast<std::size_t>(steps), [](Runner& runner) { return runner.key_values(); });
    };
    for (std::int64_t root = 0; root < 5; ++root) {  // in the first block every token is a root
      CAPTURE(root);
      CHECK(same(run(root, 1), trained.narrow(0, root, 1)));
    }
    for (std::int64_t root = 5; root < kLength; root += 5) {
      CAPTURE(root);
      const auto steps = std::min<std::int64_t>(5, kLength - root);
      const auto logits = run(root, steps);
      for (std::int64_t step = 0; step < steps; ++step) {
        CAPTURE(step);
        CHECK(same(logits[step], trained[root + step]));
      }
    }
    // A round from elsewhere differs: its first step sees more of the target.
    CHECK_FALSE(same(run(12, 1), trained.narrow(0, 12, 1)));
  }
}

TEST_CASE("a feature head: every round has the logits of training's forward passes") {
  torch::NoGradGuard no_grad;
  struct Case {
    st::DecoderConfig target;
    std::vector<std::int64_t> feature_layers;
    bool reduced = false;
  };
  for (const auto& [trained_for, feature_layers, reduced] :
       {Case{tiny_target(), {}}, Case{other_target(), {}}, Case{other_target(), {1, 2}},
        Case{qwen3_target(), {1}}, Case{tiny_target(), {}, true}, Case{other_target(), {1}, true}}) {
    CAPTURE(reduced);
    const bool others = !trained_for.tied_head;
    CAPTURE(others);
    CAPTURE(feature_layers.size());
    torch::manual_seed(3);
    Target target(trained_for, others ? 3 : 0);
    auto config = st::head_config(target.model->config(), feature_layers);
    config.heads = 8;
    config.kv_heads = 4;
    config.intermediate = 40;
    if (reduced) config.draft_vocab_size = static_cast<std::int64_t>(kDraftTokens.size());
    st::FeatureHead head(config, reduced ? kDraftTokens : std::vector<std::int32_t>{});
    enlarge(*head);
    const Export files;
    st::export_feature_head(head, files.tokenizer, {}, files.directory);
    files.reload(*head);
    head->borrow(target.model->lm_head(), torch::kFloat32);
    const auto logits_of = [&, &some = reduced](const Tensor& features) {
      const auto logits = torch::linear(features, head->lm_head().weight);
      return some ? spread(logits) : logits;
    };

    const auto tokens = random_rows(1, kLength);
    const auto states = target.model->states(tokens, feature_layers, torch::kFloat32).all;
    const auto predicted =
        head->predict(torch::embedding(target.model->embedding(), tokens), states, 4, torch::kFloat32);

    Runner head_runner(files.load(target.weights));
    Runner target_runner(target.weights, {.feature_layers = head_runner.config().feature_layers});
    for (std::int64_t root = 0; root < kLength; ++root) {
      CAPTURE(root);
      const auto steps = std::min<std::int64_t>(4, kLength - root);
      const auto logits =
          run_round(target_runner, head_runner, list(tokens[0]), static_cast<std::size_t>(root),
                    static_cast<std::size_t>(steps), [](Runner& runner) { return runner.features(); });
      for (std::int64_t step = 0; step < steps; ++step) {
        CAPTURE(step);
        const auto at = static_cast<std::size_t>(step);
        CHECK(same(logits[step], logits_of(predicted[at][0][root + step])));
        if (step == 0) continue;  // and the steps differ
        CHECK_FALSE(same(logits[step], logits_of(predicted[at - 1][0][root + step])));
      }
    }
  }
}
