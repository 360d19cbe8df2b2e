// What a drafter sees at step j of a round when it is trained is what it sees there when it drafts: the
// logits of the training's rows are those of a round that is run, with the exported weights, on specula's own
// CPU model.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <specula/eigen/llama.hpp>
#include <vector>

#include "export.hpp"
#include "feature_head.hpp"
#include "glide.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
using torch::Tensor;

namespace {

using Runner = specula::eigen::Llama<double>;
using Weights = specula::eigen::LlamaWeights<double>;

constexpr std::int64_t kLength = 23;

struct Export {
  Export() { std::ofstream(tokenizer) << "a tokenizer"; }
  /// Afterwards the module has the weights of the file: bfloat16, in float32.
  void reload(torch::nn::Module& module) const {
    st::load_safetensors(directory / "model.safetensors", module);
  }
  std::shared_ptr<const Weights> load(std::shared_ptr<const Weights> target = {}) const {
    return std::make_shared<const Weights>(
        specula::eigen::load_llama_weights<double>(directory, std::move(target)));
  }
  Folder folder{"specula_train_inference_test"};
  std::filesystem::path tokenizer = folder.path / "t.model", directory = folder.path / "export";
};

std::shared_ptr<const Weights> put(st::Llama& target) {
  const Export files;
  st::export_model(target, files.tokenizer, {}, files.directory);
  files.reload(*target);
  return files.load();
}

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
  draft.look_into(see(target));
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

bool same(const Tensor& a, const Tensor& b) { return torch::allclose(a, b, 1e-4, 1e-4); }

}  // namespace

TEST_CASE("GLIDE: a round from a block's first token sees what training saw") {
  torch::NoGradGuard no_grad;
  for (const std::int64_t layers : {1, 2}) {
    CAPTURE(layers);
    torch::manual_seed(layers);
    st::Llama target(tiny_target());
    enlarge(*target);
    const auto target_weights = put(target);
    st::Glide draft(st::GlideConfig{.draft = tiny_draft(layers), .target = tiny_target(), .block = 5});
    enlarge(*draft);
    const Export files;
    st::export_glide(draft, files.tokenizer, {}, files.directory);
    files.reload(*draft);

    const auto tokens = random_rows(1, kLength);
    const auto view = target->look_inside(tokens, layers, false, torch::kFloat32);
    const auto trained = draft->head(draft->features(tokens, view.layers, torch::kFloat32))[0];

    Runner target_runner(target_weights), draft_runner(files.load());
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
    // So a round from elsewhere is another: at its first step it sees more of the target.
    CHECK_FALSE(same(run(12, 1), trained.narrow(0, 12, 1)));
  }
}

TEST_CASE("a feature head: every round sees what its training's forwards saw") {
  torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  st::Llama target(tiny_target());
  enlarge(*target);
  const auto target_weights = put(target);
  auto config = st::head_config(tiny_target());
  config.heads = 8;
  config.kv_heads = 4;
  config.intermediate = 40;
  st::FeatureHead head(config);
  enlarge(*head);
  const Export files;
  st::export_feature_head(head, files.tokenizer, {}, files.directory);
  files.reload(*head);

  const auto tokens = random_rows(1, kLength);
  const auto features = target->look_inside(tokens, 0, true, torch::kFloat32).features;
  const auto predicted =
      head->predict(torch::embedding(target->embedding(), tokens), features, 4, torch::kFloat32);

  Runner target_runner(target_weights), head_runner(files.load(target_weights));
  for (std::int64_t root = 0; root < kLength; ++root) {
    CAPTURE(root);
    const auto steps = std::min<std::int64_t>(4, kLength - root);
    const auto logits =
        run_round(target_runner, head_runner, list(tokens[0]), static_cast<std::size_t>(root),
                  static_cast<std::size_t>(steps), [](Runner& runner) { return runner.features(); });
    for (std::int64_t step = 0; step < steps; ++step) {
      CAPTURE(step);
      const auto trained = target->head(predicted[static_cast<std::size_t>(step)][0][root + step]);
      CHECK(same(logits[step], trained));
      if (step == 0) continue;  // and the steps differ
      const auto unaligned = target->head(predicted[static_cast<std::size_t>(step) - 1][0][root + step]);
      CHECK_FALSE(same(logits[step], unaligned));
    }
  }
}
