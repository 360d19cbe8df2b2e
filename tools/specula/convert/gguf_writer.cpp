// SPDX-License-Identifier: MIT
#include "gguf_writer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cpu/detail/rope_table.hpp>
#include <specula/cpu/int8_groups.hpp>
#include <specula/cpu/read_model_config.hpp>
#include <specula/cpu/tensor_files.hpp>
#include <specula/files/gguf_blocks.hpp>
#include <specula/files/gguf_names.hpp>

#include "chat_templates.hpp"
#include "errors.hpp"
#include "files.hpp"
#include "folder_vocabulary.hpp"
#include "ggml_expand.hpp"
#include "gguf_container.hpp"
#include "gguf_rounding.hpp"

namespace specula_tools {
namespace {

using specula::Token;
using specula::cpu::DecoderConfig;
using specula::cpu::Int8Groups;
using specula::files::GgufId;

/// The type of matrices whose rows are not whole blocks, and of those that `automatic` does not store at 8
/// bits.
GgufId without_blocks(GgufType type) {
  return type == GgufType::f32 ? GgufId::f32 : type == GgufType::f16 ? GgufId::f16 : GgufId::bf16;
}

GgufId in_blocks(GgufType type) {
  switch (type) {
    case GgufType::q8_0:
      return GgufId::q8_0;
    case GgufType::q5_1:
      return GgufId::q5_1;
    case GgufType::q5_0:
      return GgufId::q5_0;
    case GgufType::q4_1:
      return GgufId::q4_1;
    case GgufType::q4_0:
      return GgufId::q4_0;
    default:
      return without_blocks(type);
  }
}

/// The file under construction, filled with a model's tensors.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& model)
      : source_(model.string()), files_(model, ggml_expand()) {}

  GgufContainer& file() { return file_; }

  void vector(const std::string& name, std::span<const float> values) {
    add(name, GgufId::f32, {static_cast<std::int64_t>(values.size())}, values);
  }
  /// Elements, as rows below, of `heads` heads, if not 0, are reordered.
  void vector(const std::string& name, std::int64_t size, std::int32_t heads = 0) {
    const auto read = numbers(name, {size});
    std::vector<float> values(read.size());
    for (std::int64_t i = 0; i < size; ++i)
      values[static_cast<std::size_t>(i)] =
          read[static_cast<std::size_t>(heads ? source_row(i, size / heads) : i)];
    vector(name, values);
  }
  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, GgufType stored,
              std::int32_t heads = 0) {
    const auto read = numbers(name, {rows, cols});
    const bool exact =
        files_.find(specula::files::hugging_face_name(name)).dtype == specula::files::Dtype::i8;
    const bool whole = cols % static_cast<std::int64_t>(Int8Groups::kSize) == 0;
    GgufId type = whole ? in_blocks(stored) : without_blocks(stored);
    if (whole && exact && stored == GgufType::automatic) type = GgufId::q8_0;
    in_blocks_ += specula::files::find_gguf_type(static_cast<std::uint32_t>(type))->block > 1;
    if (heads == 0 && !(type == GgufId::q8_0 && exact)) return add(name, type, {rows, cols}, read);
    std::string bytes;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row =
          std::span(read).subspan(static_cast<std::size_t>((heads ? source_row(r, rows / heads) : r) * cols),
                                  static_cast<std::size_t>(cols));
      if (type == GgufId::q8_0 && exact)
        append_groups(row, bytes);
      else
        append(name, type, row, bytes);
    }
    file_.add(name, static_cast<std::uint32_t>(type), {rows, cols}, bytes);
  }
  /// Matrices that are stored in blocks so far.
  std::int32_t blocks() const { return in_blocks_; }

 private:
  static_assert(Int8Groups::kSize == 32, "as the blocks of GGUF");

  /// Blocks of a half float, the scale, and 32 whole numbers: weights at 8 bits without loss.
  static void append_groups(std::span<const float> row, std::string& out) {
    std::vector<std::int8_t> numbers(row.size()), exponents(Int8Groups::count(row.size()));
    specula::cpu::round_to_groups(row, numbers, exponents);
    for (std::size_t g = 0; g < exponents.size(); ++g) {
      detail::append_half(std::ldexp(1.0f, exponents[g]), out);
      out.append(reinterpret_cast<const char*>(numbers.data()) + g * Int8Groups::kSize, Int8Groups::kSize);
    }
  }

  /// Hugging Face rotates element i of a head with element i + half, llama.cpp adjacent elements.
  static std::int64_t source_row(std::int64_t row, std::int64_t head_dim) {
    const std::int64_t head = row / head_dim, i = row % head_dim;
    return head * head_dim + i % 2 * (head_dim / 2) + i / 2;
  }

  /// Of the tensor that GGUF calls `name`, in the order of a Hugging Face folder.
  std::vector<float> numbers(const std::string& name, std::initializer_list<std::int64_t> shape) {
    const auto& info =
        files_.weight(specula::files::hugging_face_name(name), std::span(shape.begin(), shape.size()));
    std::vector<float> values;
    files_.rows(info, [&](std::int64_t, std::span<const float> row) {
      values.insert(values.end(), row.begin(), row.end());
    });
    return values;
  }
  void append(const std::string& name, GgufId type, std::span<const float> values, std::string& bytes) const {
    try {
      append_rounded(type, values, bytes);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(source_ + ": tensor '" + specula::files::hugging_face_name(name) +
                               "': " + error.what());
    }
  }
  void add(const std::string& name, GgufId type, const std::vector<std::int64_t>& shape,
           std::span<const float> values) {
    std::string bytes;
    append(name, type, values, bytes);
    file_.add(name, static_cast<std::uint32_t>(type), shape, bytes);
  }

  std::string source_;
  specula::cpu::TensorFiles files_;
  GgufContainer file_;
  std::int32_t in_blocks_ = 0;
};

