// SPDX-License-Identifier: MIT
#include "gguf_tokenizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "token_files.hpp"
#include "tokenizer_json.hpp"

namespace specula_tools {
namespace {

using specula::Token;
using specula::files::Json;

[[noreturn]] void fail(const std::string& source, const std::string& key, const std::string& what) {
  throw std::runtime_error(source + ": key 'tokenizer.ggml." + key + "': " + what);
}

/// How texts are cut into words, by the names that GGUF files have for it (llama.cpp, src/llama-vocab.cpp).
struct Pre {
  std::vector<std::string_view> names;
  std::vector<const char*> expressions;  // one after the other, before the bytes
  bool digits = false;                   // numerals one by one, before the words of GPT-2
  bool nfc = false;
  bool whole_words = false;  // a word of the vocabulary is not made of pairs
  bool adds_begin = false;   // unless the file says otherwise
};

constexpr const char* kThreeDigits = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kOneDigit = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                  R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const Pre& pre_of(const GgufVocabulary& vocabulary, const std::string& source) {
  static const std::vector<Pre> kPres{
      {.names = {"gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "granite-docling", "exaone4", "jina-es",
                 "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "modern-bert"},
       .expressions = {}},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
                 "mellum2"},
       .expressions = {},
       .digits = true},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                 "jina-v5-nano"},
       .expressions = {kThreeDigits},
       .whole_words = true,
       .adds_begin = true},
      {.names = {"dbrx", "smaug-bpe", "chatglm-bpe"}, .expressions = {kThreeDigits}},
      {.names = {"qwen2"}, .expressions = {kOneDigit}, .nfc = true},
      {.names = {"deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open",
                 "grok-2"},
       .expressions = {kOneDigit}},
      {.names = {"tekken"},
       .expressions = {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                       R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       .whole_words = true,
       .adds_begin = true},
      {.names = {"default", ""},  // of files that do not say, or are older than the key
       .expressions = {R"([\p{P}\$\+<=>\^~\|]+)",
                       R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                       R"(\p{N}+)", R"([0-9][0-9][0-9])"}}};
  std::string known;
  for (const Pre& pre : kPres)
    for (const std::string_view name : pre.names) {
      if (name == vocabulary.pre) return pre;
      if (!name.empty()) known += (known.empty() ? "" : ", ") + std::string(name);
    }
  fail(source, "pre",
       "'" + vocabulary.pre + "' is not read, expected one of " + known +
           "; specula run --engine llama.cpp runs such models");
}

