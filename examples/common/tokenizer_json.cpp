// Byte-pair encoding from tokenizer.json. The rules are those of Hugging Face's `tokenizers` (models/bpe:
// merge_word, Word::merge_all), where pairs merge by the rank of the pair; SentencePiece goes by the result.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <specula/cpu/json_fields.hpp>

#include "added_tokens.hpp"
#include "files.hpp"
#include "token_files.hpp"
#include "tokenizer.hpp"

namespace specula_examples {
namespace {

using specula::kNoToken;
using specula::Token;
using specula::cpu::Json;
using specula::cpu::JsonFields;
namespace fs = std::filesystem;

constexpr std::string_view kSpace = "\xe2\x96\x81";

[[noreturn]] void refuse(const JsonFields& file, const std::string& what) {
  throw std::runtime_error(file.source().substr(0, file.source().find(": key '")) + ": " + what +
                           " is not read, only byte-pair encoding as Llama 1 and 2 have it; put the "
                           "SentencePiece model beside it as tokenizer.model, or run the model as a GGUF "
                           "file in specula-llama");
}

/// How text is prepared before pairs merge.
struct Preparation {
  bool normal_spaces = false;  // a normalizer makes spaces U+2581
  bool prefix = false;         // and puts one in front of the text
  bool spaces = false;         // a pre_tokenizer makes spaces U+2581
  bool prefix_first = false;   // and puts one in front of the text, unless it begins with one
  bool prefix_each = false;    // and in front of what follows an added token
  bool words = false;          // no merge across the beginning of a word

  /// As the normalizer leaves a part of the text.
  std::string normalize(std::string_view text) const {
    std::string out = with_spaces(text, normal_spaces);
    if (prefix && !out.empty()) out.insert(0, kSpace);
    return out;
  }
  /// As the pre_tokenizer leaves a normalized part; `first` begins the text.
  std::string prepare(std::string_view text, bool first) const {
    std::string out = with_spaces(text, spaces);
    if ((first ? prefix_first : prefix_each) && !out.empty() && !out.starts_with(kSpace))
      out.insert(0, kSpace);
    return out;
  }

 private:
  static std::string with_spaces(std::string_view text, bool replaces) {
    if (!replaces) return std::string(text);
    std::string out;
    for (const char byte : text) byte == ' ' ? out.append(kSpace) : out.append(1, byte);
    return out;
  }
};

void read_normalizer(const JsonFields& part, Preparation& out) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonFields& inner : part.objects("normalizers")) read_normalizer(inner, out);
  } else if (type == "Prepend" && part.text("prepend") == kSpace) {
    out.prefix = true;
  } else if (type == "Replace" && part.object("pattern").json() == Json{{"String", " "}} &&
             part.text("content") == kSpace) {
    out.normal_spaces = true;
  } else {
    refuse(part, "a normalizer " + type);
  }
}

void read_pre_tokenizer(const JsonFields& part, Preparation& out) {
  const std::string type = part.text("type");
  if (type == "Sequence")
    if (const auto inner = part.objects("pretokenizers"); inner.size() == 1)
      return read_pre_tokenizer(inner.front(), out);
  if (type != "Metaspace" || part.text("replacement") != kSpace) refuse(part, "a pre_tokenizer " + type);
  out.spaces = true;
  const auto scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  out.prefix_first = scheme != "never";
  out.prefix_each = scheme == "always";
  out.words = part.flag("split", true);
}

/// The token that a post_processor puts in front of a text, if there is one.
Token read_post_processor(const JsonFields& part) {
  const std::string type = part.text("type");
  if (type == "Sequence")
    if (const auto inner = part.objects("processors"); inner.size() == 1)
      return read_post_processor(inner.front());
  if (type != "TemplateProcessing") refuse(part, "a post_processor " + type);
  const auto single = part.objects("single");
  const bool begins = single.size() == 2 && single.front().find("SpecialToken");
  if (single.empty() || single.size() != (begins ? 2u : 1u) || !single.back().find("Sequence"))
    refuse(part, "a post_processor that puts other tokens than one in front of the text");
  if (!begins) return kNoToken;
  const std::string name = single.front().object("SpecialToken").text("id");
  const auto tokens = part.object("special_tokens").object(name).integers("ids");
  if (tokens.size() != 1)
    refuse(part, "a post_processor that puts other tokens than one in front of the text");
  return tokens.front();
}