/// llama.cpp's architecture for a model. Its "llama" has all that we read but norms of queries and keys;
/// files of Qwen2 are written as others write them.
std::string architecture_of(const DecoderConfig& config) {
  if (config.query_key_norms) return "qwen3";
  const bool qwen2 =
      config.qkv_bias && !config.output_bias && config.heads * config.head_dim == config.hidden_size;
  return qwen2 ? "qwen2" : "llama";
}

/// Whether scaling is written as the divisor of each frequency, since there are no keys for it.
bool has_rope_factors(const specula::cpu::RopeScaling& scaling) {
  using specula::cpu::RopeType;
  return scaling.type == RopeType::llama3 ||
         (scaling.type == RopeType::yarn &&
          !(scaling.low_turns == 1 && scaling.high_turns == 32 && scaling.truncate));
}

/// Throws std::runtime_error, "<source>: ...", for what `architecture` has no place for in libllama.
void check_parts(const DecoderConfig& config, const std::string& architecture, const std::string& source) {
  if (architecture == "llama") return;
  const std::string what = source + ": a GGUF file of architecture '" + architecture + "' has no place for ";
  if (config.output_bias)
    throw std::runtime_error(what + "a bias of the attention's output (attention_bias)");
  if (has_rope_factors(config.rope_scaling))
    throw std::runtime_error(what +
                             "rope_scaling of type llama3, nor of type yarn with other betas than 32 and 1");
}

