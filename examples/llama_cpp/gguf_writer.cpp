#include "gguf_writer.hpp"

#include <ggml.h>
#include <gguf.h>
#include <llama.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <specula/cpu/detail/rope_table.hpp>
#include <specula/cpu/int8_groups.hpp>
#include <specula/cpu/json.hpp>
#include <specula/cpu/read_decoder_config.hpp>
#include <specula/cpu/safetensors.hpp>
#include <specula/cpu/tensor_files.hpp>

#include "errors.hpp"
#include "files.hpp"
#include "token_files.hpp"
#include "tokenizer.hpp"

namespace specula_examples {
namespace {

using specula::Token;
using specula::cpu::DecoderConfig;
using specula::cpu::Int8Groups;

struct Free {
  void operator()(gguf_context* file) const { gguf_free(file); }
  void operator()(ggml_context* tensors) const { ggml_free(tensors); }
};

/// The type of matrices whose rows are not whole blocks, and of those that `automatic` does not store at 8
/// bits.
ggml_type ggml_type_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return GGML_TYPE_F32;
    case GgufType::f16:
      return GGML_TYPE_F16;
    default:
      return GGML_TYPE_BF16;
  }
}

/// The file under construction: keys and tensors with their data.
class Writer {
 public:
  Writer(const std::filesystem::path& directory, std::size_t tensors, std::size_t numbers)
      : files_(directory),
        file_(gguf_init_empty()),
        tensors_(ggml_init(
            {.mem_size = numbers * sizeof(float) + tensors * (ggml_tensor_overhead() + GGML_MEM_ALIGN),
             .mem_buffer = nullptr,
             .no_alloc = false})) {
    if (!file_ || !tensors_) throw std::bad_alloc();
  }

  gguf_context* file() { return file_.get(); }