class PairEncoding {
 public:
  PairEncoding(const JsonFields& file, const TokenFiles& files) {
    const JsonFields model = file.object("model");
    if (const auto type = model.text("type", "BPE"); type != "BPE") refuse(file, "a model " + type);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!model.text(key, "").empty()) refuse(file, key);
    if (model.flag("ignore_merges")) refuse(file, "ignore_merges");
    if (file.find("normalizer")) read_normalizer(file.object("normalizer"), preparation_);
    if (file.find("pre_tokenizer")) read_pre_tokenizer(file.object("pre_tokenizer"), preparation_);
    if (!preparation_.normal_spaces && !preparation_.spaces)
      refuse(file, "a tokenizer whose normalizer and pre_tokenizer leave spaces as they are");
    const JsonFields vocabulary = model.object("vocab");
    for (const auto& [piece, _] : vocabulary.json().items()) add(piece, number(vocabulary, piece), true);
    read_added(file, files);
    read_merges(model);
    fuses_ = model.flag("fuse_unk");
    if (model.find("unk_token")) unknown_ = known(model.text("unk_token"), model, "unk_token");
    if (model.flag("byte_fallback")) find_bytes();
    if (file.find("post_processor")) {
      post_processed_ = true;
      in_front_ = read_post_processor(file.object("post_processor"));
      if (in_front_ != kNoToken && index(in_front_) >= pieces_.size())
        file.fail("post_processor", std::to_string(in_front_) + " is no token");
    }
  }

  /// All but `encode`. Throws std::runtime_error naming the file that is at fault.
  Tokenizer::Parts parts(const TokenFiles& files, const std::string& source) const {
    Tokenizer::Parts out;
    out.pieces = pieces_;
    out.bytes = bytes();
    const auto or_none = [&](const char* piece) {
      const auto found = std::find(pieces_.begin(), pieces_.end(), piece);
      return found == pieces_.end() ? kNoToken : static_cast<Token>(found - pieces_.begin());
    };
    out.begin = in_front_ != kNoToken ? in_front_ : or_none("<s>");
    out.adds_begin = in_front_ != kNoToken;
    if (!files.end) out.end = or_none("</s>");
    name_roles(files, source, out);
    if (post_processed_ && !files.adds_begin) {  // it alone decides
      out.adds_begin = in_front_ != kNoToken;
      if (out.adds_begin) out.begin = in_front_;
    }
    for (const Token end : out.ends)
      if (others_.contains(pieces_.at(index(end)))) out.bytes[index(end)].clear();
    return out;
  }

  std::vector<Token> encode(std::string_view text) const {
    std::vector<Token> out;
    bool first = true;
    const auto put = [&](Token token) {
      out.push_back(token);
      first = false;
    };
    added_.split(
        text,
        [&](std::string_view part) {
          const std::string normal = preparation_.normalize(part);
          added_normal_.split(
              normal,
              [&](std::string_view rest) {
                encode_part(preparation_.prepare(rest, first), out);
                first = false;
              },
              put);
        },
        put);
    return out;
  }

  /// Per token, what it adds to a text.
  std::vector<std::string> bytes() const {
    std::vector<std::string> out;
    for (Token token = 0; index(token) < pieces_.size(); ++token) {
      out.push_back(control_[index(token)] && token != unknown_ ? std::string()
                    : token == unknown_                         ? "\xef\xbf\xbd"
                                        : bytes_of_piece(pieces_[index(token)], !bytes_.empty()));
    }
    return out;
  }

 private:
  struct Merge {
    std::size_t rank;
    Token result;
  };
  struct Symbol {
    Token token;
    std::ptrdiff_t before, after;  // -1: none
  };

  static std::size_t index(Token token) { return static_cast<std::size_t>(token); }
  static std::uint64_t pair(Token left, Token right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  static Token number(const JsonFields& object, const std::string& key) {
    const Token token = object.integer(key);
    if (token > 1 << 24) object.fail(key, std::to_string(token) + ", expected at most 16777216");
    return token;
  }
  Token add(const std::string& piece, Token token, bool from_model) {
    if (pieces_.size() <= index(token)) pieces_.resize(index(token) + 1), control_.resize(index(token) + 1);
    pieces_[index(token)] = piece;
    if (from_model)
      vocabulary_[piece] = token;
    else
      others_[piece] = token;
    return token;
  }
  void read_added(const JsonFields& file, const TokenFiles& files) {
    std::vector<AddedToken> all, raw, normal;
    for (const JsonFields& entry : file.objects("added_tokens"))
      all.push_back(read_added_token(entry, number(entry, "id")));
    for (const AddedToken& beside : files.added)
      if (std::none_of(all.begin(), all.end(), [&](const AddedToken& a) { return a.token == beside.token; }))
        all.push_back(beside);
    for (AddedToken& added : all) {
      add(added.text, added.token, false);
      if (added.special) control_[index(added.token)] = true;
      if (added.normalized) added.text = preparation_.normalize(added.text);
      (added.normalized ? normal : raw).push_back(std::move(added));
    }
    added_ = AddedTokens(std::move(raw));
    added_normal_ = AddedTokens(std::move(normal));
  }
  Token find(const std::string& piece) const {
    const auto found = vocabulary_.find(piece);
    return found == vocabulary_.end() ? kNoToken : found->second;
  }
  Token known(const std::string& piece, const JsonFields& where, const char* key) const {
    Token token = find(piece);
    if (const auto other = others_.find(piece); token == kNoToken && other != others_.end())
      token = other->second;
    if (token == kNoToken) where.fail(key, "token '" + piece + "' is not in the vocabulary");
    return token;
  }

  void read_merges(const JsonFields& model) {
    constexpr const char* kKey = "merges";
    for (const Json& entry : model.array(kKey, "merges")) {
      std::string left, right;
      if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0].get<std::string>(), right = entry[1].get<std::string>();
      } else if (entry.is_string()) {
        const auto text = entry.get<std::string>();
        const auto space = text.find(' ');
        if (space == std::string::npos) model.fail(kKey, "'" + text + "' has no space");
        left = text.substr(0, space), right = text.substr(space + 1);
      } else {
        model.fail(kKey, "expected two pieces", entry);
      }
      const std::size_t rank = merges_.size();
      const Token first = known(left, model, kKey), second = known(right, model, kKey);
      merges_.emplace(pair(first, second), Merge{rank, known(left + right, model, kKey)});
    }
  }

  void find_bytes() {
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; ++b)
      bytes_.push_back(find(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">"));
  }

  void encode_part(std::string_view rest, std::vector<Token>& out) const {
    while (!rest.empty()) {
      const auto next = preparation_.words ? rest.find(kSpace, 1) : std::string_view::npos;
      const auto size = std::min(next, rest.size());
      encode_word(rest.substr(0, size), out);
      rest.remove_prefix(size);
    }
  }

  /// Characters of the vocabulary, of others their bytes, or the unknown token.
  std::vector<Symbol> symbols_of(std::string_view word) const {
    std::vector<Symbol> symbols;
    const auto put = [&](Token token) {
      const auto at = static_cast<std::ptrdiff_t>(symbols.size());
      symbols.push_back({token, at - 1, at + 1});
    };
    bool after_unknown = false;
    while (!word.empty()) {
      std::size_t size = 1;
      while (size < word.size() && (static_cast<unsigned char>(word[size]) & 0xC0) == 0x80) ++size;
      const std::string_view character = word.substr(0, size);
      word.remove_prefix(size);
      const auto spelled = [&](char byte) {
        return !bytes_.empty() && bytes_[static_cast<unsigned char>(byte)] != kNoToken;
      };
      if (const Token token = find(std::string(character)); token != kNoToken) {
        put(token);
      } else if (std::all_of(character.begin(), character.end(), spelled)) {
        for (const char byte : character) put(bytes_[static_cast<unsigned char>(byte)]);
      } else {
        if (unknown_ != kNoToken && !(after_unknown && fuses_)) put(unknown_);
        after_unknown = true;
        continue;
      }
      after_unknown = false;
    }
    if (!symbols.empty()) symbols.back().after = -1;
    return symbols;
  }

  /// O(n log n).
  void encode_word(std::string_view word, std::vector<Token>& out) const {
    std::vector<Symbol> symbols = symbols_of(word);
    using Candidate = std::tuple<std::size_t, std::ptrdiff_t, Token>;  // rank, place of the left one, result
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto at = [&](std::ptrdiff_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    const auto merge_at = [&](std::ptrdiff_t i) {
      return at(i).after < 0 ? merges_.end() : merges_.find(pair(at(i).token, at(at(i).after).token));
    };
    const auto offer = [&](std::ptrdiff_t i) {
      if (const auto merge = merge_at(i); merge != merges_.end())
        queue.emplace(merge->second.rank, i, merge->second.result);
    };
    for (std::ptrdiff_t i = 0; i < std::ssize(symbols); ++i) offer(i);
    while (!queue.empty()) {
      const auto [rank, i, result] = queue.top();
      queue.pop();
      if (at(i).token == kNoToken) continue;
      if (const auto merge = merge_at(i); merge == merges_.end() || merge->second.result != result) continue;
      const std::ptrdiff_t gone = at(i).after;
      at(i).token = result;
      at(i).after = at(gone).after;
      at(gone).token = kNoToken;
      if (at(i).after >= 0) at(at(i).after).before = i;
      if (at(i).before >= 0) offer(at(i).before);
      offer(i);
    }
    for (std::ptrdiff_t i = symbols.empty() ? -1 : 0; i >= 0; i = at(i).after) out.push_back(at(i).token);
  }

  Preparation preparation_;
  std::vector<std::string> pieces_;
  std::vector<bool> control_;
  std::unordered_map<std::string, Token> vocabulary_, others_;  // others: added to the model's
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::vector<Token> bytes_;          // of <0x00> to <0xFF>; empty: unknown characters are not spelled
  AddedTokens added_, added_normal_;  // found in the text, and in the normalized text
  Token unknown_ = kNoToken, in_front_ = kNoToken;
  bool fuses_ = false, post_processed_ = false;
};

}  // namespace

Tokenizer read_tokenizer_json(const fs::path& file) {
  const TokenFiles files = read_token_files(file.parent_path());
  const Json json = specula::cpu::parse_json(read_file(file), file.string());
  const auto pairs = std::make_shared<const PairEncoding>(JsonFields(json, file.string()), files);
  Tokenizer::Parts parts = pairs->parts(files, file.string());
  parts.encode = [pairs](std::string_view text) { return pairs->encode(text); };
  return Tokenizer(std::move(parts));
}

}  // namespace specula_examples
