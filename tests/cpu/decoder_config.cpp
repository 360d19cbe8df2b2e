// SPDX-License-Identifier: MIT
// A decoder's sizes: which layers a draft reads, and that what is out of range or does not fit together is an
// error.
#include <specula/cpu/decoder_config.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <string>

using namespace specula::cpu;
using specula::Conditioning;

namespace {

DecoderConfig good() {
  DecoderConfig config;
  config.vocab_size = 9, config.hidden_size = 8, config.intermediate_size = 8, config.layers = 4;
  config.heads = 4, config.kv_heads = 2, config.head_dim = 4;
  return config;
}
DecoderConfig draft() {
  DecoderConfig config = good();
  config.conditioned_on = Conditioning::key_values;
  static_cast<AttentionShape&>(config.target) = good();
  config.target.layers = 6;
  return config;
}

std::string error(DecoderConfig config, void (*change)(DecoderConfig&)) {
  change(config);
  try {
    validate(config, "f");
  } catch (const std::runtime_error& thrown) {
    return thrown.what();
  }
  return "";
}

}  // namespace

TEST_CASE("sizes that are right; query heads share KV heads") {
  CHECK(error(good(), [](DecoderConfig&) {}).empty());
  CHECK(error(draft(), [](DecoderConfig&) {}).empty());
  CHECK(error(good(), [](DecoderConfig& c) { c.exits = {1, 4}; }).empty());
  CHECK(good().group() == 2);
}

TEST_CASE("a draft reads the target's last layers, unless it says which") {
  DecoderConfig config = draft();
  CHECK(config.target_layer(0) == 2);
  CHECK(config.target_layer(3) == 5);
  config.target.reads = {0, 0, 5, 1};
  CHECK(config.target_layer(2) == 5);
}

TEST_CASE("errors name the file, the key, the value and the range") {
  CHECK(error(good(), [](DecoderConfig& c) { c.layers = 0; }) ==
        "f: num_hidden_layers is 0, expected 1 to 16777216");
  CHECK(error(good(), [](DecoderConfig& c) { c.head_dim = 5; }) ==
        "f: head_dim is 5, expected an even number");
  CHECK(error(good(), [](DecoderConfig& c) { c.kv_heads = 3; }) ==
        "f: num_attention_heads 4 is no multiple of num_key_value_heads 3");
  CHECK(error(good(), [](DecoderConfig& c) { c.rope_theta = 0; }) ==
        "f: rope_theta is 0, expected a positive number");
  CHECK(error(good(), [](DecoderConfig& c) { c.rms_norm_eps = -1; }) ==
        "f: rms_norm_eps is -1, expected a finite number from 0 on");
  CHECK(error(good(), [](DecoderConfig& c) { c.rope_scaling.factor = -1; }).find("f: rope_scaling") == 0);
  CHECK(error(good(), [](DecoderConfig& c) {
          c.exits = {2, 2, 4};
        }) == "f: key 'exits': expected ascending numbers of layers, from 1 on");
  CHECK(error(good(), [](DecoderConfig& c) {
          c.exits = {1, 3};
        }) == "f: key 'exits': the last is 3, expected num_hidden_layers 4");
  CHECK(error(good(), [](DecoderConfig& c) { c.feature_layers = {1}; }) ==
        "f: key 'feature_layers': only a head on a target's features reads some");
}

TEST_CASE("errors in what a draft says of its target") {
  CHECK(error(draft(), [](DecoderConfig& c) { c.target.heads = 0; }) ==
        "f: key 'target': num_attention_heads is 0, expected 1 to 16777216");
  CHECK(error(draft(), [](DecoderConfig& c) { c.target.layers = 3; }) ==
        "f: key 'target': num_hidden_layers is 3, expected at least the draft's 4");
  CHECK(error(draft(), [](DecoderConfig& c) { c.target.reads = {1}; }) ==
        "f: key 'target': layers_read names 1 layers, expected one for each of the draft's 4");
  CHECK(error(draft(), [](DecoderConfig& c) {
          c.target.reads = {0, 1, 2, 6};
        }) == "f: key 'target': layers_read has 6, expected 0 to 5");
  CHECK(error(draft(), [](DecoderConfig& c) {
          c.exits = {1, 4};
        }) == "f: key 'exits': a draft that is conditioned on a target has none");
}

