// SPDX-License-Identifier: MIT
#include "folder_vocabulary.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/files/gguf_files.hpp>
#include <specula/files/json_fields.hpp>

#include "files.hpp"
#include "gguf_tokenizer.hpp"
#include "token_files.hpp"
#include "tokenizer.hpp"

namespace specula_tools {
namespace {

using specula::Token;
using specula::files::Json;
using specula::files::JsonFields;

/// Throws std::runtime_error for what llama.cpp would do otherwise with tokens that are found in a text.
void check_added(const std::vector<AddedToken>& tokens, bool spaces_each_part, const std::string& source) {
  for (const AddedToken& added : tokens) {
    if (added.special) continue;
    const std::string what = source + ": added token '" + added.text + "': a GGUF file cannot say ";
    if (added.lstrip || added.rstrip) throw std::runtime_error(what + "that it takes white space along");
    if (added.single_word) throw std::runtime_error(what + "that it is found as a single word only");
    if (!spaces_each_part) throw std::runtime_error(what + "that no space follows it (legacy is false)");
  }
}

/// What the tokenizer says of begins and ends.
void set_roles(const Tokenizer& tokenizer, GgufVocabulary& out) {
  if (tokenizer.begin() != specula::kNoToken) out.begin = tokenizer.begin();
  out.end = tokenizer.end();
  for (const Token end : tokenizer.ends())
    if (end != tokenizer.end()) out.other_ends.push_back(end);
  out.adds_begin = tokenizer.adds_begin();
}

/// As many as the model has; `types` of tokens that the tokenizer does not have are unused.
void check_size(const std::string& source, std::int32_t own, std::int32_t size) {
  if (own > size)
    throw std::runtime_error(source + ": " + std::to_string(own) + " tokens, the model has " +
                             std::to_string(size));
}
std::string padding(std::size_t token) { return "[PAD" + std::to_string(token) + "]"; }

GgufVocabulary of_sentencepiece(const std::filesystem::path& folder, std::int32_t size) {
  const auto model = folder / "tokenizer.model";
  const Tokenizer tokenizer(model);
  sentencepiece::SentencePieceProcessor tokens;
  const std::string bytes = read_file(model);
  if (!tokens.LoadFromSerializedProto(bytes).ok())
    throw std::runtime_error(model.string() + ": is no SentencePiece model");
  const TokenFiles files = read_token_files(folder);
  check_added(files.added, files.spaces_each_part, folder.string());
  check_size(model.string(), tokenizer.vocab_size(), size);
  GgufVocabulary out;
  out.model = "llama";
  for (int id = 0; id < size; ++id) {
    const bool own = id < tokens.GetPieceSize();
    const bool pads =
        !own && (id >= tokenizer.vocab_size() || tokenizer.pieces()[static_cast<std::size_t>(id)].empty());
    out.tokens.push_back(pads ? padding(static_cast<std::size_t>(id))
                              : tokenizer.pieces()[static_cast<std::size_t>(id)]);
    out.scores.push_back(own ? tokens.GetScore(id) : 0.0f);
    out.types.push_back(!own || tokens.IsUnused(id) ? GgufVocabulary::unused
                        : tokens.IsUnknown(id)      ? GgufVocabulary::unknown
                        : tokens.IsControl(id)      ? GgufVocabulary::control
                        : tokens.IsByte(id)         ? GgufVocabulary::byte
                                                    : GgufVocabulary::normal);
  }
  for (const AddedToken& added : files.added) {
    auto& type = out.types[static_cast<std::size_t>(added.token)];
    if (type != GgufVocabulary::unknown)
      type = tokenizer.bytes(added.token).empty() ? GgufVocabulary::control : GgufVocabulary::user_defined;
  }
  // Scores of BPE are ranks, those of unigram models logarithms; SentencePiece does not expose the type.
  const auto fraction =
      std::find_if(out.scores.begin(), out.scores.end(), [](float x) { return x != std::floor(x); });
  if (fraction != out.scores.end())
    throw std::runtime_error(model.string() + ": the score of token " +
                             std::to_string(fraction - out.scores.begin()) +
                             " is no rank; only BPE vocabularies can be written");
  set_roles(tokenizer, out);
  // Whether the tokenizer adds a space before a text: found by trying, since SentencePiece does not expose
  // it.
  const auto first = tokenizer.encode("a").at(tokenizer.adds_begin() ? 1 : 0);
  out.adds_space = out.tokens[static_cast<std::size_t>(first)].starts_with("\xe2\x96\x81");
  return out;
}

/// The steps that cut a text into words, as texts that can be compared.
void append_steps(const Json& part, std::vector<std::string>& out) {
  if (!part.is_object()) return;
  const std::string type = part.value("type", "");
  if (type == "Sequence" && part.contains("pretokenizers"))
    for (const Json& step : part["pretokenizers"]) append_steps(step, out);
  else if (type == "Sequence" && part.contains("normalizers"))
    for (const Json& step : part["normalizers"]) append_steps(step, out);
  else if (type == "ByteLevel")  // `add_prefix_space` is compared by trying, `trim_offsets` changes no token
    out.push_back(part.value("use_regex", true) ? "bytes of words" : "bytes");
  else if (type == "Digits")
    out.push_back(part.value("individual_digits", false) ? "digit" : "digits");
  else if (type == "Split")
    out.push_back("split " + part.value("pattern", Json()).dump() + part.value("behavior", "") +
                  (part.value("invert", false) ? " inverted" : ""));
  else
    out.push_back(part.dump());
}

std::vector<std::string> steps_of(const Json& tokenizer) {
  std::vector<std::string> out;
  append_steps(tokenizer.value("normalizer", Json()), out);
  append_steps(tokenizer.value("pre_tokenizer", Json()), out);
  const Json model = tokenizer.value("model", Json::object());
  if (model.value("ignore_merges", false)) out.push_back("whole words");
  return out;
}

/// llama.cpp's name for how a tokenizer.json cuts a text into words.
std::string pre_name(const Json& json, const std::string& source) {
  std::string names;
  for (const char* name :
       {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "deepseek-r1-qwen", "smaug-bpe", "default"}) {
    GgufVocabulary other;
    other.model = "gpt2", other.pre = name, other.tokens = {"a", "<|endoftext|>"}, other.types = {1, 3},
    other.end = 1;
    if (steps_of(tokenizer_json(other, source)) == steps_of(json)) return name;
    names.append(names.empty() ? "" : ", ").append(name);
  }
  throw std::runtime_error(source + ": key 'pre_tokenizer': cuts texts as none of these of llama.cpp: " +
                           names + "; llama.cpp's own convert_hf_to_gguf.py knows more");
}

GgufVocabulary of_json(const std::filesystem::path& folder, std::int32_t size) {
  const auto path = folder / "tokenizer.json";
  const std::string source = path.string();
  const Tokenizer tokenizer(path);
  check_size(source, tokenizer.vocab_size(), size);
  const Json json = specula::files::read_json_file(path);
  const JsonFields fields(json, source), model = fields.object("model");
  if (model.flag("byte_fallback"))
    throw std::runtime_error(source +
                             ": key 'model': its merges have no scores, which GGUF needs: put the "
                             "SentencePiece model beside it (tokenizer.model)");
  GgufVocabulary out;
  out.model = "gpt2";
  out.pre = pre_name(json, source);
  for (std::size_t id = 0; id < static_cast<std::size_t>(size); ++id) {
    const bool pads = id >= tokenizer.pieces().size() || tokenizer.pieces()[id].empty();
    out.tokens.push_back(pads ? padding(id) : tokenizer.pieces()[id]);
    out.types.push_back(pads ? GgufVocabulary::unused : GgufVocabulary::normal);
  }
  std::vector<AddedToken> added;
  for (const JsonFields& entry : fields.objects("added_tokens"))
    added.push_back(read_added_token(entry, entry.integer("id")));
  check_added(added, true, source);
  for (const AddedToken& token : added)
    out.types.at(static_cast<std::size_t>(token.token)) =
        token.special ? GgufVocabulary::control : GgufVocabulary::user_defined;
  for (const Json& merge : model.array("merges", "merges")) {
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair && !merge.is_string()) model.fail("merges", "expected pairs of strings", merge);
    out.merges.push_back(pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                              : merge.get<std::string>());
  }
  set_roles(tokenizer, out);
  return out;
}

}  // namespace

GgufVocabulary read_vocabulary(const std::filesystem::path& model, std::int32_t size) {
  if (specula::files::is_gguf(model)) {
    auto out = read_gguf_vocabulary(specula::files::Gguf::open(model));
    check_size(model.string(), static_cast<std::int32_t>(out.tokens.size()), size);
    return out;
  }
  // Without either, the message is of the file that is read first.
  const bool json = !std::filesystem::exists(model / "tokenizer.model") &&
                    std::filesystem::exists(model / "tokenizer.json");
  return json ? of_json(model, size) : of_sentencepiece(model, size);
}

}  // namespace specula_tools
