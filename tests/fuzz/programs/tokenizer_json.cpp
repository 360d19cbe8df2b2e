// SPDX-License-Identifier: MIT
// Fuzzes tokenizers: any bytes, as tokenizer.json or as the vocabulary of a GGUF file, give an error or a
// tokenizer, which gives tokens of its vocabulary for any text.
#include "tokenizer_json.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz_seeds.hpp"
#include "gguf_tokenizer.hpp"

namespace {

using namespace specula_tools;

void require(bool ok) {
  if (!ok) std::abort();
}

constexpr std::string_view kSeeds[] = {
    R"({"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":9,"content":" t","special":false,"lstrip":true,"rstrip":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},{"type":"Replace","pattern":{"String":" "},"content":"\u2581"},{"type":"NFC"}]},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[0]}}},"model":{"type":"BPE","unk_token":"<s>","fuse_unk":true,"byte_fallback":true,"vocab":{"<s>":0,"a":1,"b":2,"ab":3,"\u2581":4,"\u2581ab":5,"<0xC3>":6,"<0xA9>":7},"merges":["a b",["\u2581","ab"]]}})",
    R"({"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":9,"content":"x","single_word":true}],"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t)|\\p{L}+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]},"model":{"type":"BPE","ignore_merges":true,"vocab":{"<s>":0,"a":1,"b":2,"ab":3,"\u0120":4,"\u0120ab":5,"s":6},"merges":["a b","\u0120 ab"]}})",
    R"({"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":true},"model":{"vocab":{"a":1,"\u2581":0,"\u2581a":2},"merges":["\u2581 a"]}})",
    "l\n<unk>\n<s>\n</s>\n<0x0A>\na\nb\nab\n\xe2\x96\x81\n\xe2\x96\x81"
    "ab\n",
    "ggpt-2\na\nb\nab\n\xc4\xa0\n<|endoftext|>\na b\n",
    "gqwen2\na\nb\n\xc3\x83\n\xc3\xa9\n\xc3\x83\xc3\xa9\nab\na b\n\xc3\x83 \xc3\xa9\n",
};

void use(const Tokenizer& tokenizer, const std::string& text) {
  require(tokenizer.pieces().size() == static_cast<std::size_t>(tokenizer.vocab_size()));
  for (const auto& tokens : {tokenizer.encode(text), tokenizer.encode_chat(text)}) {
    for (const specula::Token token : tokens) require(token >= 0 && token < tokenizer.vocab_size());
    require(tokenizer.decode(tokens).size() <= 64 * 4096 * tokens.size());
  }
}

/// "l" or "g" and the pre-tokenizer; a line a token, or a merge if it has a space.
GgufVocabulary vocabulary(std::string_view lines) {
  GgufVocabulary out{.model = lines.starts_with('l') ? "llama" : "gpt2", .begin = 0, .end = 1};
  bool first = true;
  while (!lines.empty()) {
    const std::string line(lines.substr(0, lines.find('\n')));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (first) {
      out.pre = line.substr(std::min<std::size_t>(line.size(), 1));
    } else if (line.find(' ') != line.npos) {
      out.merges.push_back(line);
    } else {
      out.tokens.push_back(line);
      out.types.push_back(line.starts_with("<0x") ? 6
                          : line.starts_with('<') ? 3
                          : line.starts_with('[') ? 4
                                                  : 1);
      out.scores.push_back(line.size() > 3 ? 0.0f : -static_cast<float>(out.tokens.size()));
    }
    first = false;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    TokenFiles files;
    files.stop_tokens = {0};
    const Tokenizer tokenizer =
        bytes.starts_with('l') || bytes.starts_with('g')
            ? make_gguf_tokenizer(vocabulary(bytes), "fuzz")
            : make_json_tokenizer(specula::files::parse_json(bytes, "fuzz"), "fuzz", files);
    for (const std::string text : {"<s>ab x \xc3\xa9 ab's  12<s>", "", "\xff\xe2\x96\x81\xe6\x97"})
      use(tokenizer, text);
    use(tokenizer, bytes.substr(0, 300));
  } catch (const std::runtime_error&) {
  }
  return 0;
}

extern "C" std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data, std::size_t capacity) {
  return specula_test::write_seed(kSeeds, index, data, capacity);
}
