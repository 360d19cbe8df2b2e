// SPDX-License-Identifier: MIT
// Every key of a vocabulary that libllama warns about or overrides: our own reader has its tokens, begin and
// ends, and says what it read otherwise than the file says.
#include "gguf_tokenizer.hpp"

#include <specula/llama_cpp/text.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../files/safetensors_writer.hpp"
#include "byte_alphabet.hpp"
#include "skip.hpp"
#include "stop_tokens.hpp"
#include "text_pattern.hpp"
#include "tiny_gguf.hpp"

using namespace specula_test;
using specula::Token;
using specula::llama_cpp::end_tokens;
using specula::llama_cpp::token_bytes;
using specula_tools::Tokenizer;
using Tokens = std::vector<Token>;

namespace {

constexpr std::uint32_t kNone = 4294967295;
constexpr int kNormal = 1, kControl = 3, kUser = 4, kUnused = 5;

/// A file of a vocabulary alone.
struct File {
  std::string model;
  std::vector<std::pair<std::string, int>> tokens = {};  // text and type
  std::vector<std::string> merges = {};                  // of gpt2
  std::map<std::string, std::string> texts = {};         // keys after "tokenizer.ggml."
  std::map<std::string, std::uint32_t> numbers = {};
  std::map<std::string, bool> flags = {};

  Token add(const std::string& text, int type) {
    tokens.emplace_back(text, type);
    return static_cast<Token>(tokens.size()) - 1;
  }
};

/// Bytes, words and two control tokens, which begin and end a text.
File words_of_bytes(const std::string& pre) {
  File out{.model = "gpt2", .texts = {{"pre", pre}}};
  for (int byte = 0; byte < 256; ++byte)
    out.add(specula_tools::spell_bytes(std::string(1, static_cast<char>(byte))), kNormal);
  for (const char* word : {"\xc4\xa0t", "he", "\xc4\xa0the", "12", "123",
                           "\xc4\xa0"
                           "12",
                           "\xc4\x8a\xc4\x8a", "'s", "the", "no", "\xc4\xa0\xc4\xa0", "\xc4\xa0whole"})
    out.add(word, kNormal);
  out.merges = {"\xc4\xa0 t", "h e",         "\xc4\xa0t he",      "1 2",
                "12 3",       "\xc4\xa0 12", "\xc4\x8a \xc4\x8a", "' s",
                "t he",       "n o",         "\xc4\xa0 \xc4\xa0"};
  out.numbers["bos_token_id"] = static_cast<std::uint32_t>(out.add("<|begin|>", kControl));
  out.numbers["eos_token_id"] = static_cast<std::uint32_t>(out.add("<|stop|>", kControl));
  return out;
}

/// Pieces of SentencePiece.
File pieces() {
  File out{.model = "llama"};
  out.add("<unk>", 2), out.add("<s>", kControl), out.add("</s>", kControl);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    out.add(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 6);
  }
  for (const char* piece :
       {"\xe2\x96\x81t", "he", "\xe2\x96\x81the", "12", "\xe2\x96\x81", "t", "h", "e", "1", "2"})
    out.add(piece, kNormal);
  out.numbers = {{"bos_token_id", 1}, {"eos_token_id", 2}};
  return out;
}

class Files {
 public:
  Files() { quiet(); }

