// SPDX-License-Identifier: MIT
// The keys of config.json that say how attention and its angles are computed, of models and heads alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "specula/cpu/decoder_config.hpp"
#include "specula/files/json.hpp"
#include "specula/files/json_fields.hpp"

namespace specula::cpu::detail {

/// Throws std::runtime_error for what would make another model, with the way out.
[[noreturn]] inline void refuse(const files::JsonFields& config, std::string_view key,
                                const std::string& what) {
  config.fail(key, what + ": " + kAsGguf);
}
[[noreturn]] inline void refuse(const files::JsonFields& config, std::string_view key,
                                const std::string& what, const files::Json& found) {
  refuse(config, key, what + ", found " + files::detail::summary(found));
}

/// Angles of a part of each head would be another model.
inline void expect_whole_rotation(const files::JsonFields& config) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (config.number(kKey, 1) != 1) refuse(config, kKey, "is not supported, expected 1", *config.find(kKey));
}

/// The factor of cosines and sines under "yarn" (transformers, _compute_yarn_parameters).
inline double yarn_attention_factor(const files::JsonFields& rope) {
  if (rope.find("attention_factor")) return rope.number("attention_factor");
  const double factor = rope.number("factor"), own = rope.number("mscale", 0),
               all = rope.number("mscale_all_dim", 0);
  const auto scale = [&](double of) { return factor <= 1 ? 1 : 0.1 * of * std::log(factor) + 1; };
  return own != 0 && all != 0 ? scale(own) / scale(all) : scale(1);
}

/// Tokens that a model may see.
inline std::int32_t max_position(const files::JsonFields& config) {
  constexpr std::int32_t kDefault = 2048;  // LLaMA 1; files of its time have the older name
  return config.integer("max_position_embeddings", config.integer("max_sequence_length", kDefault));
}

inline void read_rope(const files::JsonFields& config, std::string_view key, AttentionShape& out) {
  if (!config.find(key)) return;
  const files::JsonFields rope = config.object(key);
  for (const auto& [part, value] : rope.json().items())
    if (value.is_object()) refuse(rope, part, "angles of their own for some layers are not supported");
  expect_whole_rotation(rope);
  out.rope_theta = rope.number("rope_theta", out.rope_theta);
  RopeScaling& scaling = out.rope_scaling = {};
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    scaling.type = RopeType::linear;
  } else if (type == "llama3") {
    scaling.type = RopeType::llama3;
    scaling.low_turns = rope.number("low_freq_factor");
    scaling.high_turns = rope.number("high_freq_factor");
  } else if (type == "yarn") {
    const auto turns = [&](const char* name, double absent) {  // 0 counts as absent in transformers
      const double given = rope.number(name, 0);
      return given != 0 ? given : absent;
    };
    scaling.type = RopeType::yarn;
    scaling.low_turns = turns("beta_slow", 1);
    scaling.high_turns = turns("beta_fast", 32);
    scaling.truncate = rope.flag("truncate", true);
    scaling.attention_factor = yarn_attention_factor(rope);
  } else {
    refuse(config, key,
           "rope_type '" + type + "' is not supported, expected 'default', 'linear', 'llama3' or 'yarn'");
  }
  scaling.factor = rope.number("factor");
  constexpr const char* kOriginal = "original_max_position_embeddings";  // one beside the object comes first
  if (type != "linear")  // absent, it is the length that the model has now
    scaling.original_max_position =
        (config.find(kOriginal) ? config : rope).number(kOriginal, max_position(config));
}

/// Reads the attention's keys, of a model or of a draft's 'target'.
inline void read_attention(const files::JsonFields& config, AttentionShape& out) {
  out.heads = config.integer("num_attention_heads");
  out.kv_heads = config.integer("num_key_value_heads", out.heads);
  out.rope_theta = config.number("rope_theta", 10000);
  read_rope(config, "rope_parameters", out);  // transformers 5
  read_rope(config, "rope_scaling", out);
}

}  // namespace specula::cpu::detail