void write_sizes(GgufContainer& file, const DecoderConfig& config, const std::string& architecture) {
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto set = [&](const char* name, std::int32_t value) {
    file.set(key(name), static_cast<std::uint32_t>(value));
  };
  const auto set_number = [&](const char* name, double value) {
    file.set(key(name), static_cast<float>(value));
  };
  file.set("general.architecture", architecture);
  set("vocab_size", config.vocab_size);
  set("context_length", config.max_position > 0 ? config.max_position : 2048);
  set("embedding_length", config.hidden_size);
  set("block_count", config.layers);
  set("feed_forward_length", config.intermediate_size);
  set("attention.head_count", config.heads);
  set("attention.head_count_kv", config.kv_heads);
  set("attention.key_length", config.head_dim);
  set("attention.value_length", config.head_dim);
  set("rope.dimension_count", config.head_dim);
  set_number("rope.freq_base", config.rope_theta);
  set_number("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  const specula::cpu::RopeScaling& scaling = config.rope_scaling;
  double attention_factor = scaling.attention_factor;
  if (scaling.type != specula::cpu::RopeType::none && !has_rope_factors(scaling)) {
    const bool yarn = scaling.type == specula::cpu::RopeType::yarn;
    file.set(key("rope.scaling.type"), yarn ? "yarn" : "linear");
    set_number("rope.scaling.factor", scaling.factor);
    if (yarn) {
      set("rope.scaling.original_context_length", static_cast<std::int32_t>(scaling.original_max_position));
      if (scaling.factor > 1) attention_factor /= 1 + 0.1 * std::log(scaling.factor);  // libllama multiplies
    }
  }
  if (std::abs(attention_factor - 1) > 1e-9) set_number("rope.scaling.attn_factor", attention_factor);
}

/// The divisors of the frequencies in llama.cpp.
std::vector<float> rope_factors(const DecoderConfig& config) {
  specula::cpu::AttentionShape plain = config;
  plain.rope_scaling = {};
  std::vector<float> out;
  for (std::int32_t pair = 0; pair < config.head_dim / 2; ++pair)
    out.push_back(static_cast<float>(specula::cpu::detail::rope_frequency(plain, pair) /
                                     specula::cpu::detail::rope_frequency(config, pair)));
  return out;
}

/// Returns the tokens that end a text for which the format has no place.
std::vector<Token> write_vocabulary(GgufContainer& file, const GgufVocabulary& vocabulary) {
  const std::string at = "tokenizer.ggml.";
  file.set(at + "model", vocabulary.model);
  if (!vocabulary.pre.empty()) file.set(at + "pre", vocabulary.pre);
  file.set(at + "tokens", vocabulary.tokens);
  if (!vocabulary.scores.empty()) file.set(at + "scores", vocabulary.scores);
  if (!vocabulary.types.empty()) file.set(at + "token_type", vocabulary.types);
  if (!vocabulary.merges.empty()) file.set(at + "merges", vocabulary.merges);
  const auto set_token = [&](const char* key, std::optional<Token> token) {
    if (token) file.set(at + key, static_cast<std::uint32_t>(*token));
  };
  set_token("bos_token_id", vocabulary.begin);
  set_token("eos_token_id", vocabulary.end);
  for (std::size_t t = 0; t < vocabulary.types.size(); ++t)
    if (vocabulary.model == "llama" && vocabulary.types[t] == GgufVocabulary::unknown)
      set_token("unknown_token_id", static_cast<Token>(t));
  if (vocabulary.adds_begin) file.set(at + "add_bos_token", *vocabulary.adds_begin);
  file.set(at + "add_eos_token", vocabulary.adds_end);
  if (vocabulary.adds_space) file.set(at + "add_space_prefix", *vocabulary.adds_space);
  auto left = vocabulary.other_ends;
  std::erase_if(
      left, [&](Token token) { return ends_by_text(vocabulary.tokens[static_cast<std::size_t>(token)]); });
  for (const char* key : {"eot_token_id", "eom_token_id"}) {
    if (left.empty()) break;
    set_token(key, left.front());
    left.erase(left.begin());
  }
  return left;
}

void write_template(GgufContainer& file, const ChatTemplates& templates) {
  const std::string key = "tokenizer.chat_template";
  std::vector<std::string> names;
  for (const auto& [name, text] : templates) {
    file.set(name.empty() ? key : key + "." + name, text);
    if (!name.empty()) names.push_back(name);
  }
  if (!names.empty()) file.set(key + "s", std::span<const std::string>(names));
}

/// LLAMA_FTYPE_* (llama.h), by the type of most matrices.
std::uint32_t file_type(GgufType type, bool mostly_blocks) {
  if (type == GgufType::f32) return 0;
  if (type == GgufType::f16) return 1;
  if (!mostly_blocks || type == GgufType::bf16) return 32;
  return type == GgufType::q4_0   ? 2
         : type == GgufType::q4_1 ? 3
         : type == GgufType::q5_0 ? 8
         : type == GgufType::q5_1 ? 9
                                  : 7;
}

}  // namespace