  /// That both readers agree; the notes of ours.
  std::vector<std::string> check(const File& file) {
    const auto path = directory_.path / (std::to_string(files_++) + ".gguf");
    write(file, path);
    auto params = llama_model_default_params();
    params.vocab_only = true;
    const auto model = specula::llama_cpp::load(path, params);
    const llama_vocab* vocab = llama_model_get_vocab(model.get());
    const Tokenizer tokenizer(path);
    CHECK(tokenizer.ends() == end_tokens(vocab));
    CHECK(specula_tools::read_stop_tokens(path) == tokenizer.ends());  // the trainer's
    CHECK(tokenizer.adds_begin() == llama_vocab_get_add_bos(vocab));
    if (tokenizer.adds_begin()) CHECK(tokenizer.begin() == llama_vocab_bos(vocab));
    const auto theirs = [&](const std::string& text, bool begins, bool special) {
      Tokens out(text.size() + 8);
      out.resize(static_cast<std::size_t>(
          llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), out.data(),
                         static_cast<std::int32_t>(out.size()), begins, special)));
      return out;
    };
    std::vector<std::string> texts{"the 1234 the's\n\n no  the", "  12,345 whole\t(the)",
                                   "THE'S the\xc3\xa9 \xe6\x97\xa5", "a \n\n  b", "\xf0\x9f\x99\x82 12"};
    for (const auto& [text, type] : file.tokens)
      if (text.size() > 3 && text.back() == '>' && text.find("0x") == text.npos)
        texts.push_back("the" + text + "12");
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK(tokenizer.encode(text) == theirs(text, true, false));
      CHECK(tokenizer.encode_chat(text) == theirs(text, false, true));
    }
    for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
      CAPTURE(token);
      if (const auto type = file.tokens[static_cast<std::size_t>(token)].second; type != kUnused && type != 2)
        CHECK(tokenizer.bytes(token) == token_bytes(vocab, token));
    }
    return tokenizer.notes();
  }

 private:
  static void write(const File& file, const std::filesystem::path& path) {
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> out(gguf_init_empty(), &gguf_free);
    const std::string at = "tokenizer.ggml.";
    gguf_set_val_str(out.get(), "general.architecture", "llama");
    gguf_set_val_str(out.get(), (at + "model").c_str(), file.model.c_str());
    gguf_set_val_u32(out.get(), "llama.vocab_size", static_cast<std::uint32_t>(file.tokens.size()));
    std::vector<const char*> texts, merges;
    std::vector<float> scores;
    std::vector<std::int32_t> types;
    for (const auto& [text, type] : file.tokens) {
      texts.push_back(text.c_str());
      scores.push_back(-static_cast<float>(scores.size()));
      types.push_back(type);
    }
    for (const std::string& merge : file.merges) merges.push_back(merge.c_str());
    gguf_set_arr_str(out.get(), (at + "tokens").c_str(), texts.data(), texts.size());
    gguf_set_arr_data(out.get(), (at + "token_type").c_str(), GGUF_TYPE_INT32, types.data(), types.size());
    if (file.model == "llama")
      gguf_set_arr_data(out.get(), (at + "scores").c_str(), GGUF_TYPE_FLOAT32, scores.data(), scores.size());
    else
      gguf_set_arr_str(out.get(), (at + "merges").c_str(), merges.data(), merges.size());
    for (const auto& [key, text] : file.texts) gguf_set_val_str(out.get(), (at + key).c_str(), text.c_str());
    for (const auto& [key, number] : file.numbers) gguf_set_val_u32(out.get(), (at + key).c_str(), number);
    for (const auto& [key, flag] : file.flags) gguf_set_val_bool(out.get(), (at + key).c_str(), flag);
    if (!gguf_write_to_file(out.get(), path.string().c_str(), true))
      throw std::runtime_error("cannot write " + path.string());
  }

  TemporaryDirectory directory_{"llama_cpp_gguf_vocabulary"};
  int files_ = 0;
};

bool says(const std::vector<std::string>& notes, const std::string& what) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(what) != note.npos; });
}

}  // namespace

TEST_CASE("every name of how texts are cut into words that is read") {
  if (!specula_tools::TextPattern::has_regular_expressions()) return skip("no Oniguruma");
  Files files;
  for (const char* pre : {"gpt-2",
                          "phi-2",
                          "olmo",
                          "mpt",
                          "jais",
                          "trillion",
                          "granite-docling",
                          "exaone4",
                          "jina-es",
                          "jina-de",
                          "jina-v2-es",
                          "jina-v2-de",
                          "gigachat",
                          "a.x-4.0",
                          "mellum",
                          "modern-bert",
                          "smollm",
                          "starcoder",
                          "refact",
                          "command-r",
                          "codeshell",
                          "exaone",
                          "minerva-7b",
                          "mellum2",
                          "llama-bpe",
                          "llama3",
                          "llama-v3",
                          "falcon3",
                          "falcon-h1",
                          "pixtral",
                          "midm-2.0",
                          "lfm2",
                          "jina-v5-nano",
                          "dbrx",
                          "smaug-bpe",
                          "chatglm-bpe",
                          "qwen2",
                          "deepseek-r1-qwen",
                          "megrez",
                          "kormo",
                          "f2llmv2",
                          "stablelm2",
                          "hunyuan",
                          "solar-open",
                          "grok-2",
                          "tekken",
                          "default"}) {
    CAPTURE(pre);
    CHECK(files.check(words_of_bytes(pre)).empty());
  }
}