  void vector(const std::string& name, std::span<const float> values) {
    ggml_tensor* const tensor =
        ggml_new_tensor_1d(tensors_.get(), GGML_TYPE_F32, static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
    add(name, tensor);
  }
  /// Elements, as rows below, of `heads` heads, if not 0, are reordered.
  void vector(const std::string& name, const std::string& from, std::int64_t size, std::int32_t heads = 0) {
    const auto read = numbers(from, {size});
    std::vector<float> values(read.size());
    for (std::int64_t i = 0; i < size; ++i)
      values[static_cast<std::size_t>(i)] =
          read[static_cast<std::size_t>(heads ? source_row(i, size / heads) : i)];
    vector(name, values);
  }
  void matrix(const std::string& name, const std::string& from, std::int64_t rows, std::int64_t cols,
              GgufType stored, std::int32_t heads = 0) {
    const auto values = numbers(from, {rows, cols});
    const bool exact = is_8_bits(from);
    const ggml_type type = type_of(stored, exact, cols);
    blocks_ += ggml_is_quantized(type);
    ggml_tensor* const tensor = ggml_new_tensor_2d(tensors_.get(), type, cols, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const row = values.data() + (heads ? source_row(r, rows / heads) : r) * cols;
      auto* const to = static_cast<char*>(tensor->data) + static_cast<std::size_t>(r) * tensor->nb[1];
      if (type == GGML_TYPE_F32)
        std::copy_n(row, cols, reinterpret_cast<float*>(to));
      else if (type == GGML_TYPE_Q8_0 && exact)
        write_q8_0({row, static_cast<std::size_t>(cols)}, to);
      else if (ggml_is_quantized(type))
        ggml_quantize_chunk(type, row, to, 0, 1, cols, nullptr);
      else if (type == GGML_TYPE_F16)
        ggml_fp32_to_fp16_row(row, reinterpret_cast<ggml_fp16_t*>(to), cols);
      else
        ggml_fp32_to_bf16_row_ref(row, reinterpret_cast<ggml_bf16_t*>(to), cols);
    }
    add(name, tensor);
  }
  /// Matrices that are stored in blocks, as Q8_0 or Q4_0, so far.
  std::int32_t blocks() const { return blocks_; }

 private:
  static_assert(Int8Groups::kSize == 32, "a block of Q8_0, as of Q4_0");

  /// Whether the matrix is stored at 8 bits, so that Q8_0 loses nothing.
  bool is_8_bits(const std::string& name) const { return files_.find(name).dtype == specula::cpu::Dtype::i8; }
  static ggml_type type_of(GgufType stored, bool exact, std::int64_t cols) {
    if (cols % static_cast<std::int64_t>(Int8Groups::kSize) == 0) {
      if (stored == GgufType::q4_0) return GGML_TYPE_Q4_0;
      if (stored == GgufType::q8_0 || (stored == GgufType::automatic && exact)) return GGML_TYPE_Q8_0;
    }
    return ggml_type_of(stored);
  }
  /// Blocks of a half float, the scale, and 32 whole numbers.
  static void write_q8_0(std::span<const float> row, char* to) {
    std::vector<std::int8_t> numbers(row.size()), exponents(Int8Groups::count(row.size()));
    specula::cpu::round_to_groups(row, numbers, exponents);
    for (std::size_t g = 0; g < exponents.size(); ++g) {
      const ggml_fp16_t scale = ggml_fp32_to_fp16(std::ldexp(1.0f, exponents[g]));
      std::memcpy(to, &scale, sizeof(scale)), to += sizeof(scale);
      std::memcpy(to, numbers.data() + g * Int8Groups::kSize, Int8Groups::kSize), to += Int8Groups::kSize;
    }
  }

  /// Hugging Face rotates element i of a head with element i + half, llama.cpp adjacent elements.
  static std::int64_t source_row(std::int64_t row, std::int64_t head_dim) {
    const std::int64_t head = row / head_dim, i = row % head_dim;
    return head * head_dim + i % 2 * (head_dim / 2) + i / 2;
  }

  std::vector<float> numbers(const std::string& name, std::initializer_list<std::int64_t> shape) {
    const auto& info = files_.weight(name, std::span(shape.begin(), shape.size()));
    std::vector<float> values;
    files_.rows(info, [&](std::int64_t, std::span<const float> row) {
      values.insert(values.end(), row.begin(), row.end());
    });
    return values;
  }
  void add(const std::string& name, ggml_tensor* tensor) {
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(file_.get(), tensor);
  }

  specula::cpu::TensorFiles files_;
  std::unique_ptr<gguf_context, Free> file_;
  std::unique_ptr<ggml_context, Free> tensors_;
  std::int32_t blocks_ = 0;
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

void write_sizes(gguf_context* file, const DecoderConfig& config, const std::string& architecture) {
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto set = [&](const char* name, std::int32_t value) {
    gguf_set_val_u32(file, key(name).c_str(), static_cast<std::uint32_t>(value));
  };
  const auto set_number = [&](const char* name, double value) {
    gguf_set_val_f32(file, key(name).c_str(), static_cast<float>(value));
  };
  gguf_set_val_str(file, "general.architecture", architecture.c_str());
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
    gguf_set_val_str(file, key("rope.scaling.type").c_str(), yarn ? "yarn" : "linear");
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

/// llama.cpp's numbers of token types.
enum Kind : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// Throws std::runtime_error for what llama.cpp would do otherwise with tokens that are found in a text.
void check_added(const TokenFiles& files, const std::filesystem::path& directory) {
  for (const AddedToken& added : files.added) {
    if (added.special) continue;
    const std::string what =
        directory.string() + ": added token '" + added.text + "': a GGUF file cannot say ";
    if (added.lstrip || added.rstrip) throw std::runtime_error(what + "that it takes white space along");
    if (!files.spaces_each_part)
      throw std::runtime_error(what + "that no space follows it (legacy is false)");
  }
}

void write_vocabulary(gguf_context* file, const std::filesystem::path& directory, const Tokenizer& tokenizer,
                      std::int32_t size) {
  const auto model = directory / "tokenizer.model";
  sentencepiece::SentencePieceProcessor tokens;
  const std::string bytes = read_file(model);
  if (!tokens.LoadFromSerializedProto(bytes).ok())
    throw std::runtime_error(model.string() + ": is no SentencePiece model");
  const TokenFiles files = read_token_files(directory);
  check_added(files, directory);
  if (tokenizer.vocab_size() > size)
    throw std::runtime_error(model.string() + ": " + std::to_string(tokenizer.vocab_size()) +
                             " tokens, the model has " + std::to_string(size));
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  for (int id = 0; id < size; ++id) {
    const bool own = id < tokens.GetPieceSize();
    const bool padding =
        !own && (id >= tokenizer.vocab_size() || tokenizer.pieces()[static_cast<std::size_t>(id)].empty());
    pieces.push_back(padding ? "[PAD" + std::to_string(id) + "]"
                             : tokenizer.pieces()[static_cast<std::size_t>(id)]);
    scores.push_back(own ? tokens.GetScore(id) : 0.0f);
    kinds.push_back(!own || tokens.IsUnused(id) ? unused
                    : tokens.IsUnknown(id)      ? unknown
                    : tokens.IsControl(id)      ? control
                    : tokens.IsByte(id)         ? byte
                                                : normal);
  }
  for (const AddedToken& added : files.added) {
    auto& kind = kinds[static_cast<std::size_t>(added.token)];
    if (kind != unknown) kind = tokenizer.bytes(added.token).empty() ? control : user_defined;
  }
  // Scores of BPE are ranks, those of unigram models logarithms; SentencePiece does not expose the type.
  const auto fraction =
      std::find_if(scores.begin(), scores.end(), [](float x) { return x != std::floor(x); });
  if (fraction != scores.end())
    throw std::runtime_error(model.string() + ": the score of token " +
                             std::to_string(fraction - scores.begin()) +
                             " is no rank; only BPE vocabularies can be written");
  std::vector<const char*> texts;
  for (const auto& piece : pieces) texts.push_back(piece.c_str());
  gguf_set_val_str(file, "tokenizer.ggml.model", "llama");
  gguf_set_arr_str(file, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(), kinds.size());
  const auto special = [&](const char* key, int id) {
    if (id >= 0) gguf_set_val_u32(file, key, static_cast<std::uint32_t>(id));
  };
  special("tokenizer.ggml.bos_token_id", tokenizer.begin());
  special("tokenizer.ggml.eos_token_id", tokenizer.end());
  special("tokenizer.ggml.unknown_token_id", tokens.unk_id());
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", tokenizer.adds_begin());
  gguf_set_val_bool(file, "tokenizer.ggml.add_eos_token", false);
  // Whether the tokenizer adds a space before a text: found by trying, since SentencePiece does not expose
  // it.
  const auto first = tokenizer.encode("a").at(tokenizer.adds_begin() ? 1 : 0);
  gguf_set_val_bool(file, "tokenizer.ggml.add_space_prefix",
                    pieces[static_cast<std::size_t>(first)].starts_with("\xe2\x96\x81"));
}

/// Of the tokens that end a text, those that libllama would not stop at. `file` has the vocabulary so far; it
/// is written to `scratch` and read by libllama, which knows some of them by their texts.
std::vector<Token> unknown_ends(const gguf_context* file, const std::filesystem::path& scratch,
                                const Tokenizer& tokenizer) {
  std::error_code ignored;
  const bool written = gguf_write_to_file(file, scratch.string().c_str(), true);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      written ? llama_model_load_from_file(scratch.string().c_str(), params) : nullptr, &llama_model_free);
  std::filesystem::remove(scratch, ignored);
  if (!model) throw std::runtime_error(scratch.string() + ": cannot be written and read again");
  std::vector<Token> out;
  for (const Token end : tokenizer.ends())
    if (!llama_vocab_is_eog(llama_model_get_vocab(model.get()), end)) out.push_back(end);
  return out;
}

/// Writes what ends a text besides the end of documents. Returns those for which the format has no place.
std::vector<Token> write_ends(gguf_context* file, const std::filesystem::path& scratch,
                              const Tokenizer& tokenizer) {
  if (tokenizer.ends().size() < 2) return {};
  std::vector<Token> left = unknown_ends(file, scratch, tokenizer);
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (left.empty()) break;
    gguf_set_val_u32(file, key, static_cast<std::uint32_t>(left.front()));
    left.erase(left.begin());
  }
  return left;
}

}  // namespace