GgufType parse_gguf_type(std::string_view name) {
  if (name == "f32") return GgufType::f32;
  if (name == "f16") return GgufType::f16;
  if (name == "bf16") return GgufType::bf16;
  if (name == "q8_0") return GgufType::q8_0;
  if (name == "q5_1") return GgufType::q5_1;
  if (name == "q5_0") return GgufType::q5_0;
  if (name == "q4_1") return GgufType::q4_1;
  if (name == "q4_0") return GgufType::q4_0;
  if (name == "auto") return GgufType::automatic;
  throw UsageError("type '" + std::string(name) +
                   "', must be f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or auto");
}

std::vector<Token> write_gguf(const std::filesystem::path& model, const std::filesystem::path& file,
                              GgufType type) {
  const DecoderConfig config = specula::cpu::read_model_config(model);
  const std::string source = specula::cpu::config_path(model).string();
  if (config.is_draft())
    throw std::runtime_error(source + ": a draft that needs its target is no model of llama.cpp");
  const std::string architecture = architecture_of(config);
  check_parts(config, architecture, source);
  const bool adjacent = architecture == "llama";  // the others rotate as Hugging Face does
  const GgufVocabulary vocabulary = read_vocabulary(model, config.vocab_size);

  const std::int64_t hidden = config.hidden_size, wide = config.intermediate_size,
                     queries = std::int64_t{config.heads} * config.head_dim,
                     keys = std::int64_t{config.kv_heads} * config.head_dim;
  const std::int32_t q_heads = adjacent ? config.heads : 0, k_heads = adjacent ? config.kv_heads : 0;
  Writer out(model);
  out.matrix("token_embd.weight", config.vocab_size, hidden, type);
  out.vector("output_norm.weight", hidden);
  if (!config.tied_head) out.matrix("output.weight", config.vocab_size, hidden, type);
  if (has_rope_factors(config.rope_scaling)) out.vector("rope_freqs.weight", rope_factors(config));
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    out.vector(at + "attn_norm.weight", hidden);
    out.matrix(at + "attn_q.weight", queries, hidden, type, q_heads);
    out.matrix(at + "attn_k.weight", keys, hidden, type, k_heads);
    out.matrix(at + "attn_v.weight", keys, hidden, type);
    out.matrix(at + "attn_output.weight", hidden, queries, type);
    if (config.qkv_bias) {
      out.vector(at + "attn_q.bias", queries, q_heads);
      out.vector(at + "attn_k.bias", keys, k_heads);
      out.vector(at + "attn_v.bias", keys);
    }
    if (config.output_bias) out.vector(at + "attn_output.bias", hidden);
    if (config.query_key_norms) {
      out.vector(at + "attn_q_norm.weight", config.head_dim);
      out.vector(at + "attn_k_norm.weight", config.head_dim);
    }
    out.vector(at + "ffn_norm.weight", hidden);
    out.matrix(at + "ffn_gate.weight", wide, hidden, type);
    out.matrix(at + "ffn_up.weight", wide, hidden, type);
    out.matrix(at + "ffn_down.weight", hidden, wide, type);
  }
  GgufContainer& container = out.file();
  write_sizes(container, config, architecture);
  container.set("general.name", (model / "").parent_path().filename().string());
  auto left_out = write_vocabulary(container, vocabulary);
  write_template(container, read_chat_templates(model));
  container.set("general.quantization_version", std::uint32_t{2});
  container.set("general.file_type", file_type(type, 2 * out.blocks() > 7 * config.layers));
  write_file(file, container.head(), container.data());
  return left_out;
}

}  // namespace specula_tools
