// Byte-pair encoding from tokenizer.json. The rules are those of Hugging Face's `tokenizers` (models/bpe:
// merge_word, Word::merge_all), where pairs merge by the rank of the pair; SentencePiece goes by the result.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "files.hpp"
#include "tokenizer.hpp"

namespace specula_examples {
namespace {

using nlohmann::json;
using specula::Token;
namespace fs = std::filesystem;

constexpr std::string_view kSpace = "\xe2\x96\x81";
constexpr Token kNone = -1;

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(what +
                           " is not read, only byte-pair encoding as Llama 1 and 2 have it; put the "
                           "SentencePiece model beside it as tokenizer.model, or run the model as a GGUF "
                           "file in specula-llama");
}

/// null counts as absent.
const json& member(const json& object, const char* key) {
  static const json kAbsent;
  const auto found = object.find(key);
  return found == object.end() ? kAbsent : *found;
}
std::string type_of(const json& part) { return part.is_null() ? "null" : part.at("type").get<std::string>(); }

/// How text is prepared before pairs merge.
struct Preparation {
  bool replaces = false;        // spaces become U+2581
  bool prefix = false;          // U+2581 in front of the text
  bool prefix_if_none = false;  // the same, unless it begins with one
  bool words = false;           // no merge across the beginning of a word
};

void read_normalizer(const json& part, Preparation& out) {
  const std::string type = type_of(part);
  if (type == "Sequence") {
    for (const json& inner : part.at("normalizers")) read_normalizer(inner, out);
  } else if (type == "Prepend" && part.at("prepend") == kSpace) {
    out.prefix = true;
  } else if (type == "Replace" && part.at("pattern") == json{{"String", " "}} &&
             part.at("content") == kSpace) {
    out.replaces = true;
  } else if (type != "null") {
    refuse("a normalizer " + type);
  }
}

void read_pre_tokenizer(const json& part, Preparation& out) {
  const std::string type = type_of(part);
  if (type == "null") return;
  if (type == "Sequence" && part.at("pretokenizers").size() == 1)
    return read_pre_tokenizer(part.at("pretokenizers").front(), out);
  if (type != "Metaspace" || part.at("replacement") != kSpace) refuse("a pre_tokenizer " + type);
  out.replaces = true;
  const auto scheme = part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never");
  out.prefix_if_none = scheme != "never";
  out.words = part.value("split", true);
}

class PairEncoding {
 public:
  PairEncoding(const json& file, const fs::path& folder) {
    const json& model = file.at("model");
    if (type_of(model) != "BPE") refuse("a model " + type_of(model));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const json& mark = member(model, key); mark.is_string() && mark != "") refuse(key);
    if (member(model, "ignore_merges") == true) refuse("ignore_merges");
    read_normalizer(member(file, "normalizer"), preparation_);
    read_pre_tokenizer(member(file, "pre_tokenizer"), preparation_);
    if (!preparation_.replaces) refuse("a tokenizer that leaves spaces as they are");
    for (const auto& [piece, id] : model.at("vocab").items()) add(piece, id, true);
    for (const json& added : member(file, "added_tokens")) {
      const Token token = add(added.at("content"), added.at("id"), false);
      if (added.value("special", false)) control_[index(token)] = true;
    }
    read_merges(model.at("merges"));
    fuses_ = member(model, "fuse_unk") == true;
    if (const json& unknown = member(model, "unk_token"); unknown.is_string()) unknown_ = known(unknown);
    if (member(model, "byte_fallback") == true) find_bytes();
    begin_ = role(folder, "bos_token", "<s>");
    end_ = role(folder, "eos_token", "</s>");
  }

  Token begin() const { return begin_; }
  Token end() const { return end_; }

  std::vector<Token> encode(std::string_view text) const {
    std::string prepared;
    for (const char byte : text) byte == ' ' ? prepared.append(kSpace) : prepared.append(1, byte);
    const bool begins = prepared.starts_with(kSpace);
    if (!prepared.empty() && (preparation_.prefix || (preparation_.prefix_if_none && !begins)))
      prepared.insert(0, kSpace);
    std::vector<Token> out;
    for (std::string_view rest = prepared; !rest.empty();) {
      const auto next = preparation_.words ? rest.find(kSpace, 1) : std::string_view::npos;
      const auto size = std::min(next, rest.size());
      encode_word(rest.substr(0, size), out);
      rest.remove_prefix(size);
    }
    return out;
  }

