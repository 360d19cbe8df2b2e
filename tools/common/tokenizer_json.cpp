// SPDX-License-Identifier: MIT
// tokenizer.json as Hugging Face's `tokenizers` writes it: a text is searched for added tokens, normalized,
// cut into words, and the words are encoded in pairs.
#include "tokenizer_json.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <specula/files/json_fields.hpp>

#include "added_tokens.hpp"
#include "byte_alphabet.hpp"
#include "files.hpp"
#include "normalizer.hpp"
#include "pair_encoding.hpp"
#include "pre_tokenizer.hpp"

namespace specula_tools {
namespace {

using specula::kNoToken;
using specula::Token;
using specula::files::Json;
using specula::files::JsonFields;
namespace fs = std::filesystem;

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// The token that a post_processor puts in front of a text, if there is one.
Token read_post_processor(const JsonFields& part) {
  const std::string type = part.text("type");
  if (type == "ByteLevel") return kNoToken;  // moves offsets only
  if (type == "Sequence") {
    Token out = kNoToken;
    for (const JsonFields& inner : part.objects("processors"))
      if (const Token token = read_post_processor(inner); token != kNoToken) {
        if (out != kNoToken)
          refuse_tokenizer(part, "a post_processor that puts other tokens than one in front of the text");
        out = token;
      }
    return out;
  }
  if (type != "TemplateProcessing") refuse_tokenizer(part, "a post_processor " + type);
  const auto single = part.objects("single");
  const bool begins = single.size() == 2 && single.front().find("SpecialToken");
  if (single.empty() || single.size() != (begins ? 2u : 1u) || !single.back().find("Sequence"))
    refuse_tokenizer(part, "a post_processor that puts other tokens than one in front of the text");
  if (!begins) return kNoToken;
  const std::string name = single.front().object("SpecialToken").text("id");
  const auto tokens = part.object("special_tokens").object(name).integers("ids");
  if (tokens.size() != 1)
    refuse_tokenizer(part, "a post_processor that puts other tokens than one in front of the text");
  return tokens.front();
}

/// The added tokens that are found in a text, and those found in a normalized text.
struct AddedSets {
  AddedTokens raw, normal;
};

class JsonTokenizer {
 public:
  JsonTokenizer(const JsonFields& file, const TokenFiles& files, std::span<const std::uint32_t> ranks) {
    const JsonFields model = file.object("model");
    if (const auto type = model.text("type", "BPE"); type != "BPE") refuse_tokenizer(file, "a model " + type);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!model.text(key, "").empty()) refuse_tokenizer(file, key);
    if (model.number("dropout", 0) != 0) refuse_tokenizer(file, "dropout");
    if (file.find("normalizer")) normalizer_ = Normalizer(file.object("normalizer"));
    if (file.find("pre_tokenizer")) pre_tokenizer_ = PreTokenizer(file.object("pre_tokenizer"));
    if (!pre_tokenizer_.byte_level() && !pre_tokenizer_.marks_spaces() && normalizer_("a b") == "a b")
      refuse_tokenizer(file, "a tokenizer whose normalizer and pre_tokenizer leave spaces as they are");
    read_model(file, model, files, ranks);
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
    out.bytes = bytes_;
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
      if (index(end) < added_.size() && added_[index(end)]) out.bytes[index(end)].clear();
    return out;
  }

  std::vector<Token> encode(std::string_view text, bool controls) const {
    const AddedSets& sets = controls ? with_controls_ : without_controls_;
    std::vector<Token> out;
    bool first = true;
    const auto put = [&](Token token) {
      out.push_back(token);
      first = false;
    };
    sets.raw.split(
        text,
        [&](std::string_view part) {
          const std::string normal = normalizer_(part);
          sets.normal.split(
              normal,
              [&](std::string_view rest) {
                pre_tokenizer_(std::string(rest), first).for_each([&](std::string_view word) {
                  pairs_.encode(word, out);
                });
                first = false;
              },
              put);
        },
        put);
    return out;
  }

