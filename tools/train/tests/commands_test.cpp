// SPDX-License-Identifier: MIT
// Commands of specula-train, run on tiny models.
#include "commands.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <specula/cpu/tensor_files.hpp>

#include "corpus.hpp"
#include "export.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"
#include "tokens.hpp"

using namespace specula_train_test;

namespace {

/// `length` tokens, each of [from, from + some) as often as others.
st::Document counting(st::Token from, st::Token some, std::size_t length) {
  st::Document tokens;
  for (std::size_t i = 0; i < length; ++i) tokens.push_back(from + static_cast<st::Token>(i) % some);
  return tokens;
}

void write_text(const std::filesystem::path& folder, st::Token from, st::Token some) {
  st::TokenizedStyle style{.name = "x", .train = {}, .heldout = {counting(from, some, 40)}};
  for (int i = 0; i < 8; ++i) style.train.push_back(counting(from, some, 40));
  st::write_tokens({.vocab_size = kVocab, .styles = {std::move(style)}}, folder);
}

void run(std::vector<std::string> arguments) {
  CLI::App app;
  st::add_head_command(app);
  st::add_model_commands(app);
  st::add_glide_command(app);
  arguments.insert(arguments.end(), {"--steps", "1", "--batch", "2", "--context", "12"});
  app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // it takes them from the end
}

std::vector<st::Token> tokens_of(const std::filesystem::path& folder) {
  return specula::cpu::TensorFiles(folder).integers(st::kDraftTokens,
                                                    st::read_inference_config(folder).draft_vocab_size);
}

}  // namespace

TEST_CASE("a draft that is trained on keeps its draft vocabulary, whatever is frequent in the new text") {
  const Folder folder("specula_train_commands_test");
  const auto at = [&](const std::string& name) { return (folder.path / name).string(); };
  folder.write("old/tokenizer.json", "{}");
  folder.write("new/tokenizer.json", "{}");
  write_text(folder.path / "old", 10, 6);
  write_text(folder.path / "new", 13, 9);
  torch::manual_seed(1);
  st::export_model(st::Llama(tiny_target()), folder.path / "old", {.name = "target"}, folder.path / "target");

  const std::vector<std::pair<std::string, std::vector<std::string>>> drafts{
      {"head", {}},
      {"model",
       {"--loss", "target", "--hidden", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1",
        "--intermediate", "16"}},
      {"glide", {"--hidden", "16"}}};
  for (const auto& [command, sizes] : drafts) {
    CAPTURE(command);
    const auto train = [&](const std::string& data, const std::string& output,
                           std::vector<std::string> more) {
      std::vector<std::string> arguments{command,    "--target", at("target"), "--data", at(data),
                                         "--output", at(output), "--name",     "x"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      run(std::move(arguments));
    };
    auto first = sizes;
    first.insert(first.end(), {"--draft-vocabulary", "6"});
    train("old", command + "1", first);
    const auto tokens = tokens_of(folder.path / (command + "1") / "export");
    CHECK(tokens.size() >= 6);
    CHECK(tokens.size() < 10);
    train("new", command + "2", {"--init", at(command + "1/export")});
    CHECK(tokens_of(folder.path / (command + "2") / "export") == tokens);
  }
}