GgufType parse_gguf_type(std::string_view name) {
  if (name == "f32") return GgufType::f32;
  if (name == "f16") return GgufType::f16;
  if (name == "bf16") return GgufType::bf16;
  if (name == "q8_0") return GgufType::q8_0;
  if (name == "q4_0") return GgufType::q4_0;
  if (name == "auto") return GgufType::automatic;
  throw UsageError("type '" + std::string(name) + "', must be f32, f16, bf16, q8_0, q4_0 or auto");
}

std::vector<Token> write_gguf(const std::filesystem::path& directory, const std::filesystem::path& file,
                              GgufType type) {
  const auto config_file = directory / "config.json";
  const DecoderConfig config =
      specula::cpu::read_decoder_config(specula::cpu::read_json_file(config_file), config_file.string());
  if (config.conditioned_on != specula::Conditioning::nothing)
    throw std::runtime_error(config_file.string() +
                             ": a draft that is conditioned on its target is no model of llama.cpp");

  const std::string architecture = architecture_of(config);
  check_parts(config, architecture, config_file.string());
  const bool adjacent = architecture == "llama";  // the others rotate as Hugging Face does

  const std::int64_t hidden = config.hidden_size, wide = config.intermediate_size,
                     queries = std::int64_t{config.heads} * config.head_dim,
                     keys = std::int64_t{config.kv_heads} * config.head_dim;
  const auto layers = static_cast<std::size_t>(config.layers);
  const std::int64_t per_layer =
      hidden * (2 * queries + 2 * keys + 3 * wide + 3) + queries + 2 * keys + 2 * config.head_dim;
  Writer out(directory, 15 * layers + 4,
             static_cast<std::size_t>(per_layer * config.layers + hidden * (2 * config.vocab_size + 1) +
                                      config.head_dim));
  write_sizes(out.file(), config, architecture);
  gguf_set_val_str(out.file(), "general.name", (directory / "").parent_path().filename().string().c_str());
  const Tokenizer tokenizer(directory / "tokenizer.model");
  write_vocabulary(out.file(), directory, tokenizer, config.vocab_size);
  auto left_out = write_ends(out.file(), file.string() + ".vocabulary", tokenizer);

  out.matrix("token_embd.weight", "model.embed_tokens.weight", config.vocab_size, hidden, type);
  out.vector("output_norm.weight", "model.norm.weight", hidden);
  if (!config.tied_head) out.matrix("output.weight", "lm_head.weight", config.vocab_size, hidden, type);
  if (has_rope_factors(config.rope_scaling)) out.vector("rope_freqs.weight", rope_factors(config));
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const std::string from = "model.layers." + std::to_string(layer) + ".",
                      to = "blk." + std::to_string(layer) + ".";
    out.vector(to + "attn_norm.weight", from + "input_layernorm.weight", hidden);
    const std::int32_t q_heads = adjacent ? config.heads : 0, k_heads = adjacent ? config.kv_heads : 0;
    out.matrix(to + "attn_q.weight", from + "self_attn.q_proj.weight", queries, hidden, type, q_heads);
    out.matrix(to + "attn_k.weight", from + "self_attn.k_proj.weight", keys, hidden, type, k_heads);
    out.matrix(to + "attn_v.weight", from + "self_attn.v_proj.weight", keys, hidden, type);
    out.matrix(to + "attn_output.weight", from + "self_attn.o_proj.weight", hidden, queries, type);
    if (config.qkv_bias) {
      out.vector(to + "attn_q.bias", from + "self_attn.q_proj.bias", queries, q_heads);
      out.vector(to + "attn_k.bias", from + "self_attn.k_proj.bias", keys, k_heads);
      out.vector(to + "attn_v.bias", from + "self_attn.v_proj.bias", keys);
    }
    if (config.output_bias) out.vector(to + "attn_output.bias", from + "self_attn.o_proj.bias", hidden);
    if (config.query_key_norms) {
      out.vector(to + "attn_q_norm.weight", from + "self_attn.q_norm.weight", config.head_dim);
      out.vector(to + "attn_k_norm.weight", from + "self_attn.k_norm.weight", config.head_dim);
    }
    out.vector(to + "ffn_norm.weight", from + "post_attention_layernorm.weight", hidden);
    out.matrix(to + "ffn_gate.weight", from + "mlp.gate_proj.weight", wide, hidden, type);
    out.matrix(to + "ffn_up.weight", from + "mlp.up_proj.weight", wide, hidden, type);
    out.matrix(to + "ffn_down.weight", from + "mlp.down_proj.weight", hidden, wide, type);
  }
  const auto mostly = [&] {
    if (2 * out.blocks() > 7 * config.layers)
      return type == GgufType::q4_0 ? LLAMA_FTYPE_MOSTLY_Q4_0 : LLAMA_FTYPE_MOSTLY_Q8_0;
    if (type == GgufType::f32) return LLAMA_FTYPE_ALL_F32;
    return type == GgufType::f16 ? LLAMA_FTYPE_MOSTLY_F16 : LLAMA_FTYPE_MOSTLY_BF16;
  };
  gguf_set_val_u32(out.file(), "general.file_type", mostly());
  if (!gguf_write_to_file(out.file(), file.string().c_str(), false))
    throw std::runtime_error(file.string() + ": cannot be written");
  return left_out;
}

}  // namespace specula_examples