Json pre_tokenizer(const Pre& pre) {
  Json steps = Json::array();
  if (pre.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const char* expression : pre.expressions)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", expression}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", pre.expressions.empty()}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Json normalizer(const GgufVocabulary& vocabulary) {
  constexpr const char* kSpace = "\xe2\x96\x81";
  Json steps = Json::array();
  if (vocabulary.adds_space.value_or(true)) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

/// Empty ones as libllama calls them.
std::string text_of(const GgufVocabulary& vocabulary, std::size_t token) {
  const std::string& text = vocabulary.tokens[token];
  return text.empty() ? "[EMPTY_" + std::to_string(token) + "]" : text;
}

/// Tokens, those of the highest score first, those of the same score by their numbers.
std::vector<std::size_t> by_score(const GgufVocabulary& vocabulary) {
  std::vector<std::size_t> order(vocabulary.tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&scores = vocabulary.scores](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  return order;
}

/// Per token, how many higher scores there are; none where pairs have an order of their own.
std::vector<std::uint32_t> ranks_of(const GgufVocabulary& vocabulary) {
  if (vocabulary.model != "llama") return {};
  std::vector<std::uint32_t> out(vocabulary.tokens.size());
  std::uint32_t rank = 0;
  float score = 0;
  for (const std::size_t token : by_score(vocabulary)) {
    if (vocabulary.scores[token] != score) ++rank;
    score = vocabulary.scores[token];
    out[token] = rank;
  }
  return out;
}

/// What the scores say, as merges: each token in two parts that are tokens.
Json merges_of_scores(const GgufVocabulary& vocabulary, const std::vector<std::int32_t>& types) {
  std::vector<std::size_t> order = by_score(vocabulary);
  std::erase_if(order, [&](std::size_t token) {
    return types[token] == GgufVocabulary::unknown || types[token] == GgufVocabulary::byte ||
           types[token] == GgufVocabulary::control;
  });
  std::set<std::string_view> known;
  for (const std::size_t token : order) known.insert(vocabulary.tokens[token]);
  Json out = Json::array();
  for (const std::size_t token : order) {
    const std::string_view text = vocabulary.tokens[token];
    for (std::size_t at = 1; at < text.size(); ++at) {
      const auto left = text.substr(0, at), right = text.substr(at);
      if (known.contains(left) && known.contains(right)) out.push_back({left, right});
    }
  }
  return out;
}

Json merges_of(const GgufVocabulary& vocabulary, const std::string& source) {
  Json out = Json::array();
  for (const std::string& merge : vocabulary.merges) {
    const auto space = merge.find(' ', 1);
    if (space == merge.npos) fail(source, "merges", "'" + merge + "' has no space");
    out.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return out;
}

void check_vocabulary(const GgufVocabulary& vocabulary, const std::string& source) {
  constexpr std::size_t kMaxTokens = std::size_t{1} << 24, kMaxText = 1024;
  const std::size_t size = vocabulary.tokens.size();
  const bool pieces = vocabulary.model == "llama";
  if (!pieces && vocabulary.model != "gpt2")
    fail(source, "model",
         "'" + vocabulary.model +
             "' is not read, expected llama or gpt2; specula run --engine llama.cpp runs such models");
  if (size == 0 || size > kMaxTokens)
    fail(source, "tokens", std::to_string(size) + " tokens, expected 1 to " + std::to_string(kMaxTokens));
  const auto has_size = [&](const char* key, std::size_t count) {
    if (count != size)
      fail(source, key, std::to_string(count) + " entries for " + std::to_string(size) + " tokens");
  };
  if (pieces) has_size("scores", vocabulary.scores.size());
  for (const float score : vocabulary.scores)
    if (std::isnan(score)) fail(source, "scores", "a score is no number");
  if (!vocabulary.types.empty()) has_size("token_type", vocabulary.types.size());
  for (const std::string& text : vocabulary.tokens)
    if (text.size() > kMaxText)
      fail(source, "tokens",
           "a token of " + std::to_string(text.size()) + " bytes, expected at most " +
               std::to_string(kMaxText));
  const auto is_token = [&](const char* key, Token token) {
    if (token < 0 || static_cast<std::size_t>(token) >= size)
      fail(source, key, std::to_string(token) + " is none of " + std::to_string(size) + " tokens");
  };
  if (vocabulary.begin) is_token("bos_token_id", *vocabulary.begin);
  if (vocabulary.end) is_token("eos_token_id", *vocabulary.end);
  for (const Token token : vocabulary.other_ends) is_token("eot_token_id or another end", token);
  if (vocabulary.adds_end)
    fail(source, "add_eos_token",
         "true is not read, it would end every prompt; specula run --engine llama.cpp runs such models");
}

/// What a file beside tokenizer.json would say.
TokenFiles files_of(const GgufVocabulary& vocabulary, const GgufRoles& roles, const std::string& source) {
  TokenFiles out;
  const auto named = [&](Token token, const char* key) {
    return NamedToken{.text = text_of(vocabulary, static_cast<std::size_t>(token)),
                      .where = source + ": key 'tokenizer.ggml." + key + "'"};
  };
  out.no_begin = !roles.begin;
  if (roles.begin) out.begin = named(*roles.begin, "bos_token_id");
  if (roles.end) out.end = named(*roles.end, "eos_token_id");
  out.stop_tokens = roles.ends;
  out.adds_begin =
      vocabulary.adds_begin.value_or(vocabulary.model == "llama" || pre_of(vocabulary, source).adds_begin);
  for (const std::string& note : roles.notes) out.notes.push_back(source + ": " + note);
  return out;
}

Json json_of(const GgufVocabulary& vocabulary, const GgufRoles& roles, const std::string& source) {
  const bool pieces = vocabulary.model == "llama";
  Json vocab = Json::object(), added = Json::array(), unknown;
  for (std::size_t token = 0; token < vocabulary.tokens.size(); ++token) {
    const std::string text = text_of(vocabulary, token);
    const auto [at, fresh] = vocab.emplace(text, token);
    if (!fresh)
      fail(source, "tokens", "'" + text + "' is both " + at->dump() + " and " + std::to_string(token));
    const auto type = roles.types[token];
    const bool special = type == GgufVocabulary::unknown || type == GgufVocabulary::control;
    if (pieces && type == GgufVocabulary::unknown) unknown = text;
    if (special || type == GgufVocabulary::user_defined)
      added.push_back({{"id", token},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", special}});
  }
  Json out{{"version", "1.0"}, {"added_tokens", std::move(added)}, {"post_processor", nullptr}};
  Json& model = out["model"];
  model = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"byte_fallback", pieces}, {"fuse_unk", pieces}};
  if (pieces) {
    out["normalizer"] = normalizer(vocabulary);
    out["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}]})");
    if (vocabulary.adds_space.value_or(true))
      out["decoder"]["decoders"].push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    model["unk_token"] = std::move(unknown);
    model["merges"] = merges_of_scores(vocabulary, roles.types);
  } else {
    const Pre& pre = pre_of(vocabulary, source);
    if (pre.nfc) out["normalizer"] = {{"type", "NFC"}};
    out["pre_tokenizer"] = pre_tokenizer(pre);
    out["decoder"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    model["ignore_merges"] = pre.whole_words;
    model["merges"] = merges_of(vocabulary, source);
  }
  const TokenFiles files = files_of(vocabulary, roles, source);
  if (*files.adds_begin && files.begin) {
    const std::string& text = files.begin->text;
    out["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", Json::array({{{"SpecialToken", {{"id", text}, {"type_id", 0}}}},
                                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
        {"pair", Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}})},
        {"special_tokens", {{text, {{"id", text}, {"ids", {*roles.begin}}, {"tokens", {text}}}}}}};
  }
  return out;
}

}  // namespace

Json tokenizer_json(const GgufVocabulary& vocabulary, const std::string& source) {
  check_vocabulary(vocabulary, source);
  return json_of(vocabulary, gguf_roles(vocabulary), source);
}

Tokenizer make_gguf_tokenizer(const GgufVocabulary& vocabulary, const std::string& source) {
  check_vocabulary(vocabulary, source);
  const GgufRoles roles = gguf_roles(vocabulary);
  return make_json_tokenizer(json_of(vocabulary, roles, source), source, files_of(vocabulary, roles, source),
                             ranks_of(vocabulary));
}

Tokenizer read_gguf_tokenizer(const std::filesystem::path& path) {
  const auto file = specula::files::Gguf::open(path);
  return make_gguf_tokenizer(read_gguf_vocabulary(file), file.source());
}

}  // namespace specula_tools