 private:
  static std::size_t index(Token token) { return static_cast<std::size_t>(token); }

  void put_piece(const std::string& piece, Token token, std::string bytes, bool added) {
    if (pieces_.size() <= index(token)) {
      pieces_.resize(index(token) + 1);
      bytes_.resize(pieces_.size());
      added_.resize(pieces_.size());
    }
    pieces_[index(token)] = piece;
    bytes_[index(token)] = std::move(bytes);
    added_[index(token)] = added;
  }

  /// What a word must hold for this token: a byte-level vocabulary spells bytes.
  std::optional<std::string> in_words(const std::string& piece) const {
    return pre_tokenizer_.byte_level() ? spelled_bytes(piece) : piece;
  }

  void read_model(const JsonFields& file, const JsonFields& model, const TokenFiles& files,
                  std::span<const std::uint32_t> ranks) {
    const JsonFields vocabulary = model.object("vocab");
    const auto entries = file.objects("added_tokens");
    // Numbers may have gaps, but not so many that a small file takes all memory.
    limit_ = vocabulary.json().size() + entries.size() + files.added.size() + (std::size_t{1} << 16);
    const bool falls_back = model.flag("byte_fallback");
    PairEncoding::Vocabulary words;
    words.reserve(vocabulary.json().size());
    for (const auto& [piece, value] : vocabulary.json().items()) {
      const auto* const plain = value.get_ptr<const Json::number_unsigned_t*>();
      const Token token = plain && *plain < limit_ ? static_cast<Token>(*plain) : number(vocabulary, piece);
      auto spelled = in_words(piece);
      put_piece(piece, token,
                pre_tokenizer_.byte_level() ? spelled.value_or(piece) : bytes_of_piece(piece, falls_back),
                false);
      if (spelled) words[std::move(*spelled)] = token;
    }
    const std::vector<AddedToken> added = read_added(entries, files);
    const Token unknown = read_unknown(model, words, added);
    if (unknown != kNoToken && index(unknown) < bytes_.size() && !pre_tokenizer_.byte_level())
      bytes_[index(unknown)] = kReplacement;
    set_added(added, falls_back, unknown);
    pairs_ = PairEncoding(std::move(words), {.bytes = pre_tokenizer_.byte_level(),
                                             .whole_words = model.flag("ignore_merges"),
                                             .byte_fallback = falls_back,
                                             .fuses_unknown = model.flag("fuse_unk"),
                                             .unknown = unknown});
    if (pre_tokenizer_.byte_level() && falls_back && !pairs_.knows_all_bytes())
      refuse_tokenizer(file, "byte_fallback of a byte-level vocabulary without some bytes");
    read_merges(model, ranks);
  }

  /// Of the vocabulary, or an added token.
  Token read_unknown(const JsonFields& model, const PairEncoding::Vocabulary& words,
                     const std::vector<AddedToken>& added) const {
    if (!model.find("unk_token")) return kNoToken;
    const std::string piece = model.text("unk_token");
    if (const auto spelled = in_words(piece))
      if (const auto own = words.find(*spelled); own != words.end()) return own->second;
    const auto other = std::find_if(added.begin(), added.end(),
                                    [&](const AddedToken& token) { return token.text == piece; });
    if (other == added.end()) model.fail("unk_token", "token '" + piece + "' is not in the vocabulary");
    return other->token;
  }

  Token number(const JsonFields& object, const std::string& key) const {
    const Token token = object.integer(key);
    if (index(token) >= limit_)
      object.fail(key, std::to_string(token) + ", expected less than " + std::to_string(limit_) +
                           " for so many tokens");
    return token;
  }

