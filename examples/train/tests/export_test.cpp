// What is written can be read: by the library, and by this program again.
#include "export.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <specula/eigen/llama_config.hpp>
#include <stdexcept>

#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
namespace eigen = specula::eigen;

namespace {

eigen::LlamaConfig read(const std::filesystem::path& directory) {
  const auto file = directory / "config.json";
  return eigen::read_llama_config(eigen::read_json_file(file), file.string());
}

std::string text(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The file's weights are the model's, rounded to bfloat16.
void check_weights(const std::filesystem::path& directory, torch::nn::Module& written,
                   torch::nn::Module& other) {
  st::load_safetensors(directory / "model.safetensors", other);
  for (std::size_t i = 0; i < written.parameters().size(); ++i) {
    CHECK(torch::equal(other.parameters()[i],
                       written.parameters()[i].to(torch::kBFloat16).to(torch::kFloat32)));
  }
}

struct Place {
  Place() { std::ofstream(tokenizer) << "a tokenizer"; }
  Folder folder{"specula_train_export_test"};
  std::filesystem::path tokenizer = folder.path / "t.model", directory = folder.path / "export";
};

}  // namespace

TEST_CASE("a decoder's directory") {
  const Place place;
  st::Llama model(tiny_target()), other(tiny_target());
  st::export_model(model, place.tokenizer,
                   {.name = "target", .recipe = "r", .progress = {.finished = true, .heldout = {}}},
                   place.directory);
  const auto config = st::read_config(place.directory);
  CHECK(config.layers == 3);
  CHECK(config.hidden == 32);
  CHECK(config.kv_heads == 2);
  CHECK(config.intermediate == 48);
  CHECK(config.vocab_size == kVocab);
  CHECK(text(place.directory / "tokenizer.model") == "a tokenizer");
  check_weights(place.directory, *model, *other);
}

TEST_CASE("a GLIDE draft's directory") {
  const Place place;
  const st::GlideConfig config{.draft = tiny_draft(2), .target = tiny_target(), .block = 5};
  st::Glide draft(config), other(config);
  st::export_glide(draft, place.tokenizer,
                   {.name = "glide",
                    .recipe = "the recipe",
                    .answers = true,
                    .progress = {.steps = 7, .heldout = {{"gsm8k step 2 agrees", 0.25}}}},
                   place.directory);
  const auto read_back = read(place.directory);
  CHECK((read_back.looks_at == eigen::LooksAt::key_values));
  CHECK(read_back.layers == 2);
  CHECK(read_back.hidden_size == 36);
  CHECK(read_back.heads == 6);
  CHECK(read_back.tied_head);
  CHECK(read_back.target.layers == 3);
  CHECK(read_back.target.heads == 4);
  CHECK(read_back.target.kv_heads == 2);
  CHECK(read_back.target.head_dim == 8);
  CHECK(read_back.target.rope_theta == 10000);
  check_weights(place.directory, *draft, *other);
  const auto card = text(place.directory / "MODEL_CARD.md");
  for (const std::string part : {"the recipe", "7 steps", "gsm8k step 2 agrees | 0.2500", "not finished",
                                 "4 query heads of 8 in each layer, over the target's last 2 layers",
                                 "own text after prompts from these"}) {
    CAPTURE(part);
    CHECK(card.find(part) != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(st::read_config(place.directory), doctest::Contains("expected a plain decoder"),
                       std::runtime_error);
}

TEST_CASE("a feature head's directory") {
  const Place place;
  const auto config = st::head_config(tiny_target());
  st::FeatureHead head(config), other(config);
  st::export_feature_head(head, place.tokenizer, {.name = "head", .recipe = "r", .progress = {}},
                          place.directory);
  const auto read_back = read(place.directory);
  CHECK((read_back.looks_at == eigen::LooksAt::features));
  CHECK(read_back.layers == 1);
  CHECK(read_back.hidden_size == 32);
  check_weights(place.directory, *head, *other);
}