TEST_CASE("a draft vocabulary is a draft's, and its LM head its own") {
  CHECK(error(draft(), [](DecoderConfig& c) { c.draft_vocab_size = 3; }).empty());
  CHECK(error(draft(), [](DecoderConfig& c) { c.draft_vocab_size = 9; }).empty());
  CHECK(error(good(), [](DecoderConfig& c) { c.draft_vocab_size = 3, c.target_hidden_size = 5; }).empty());
  CHECK(error(good(), [](DecoderConfig& c) { c.target_hidden_size = 5; }).empty());
  CHECK(
      error(good(), [](DecoderConfig& c) { c.draft_vocab_size = 3; }) ==
      "f: key 'draft_vocab_size': a model that may be a target predicts all of its tokens; a draft that does "
      "not has the architecture SpeculaDraft, SpeculaGlide or SpeculaFeatureHead");
  CHECK(error(draft(), [](DecoderConfig& c) { c.draft_vocab_size = 10; }) ==
        "f: key 'draft_vocab_size': 10, expected 1 to vocab_size 9");
  CHECK(error(draft(), [](DecoderConfig& c) { c.draft_vocab_size = -1; }) ==
        "f: key 'draft_vocab_size': -1, expected 1 to vocab_size 9");
  CHECK(error(good(), [](DecoderConfig& c) { c.target_hidden_size = -1; }) ==
        "f: target_hidden_size is -1, expected 1 to 16777216");
  CHECK(error(good(), [](DecoderConfig& c) {
          c.conditioned_on = Conditioning::features, c.target_hidden_size = 8;
        }) == "f: key 'target_hidden_size': a head that reads features has its target's hidden_size");
  const std::string tied =
      "f: key 'tie_word_embeddings': with a draft vocabulary or its target's embedding a draft has an LM "
      "head "
      "of its own: expected false";
  CHECK(error(draft(), [](DecoderConfig& c) { c.draft_vocab_size = 3, c.tied_head = true; }) == tied);
  CHECK(error(good(), [](DecoderConfig& c) { c.target_hidden_size = 8, c.tied_head = true; }) == tied);
  CHECK(error(good(), [](DecoderConfig& c) {
          c.conditioned_on = Conditioning::features, c.draft_vocab_size = 3, c.tied_head = true;
        }).empty());

  DecoderConfig config = good();
  CHECK_FALSE((config.is_draft() || config.borrows_embedding()));
  CHECK(config.head_rows() == 9);
  config.conditioned_on = Conditioning::key_values;
  CHECK(config.is_draft());
  CHECK_FALSE(config.borrows_embedding());
  config.target_hidden_size = 8, config.draft_vocab_size = 3;
  CHECK((config.is_draft() && config.borrows_embedding()));
  CHECK(config.head_rows() == 3);
}

TEST_CASE("the target that a draft takes the embedding of") {
  const auto unfit = [](const DecoderConfig& config, void (*change)(DecoderConfig&)) -> std::string {
    DecoderConfig target = good();
    change(target);
    try {
      validate_target(config, target, "f");
    } catch (const std::runtime_error& thrown) {
      return thrown.what();
    }
    return "";
  };
  DecoderConfig projects = good(), head = good();
  projects.hidden_size = 4, projects.target_hidden_size = 8;
  head.conditioned_on = Conditioning::features, head.feature_layers = {1, 3};
  for (const DecoderConfig& config : {projects, head, good(), draft()})
    CHECK(unfit(config, [](DecoderConfig&) {}).empty());
  CHECK(unfit(good(), [](DecoderConfig& c) { c.hidden_size = 10, c.vocab_size = 10; }).empty());
  CHECK(unfit(projects, [](DecoderConfig& c) { c.hidden_size = 10; }) ==
        "f: target_hidden_size is 8, the target's hidden_size is 10: the draft is made for another target");
  CHECK(unfit(head, [](DecoderConfig& c) { c.hidden_size = 10; }) ==
        "f: hidden_size is 8, the target's is 10");
  for (const DecoderConfig& config : {projects, head}) {
    CHECK(unfit(config, [](DecoderConfig& c) { c.vocab_size = 10; }) ==
          "f: vocab_size is 9, the target's is 10");
    CHECK(unfit(config, [](DecoderConfig& c) { c.target_hidden_size = 6; }) ==
          "f: its target is a draft itself, expected a model with an embedding and an LM head");
  }
  CHECK(unfit(head, [](DecoderConfig& c) { c.layers = 3; }) ==
        "f: key 'feature_layers': expected numbers below the target's num_hidden_layers 3");
}