TEST_CASE("no name of it: as 'default', with a note") {
  if (!specula_tools::TextPattern::has_regular_expressions()) return skip("no Oniguruma");
  Files files;
  File file = words_of_bytes("");
  file.texts.clear();
  const auto notes = files.check(file);
  CHECK(notes.size() == 1);
  CHECK(says(
      notes,
      ".gguf: no key 'tokenizer.ggml.pre': texts are cut into words as by 'default', which may not be how"));
}

TEST_CASE("ends and control tokens, whatever their types") {
  Files files;
  for (const bool bytes : {false, true})
    for (const char* text :
         {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<|fim_prefix|>",
          "<fim_suffix>", "<MID>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|end_of_text|>", "<eos>",
          "<turn|>", "<|start|>", "<|channel|>"})
      for (const int type : {kNormal, kControl, kUser}) {
        File file = bytes ? words_of_bytes("smollm") : pieces();
        file.add(text, type);
        CAPTURE(text);
        CAPTURE(type);
        const bool word = std::string(text) == "<|start|>" || std::string(text) == "<|channel|>";
        CHECK(files.check(file).size() == (type == kNormal && !word ? 1 : 0));
      }
  File file = pieces();
  const Token end = file.add("<|im_end|>", kNormal);
  CHECK(says(files.check(file), "token " + std::to_string(end) +
                                    " '<|im_end|>' is no control token in the file, but is one by its text"));
}

TEST_CASE("numbers that are no tokens count as absent, with a note") {
  Files files;
  for (const bool bytes : {false, true})
    for (const char* key :
         {"bos_token_id", "eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_sep_token_id"})
      for (const std::uint32_t number : {kNone, 100'000u}) {
        File file = bytes ? words_of_bytes("smollm") : pieces();
        file.numbers[key] = number;
        CAPTURE(key);
        CAPTURE(bytes);
        const auto notes = files.check(file);
        CHECK(notes.size() == 1);
        CHECK(says(notes, std::string("key 'tokenizer.ggml.") + key + "': " + std::to_string(number) +
                              " is none of "));
      }
  // SentencePiece's usual end, as where the key is absent.
  for (const bool absent : {false, true}) {
    File file = pieces();
    file.numbers["eos_token_id"] = kNone;
    if (absent) file.numbers.erase("eos_token_id"), file.numbers.erase("bos_token_id");
    CHECK(files.check(file).size() == (absent ? 0 : 1));
  }
}

TEST_CASE(
    "several ends: those of the keys and those by text, but for words of vocabularies that have other ends") {
  Files files;
  File file = pieces();
  file.numbers["eot_token_id"] = static_cast<std::uint32_t>(file.add("<turn>", kNormal));
  file.add("<|im_end|>", kControl);
  CHECK(files.check(file).empty());

  for (const std::vector<const char*>& texts : {std::vector<const char*>{"<|return|>", "<|call|>", "<|end|>"},
                                                {"<|calls|>", "<|flush|>", "<|end|>"},
                                                {"<|call|>", "<|end|>"}}) {
    file = pieces();
    for (const char* text : texts) file.add(text, kControl);
    CHECK(says(files.check(file), "'<|end|>' ends no text") == (texts.size() == 3));
  }
  file = words_of_bytes("smollm");
  file.add("</s>", kControl), file.add("<|tool_response>", kControl);
  CHECK(says(files.check(file), "'</s>' ends no text"));
}

TEST_CASE("flags") {
  Files files;
  for (const bool begins : {false, true}) {
    File file = pieces();
    file.flags = {{"add_bos_token", begins}, {"add_space_prefix", begins}};
    CHECK(files.check(file).empty());
    file = words_of_bytes("llama-bpe");
    file.flags = {{"add_bos_token", begins}};
    CHECK(files.check(file).empty());
  }
}