  /// Of the file, then those beside it.
  std::vector<AddedToken> read_added(const std::vector<JsonFields>& entries, const TokenFiles& files) const {
    std::vector<AddedToken> out;
    std::set<Token> has;
    for (const JsonFields& entry : entries) {
      out.push_back(read_added_token(entry, number(entry, "id")));
      has.insert(out.back().token);
    }
    for (const AddedToken& beside : files.added) {
      if (has.contains(beside.token)) continue;
      if (index(beside.token) >= limit_)
        throw std::runtime_error("added token '" + beside.text + "': number " + std::to_string(beside.token) +
                                 ", expected less than " + std::to_string(limit_) + " for so many tokens");
      out.push_back(beside);
    }
    return out;
  }

  void set_added(const std::vector<AddedToken>& added, bool falls_back, Token unknown) {
    std::vector<AddedToken> raw, normal;
    for (AddedToken token : added) {
      const std::string bytes =
          pre_tokenizer_.byte_level() ? token.text : bytes_of_piece(token.text, falls_back);
      const bool is_unknown = token.token == unknown && !pre_tokenizer_.byte_level();
      put_piece(token.text, token.token,
                is_unknown      ? std::string(kReplacement)
                : token.special ? std::string()
                                : bytes,
                true);
      if (token.normalized) token.text = normalizer_(token.text);
      (token.normalized ? normal : raw).push_back(std::move(token));
    }
    without_controls_ = {AddedTokens(raw), AddedTokens(normal)};
    with_controls_ = {AddedTokens(std::move(raw), true), AddedTokens(std::move(normal), true)};
  }

  void read_merges(const JsonFields& model, std::span<const std::uint32_t> ranks) {
    constexpr const char* kKey = "merges";
    const Json& merges = model.array(kKey, "merges");
    const auto in_vocabulary = [&](const std::string& piece) {
      auto spelled = in_words(piece);
      const Token token = spelled ? pairs_.find(*spelled) : kNoToken;
      if (token == kNoToken) model.fail(kKey, "token '" + piece + "' is not in the vocabulary");
      return std::pair(std::move(*spelled), token);
    };
    pairs_.reserve(merges.size());
    std::uint32_t rank = 0;
    for (const Json& entry : merges) {
      std::pair<std::string, Token> left, right;
      if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = in_vocabulary(entry[0].get_ref<const std::string&>());
        right = in_vocabulary(entry[1].get_ref<const std::string&>());
      } else if (entry.is_string()) {
        const auto& text = entry.get_ref<const std::string&>();
        const auto space = text.find(' ');
        if (space == std::string::npos) model.fail(kKey, "'" + text + "' has no space");
        left = in_vocabulary(text.substr(0, space));
        right = in_vocabulary(text.substr(space + 1));
      } else {
        model.fail(kKey, "expected two pieces", entry);
      }
      const std::string whole = left.first + right.first;
      const Token result = pairs_.find(whole);
      if (result == kNoToken)
        model.fail(kKey, "token '" + (pre_tokenizer_.byte_level() ? spell_bytes(whole) : whole) +
                             "' is not in the vocabulary");
      pairs_.merge(left.second, right.second, result, ranks.empty() ? rank++ : ranks[index(result)]);
    }
  }

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  PairEncoding pairs_;
  std::vector<std::string> pieces_, bytes_;
  std::vector<bool> added_;
  AddedSets with_controls_, without_controls_;
  std::size_t limit_ = 0;
  Token in_front_ = kNoToken;
  bool post_processed_ = false;
};

}  // namespace

Tokenizer make_json_tokenizer(const Json& json, const std::string& source, const TokenFiles& files,
                              std::span<const std::uint32_t> ranks) {
  const auto made = std::make_shared<const JsonTokenizer>(JsonFields(json, source), files, ranks);
  Tokenizer::Parts parts = made->parts(files, source);
  parts.encode = [made](std::string_view text, bool controls) { return made->encode(text, controls); };
  return Tokenizer(std::move(parts));
}

Tokenizer read_tokenizer_json(const fs::path& file) {
  const TokenFiles files = read_token_files(file.parent_path());
  return make_json_tokenizer(specula::files::parse_json(read_file(file), file.string()), file.string(),
                             files);
}

}  // namespace specula_tools