  /// Per token, what it adds to a text.
  std::vector<std::string> bytes() const {
    std::vector<std::string> out;
    for (Token token = 0; index(token) < pieces_.size(); ++token) {
      const bool ends = token == begin_ || token == end_;  // some files do not call these special
      out.push_back(ends || (control_[index(token)] && token != unknown_) ? std::string()
                    : token == unknown_                                   ? "\xef\xbf\xbd"
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

  Token add(const std::string& piece, const json& number, bool from_model) {
    if (!number.is_number_integer() || number < 0 || number > 1 << 24)
      throw std::runtime_error("token '" + piece + "': its number is " + number.dump() +
                               ", must be 0 to 16777216");
    const auto token = number.get<Token>();
    if (pieces_.size() <= index(token)) pieces_.resize(index(token) + 1), control_.resize(index(token) + 1);
    pieces_[index(token)] = piece;
    if (from_model)
      vocabulary_[piece] = token;
    else
      others_[piece] = token;
    return token;
  }
  Token find(const std::string& piece) const {
    const auto found = vocabulary_.find(piece);
    return found == vocabulary_.end() ? kNone : found->second;
  }
  Token known(const std::string& piece) const {
    Token token = find(piece);
    if (const auto other = others_.find(piece); token == kNone && other != others_.end())
      token = other->second;
    if (token == kNone) throw std::runtime_error("token '" + piece + "' is not in the vocabulary");
    return token;
  }

  void read_merges(const json& merges) {
    for (const json& entry : merges) {
      std::string left, right;
      if (entry.is_array()) {
        left = entry.at(0), right = entry.at(1);
      } else {
        const auto text = entry.get<std::string>();
        const auto space = text.find(' ');
        if (space == std::string::npos) throw std::runtime_error("merge '" + text + "' has no space");
        left = text.substr(0, space), right = text.substr(space + 1);
      }
      const std::size_t rank = merges_.size();
      const Token first = known(left), second = known(right);
      merges_.emplace(pair(first, second), Merge{rank, known(left + right)});
    }
  }

  void find_bytes() {
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; ++b)
      bytes_.push_back(find(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">"));
  }

  /// The token that a file beside tokenizer.json names for `key`.
  Token role(const fs::path& folder, const char* key, const char* otherwise) const {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      if (!fs::exists(folder / name)) continue;
      const json config = json::parse(read_file(folder / name));
      const json& value = member(config, key);
      if (value.is_string()) return known(value);
      if (value.is_object()) return known(value.at("content"));
    }
    return known(otherwise);
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
        return !bytes_.empty() && bytes_[static_cast<unsigned char>(byte)] != kNone;
      };
      if (const Token token = find(std::string(character)); token != kNone) {
        put(token);
      } else if (std::all_of(character.begin(), character.end(), spelled)) {
        for (const char byte : character) put(bytes_[static_cast<unsigned char>(byte)]);
      } else {
        if (unknown_ != kNone && !(after_unknown && fuses_)) put(unknown_);
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
      if (at(i).token == kNone) continue;
      if (const auto merge = merge_at(i); merge == merges_.end() || merge->second.result != result) continue;
      const std::ptrdiff_t gone = at(i).after;
      at(i).token = result;
      at(i).after = at(gone).after;
      at(gone).token = kNone;
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
  std::vector<Token> bytes_;  // of <0x00> to <0xFF>; empty: unknown characters are not spelled
  Token unknown_ = kNone, begin_ = kNone, end_ = kNone;
  bool fuses_ = false;
};

}  // namespace

Tokenizer read_tokenizer_json(const fs::path& file) {
  const std::string text = read_file(file);
  try {
    const auto pairs = std::make_shared<const PairEncoding>(json::parse(text), file.parent_path());
    return Tokenizer(pairs->bytes(), pairs->begin(), pairs->end(),
                     [pairs](std::string_view part) { return pairs->encode(part); });
  } catch (const std::exception& error) {
    throw std::runtime_error(file.string() + ": " + error.what());
  }
}

}  // namespace specula_examples
