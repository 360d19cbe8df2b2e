// SPDX-License-Identifier: MIT
#include "tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "added_tokens.hpp"
#include "files.hpp"
#include "gguf_tokenizer.hpp"
#include "text_stream.hpp"
#include "token_files.hpp"
#include "tokenizer_json.hpp"
#include "utf8_gate.hpp"

namespace specula_tools {
namespace {

using specula::kNoToken;
using specula::Token;

/// Whether a file is the vocabulary of Meta's own Llama 3 files: a token in base64 and its rank a line.
bool is_tiktoken(std::string_view text) {
  constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  const auto space = text.find_first_not_of(kBase64);
  if (space == 0 || space == text.npos || text[space] != ' ') return false;
  const auto end = text.find_first_not_of("0123456789", space + 1);
  return end != space + 1 && (end == text.npos || text[end] == '\n' || text[end] == '\r');
}

/// A SentencePiece model and the tokens added to it.
class SentencePieces {
 public:
  explicit SentencePieces(const std::filesystem::path& file) : files_(read_token_files(file.parent_path())) {
    const std::string model = read_file(file);
    if (is_tiktoken(model))
      throw std::runtime_error(
          file.string() +
          ": is a byte-level vocabulary (tiktoken, as in Meta's own Llama 3 files), no "
          "SentencePiece model: put the tokenizer.json of Hugging Face's files in its "
          "place, or run the model as a GGUF file in llama.cpp (specula run --engine llama.cpp)");
    if (!processor_.LoadFromSerializedProto({model.data(), model.size()}).ok())
      throw std::runtime_error(file.string() + ": is no SentencePiece model");
    unknown_ = encode_part(kUnknown, true);
  }

  Tokenizer::Parts parts(const std::filesystem::path& file) {
    Tokenizer::Parts out;
    for (int token = 0; token < processor_.GetPieceSize(); ++token) {
      out.pieces.push_back(processor_.IdToPiece(token));
      out.bytes.push_back(processor_.IsControl(token) ? std::string()
                          : processor_.IsUnknown(token)
                              ? "\xef\xbf\xbd"
                              : bytes_of_piece(out.pieces.back(), processor_.IsByte(token)));
    }
    for (const AddedToken& added : files_.added) add(added, out);
    if (processor_.bos_id() >= 0) out.begin = processor_.bos_id();
    out.adds_begin = out.begin != kNoToken;
    if (processor_.eos_id() >= 0) out.end = processor_.eos_id();
    name_roles(files_, file.string(), out);
    added_ = AddedTokens(files_.added);
    add_controls();
    controls_ = AddedTokens(std::move(files_.added), true);
    return out;
  }

  /// As transformers' LlamaTokenizer: parts between added tokens are encoded one by one.
  std::vector<Token> encode(std::string_view text, bool controls) const {
    const AddedTokens& added = controls ? controls_ : added_;
    if (added.empty() && files_.spaces_text) return encode_part(text, true);
    std::vector<Token> out;
    bool first = true;
    added.split(
        text,
        [&](std::string_view part) {
          const auto tokens = encode_part(part, files_.spaces_each_part || (first && files_.spaces_text));
          out.insert(out.end(), tokens.begin(), tokens.end());
          first = false;
        },
        [&](Token token) {
          out.push_back(token);
          first = false;
        });
    return out;
  }

 private:
  static constexpr std::string_view kUnknown = "<unk>";

  static void add(const AddedToken& added, Tokenizer::Parts& out) {
    const auto at = static_cast<std::size_t>(added.token);
    if (out.pieces.size() <= at) out.pieces.resize(at + 1), out.bytes.resize(at + 1);
    if (out.pieces[at] == added.text) return;
    out.pieces[at] = out.bytes[at] = added.text;
  }

  /// Control tokens of the model that no file names.
  void add_controls() {
    std::set<Token> named;
    for (const AddedToken& added : files_.added) named.insert(added.token);
    for (int token = 0; token < processor_.GetPieceSize(); ++token)
      if (processor_.IsControl(token) && !named.contains(token))
        files_.added.push_back({.token = token, .text = processor_.IdToPiece(token), .special = true});
  }

  /// SentencePiece puts a space in front of each text, if its model says so. Without: as transformers does
  /// it, behind a text whose tokens are then taken off.
  std::vector<Token> encode_part(std::string_view text, bool spaced) const {
    std::vector<int> ids;
    const std::string whole = spaced ? std::string(text) : std::string(kUnknown).append(text);
    if (const auto status = processor_.Encode(whole, &ids); !status.ok())
      throw std::runtime_error("encoding the prompt: " + status.ToString());
    if (!spaced) ids.erase(ids.begin(), ids.begin() + std::min(std::ssize(unknown_), std::ssize(ids)));
    return ids;
  }

  sentencepiece::SentencePieceProcessor processor_;
  TokenFiles files_;
  AddedTokens added_, controls_;  // without and with control tokens
  std::vector<Token> unknown_;
};

/// Throws std::runtime_error naming the file if it is no SentencePiece model, or has no end of texts.
Tokenizer read_sentencepiece(const std::filesystem::path& file) {
  const auto pieces = std::make_shared<SentencePieces>(file);
  Tokenizer::Parts parts = pieces->parts(file);
  parts.encode = [pieces](std::string_view text, bool controls) { return pieces->encode(text, controls); };
  return Tokenizer(std::move(parts));
}

Tokenizer read_any(const std::filesystem::path& path) {
  if (begins_as_gguf(path)) return read_gguf_tokenizer(path);
  if (!std::filesystem::is_directory(path))
    return path.extension() == ".json" ? read_tokenizer_json(path) : read_sentencepiece(path);
  if (const auto model = path / "tokenizer.model"; std::filesystem::exists(model))
    return read_sentencepiece(model);
  if (const auto json = path / "tokenizer.json"; std::filesystem::exists(json))
    return read_tokenizer_json(json);
  const bool older = std::filesystem::exists(path / "vocab.json");
  throw std::runtime_error(path.string() + ": has neither tokenizer.model nor tokenizer.json" +
                           (older ? ", and vocab.json and merges.txt are not read: save the tokenizer with "
                                    "transformers, which makes a tokenizer.json of them"
                                  : "; put the one that the model was published with into it"));
}

/// The text with U+FFFD for what is no UTF-8.
std::string valid(std::string_view text) {
  Utf8Gate gate;
  std::string out = gate.push(text);
  return out += gate.flush();
}

/// The byte that a piece like <0x0A> stands for, or -1.
int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  int value = 0;
  for (const char digit : piece.substr(3, 2)) {
    const auto at = std::string_view("0123456789ABCDEF").find(digit);
    if (at == std::string_view::npos) return -1;
    value = value * 16 + static_cast<int>(at);
  }
  return value;
}

}  // namespace

std::string bytes_of_piece(std::string_view piece, bool spells_bytes) {
  if (const int byte = spells_bytes ? byte_of_piece(piece) : -1; byte >= 0)
    return std::string(1, static_cast<char>(byte));
  constexpr std::string_view kEscaped = "\xe2\x96\x81";
  std::string out;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kEscaped);
    out += space ? ' ' : piece.front();
    piece.remove_prefix(space ? kEscaped.size() : 1);
  }
  return out;
}

Tokenizer::Tokenizer(const std::filesystem::path& folder_or_file) : Tokenizer(read_any(folder_or_file)) {}

Tokenizer::Tokenizer(Parts parts) : parts_(std::move(parts)) {}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  auto ids = parts_.encode(valid(text), false);
  if (parts_.adds_begin) ids.insert(ids.begin(), parts_.begin);
  return ids;
}

std::vector<Token> Tokenizer::encode_chat(std::string_view rendered) const {
  return parts_.encode(valid(rendered), true);
}

std::string Tokenizer::bytes(Token token) const {
  return token < 0 || token >= vocab_size() ? std::string() : parts_.bytes[static_cast<std::size_t>(token)];
}

std::string Tokenizer::decode(specula::Tokens tokens) const {
  TextStream stream([&](Token token) { return bytes(token); });
  std::string text;
  for (const Token token : tokens) text += stream.put(token);
  return text += stream.flush();
}

bool has_tokenizer(const std::filesystem::path& folder) {
  return begins_as_gguf(folder) || std::filesystem::exists(folder / "tokenizer.model") ||
         std::filesystem::exists(folder / "tokenizer.json");
}

void name_roles(const TokenFiles& files, const std::string& source, Tokenizer::Parts& out) {
  const auto token_of = [&](const NamedToken& named) {
    const auto found = std::find(out.pieces.begin(), out.pieces.end(), named.text);
    if (found == out.pieces.end())
      throw std::runtime_error(named.where + ": token '" + named.text + "' is not in the vocabulary");
    return static_cast<Token>(found - out.pieces.begin());
  };
  if (files.begin)
    out.begin = token_of(*files.begin);
  else if (files.no_begin)
    out.begin = kNoToken;
  out.adds_begin = files.adds_begin.value_or(out.adds_begin) && out.begin != kNoToken;
  out.ends = files.stop_tokens;
  out.notes = files.notes;
  if (out.end != kNoToken) out.ends.push_back(out.end);
  for (const NamedToken& named : files.stop_texts) out.ends.push_back(token_of(named));
  if (out.ends.empty())
    throw std::runtime_error(source +
                             ": neither it nor a file beside it names a token that ends a text: name "
                             "it as eos_token in tokenizer_config.json, or in a GGUF file as "
                             "tokenizer.ggml.eos_token_id");
  if (files.end) out.end = token_of(*files.end);
  if (out.end == kNoToken) out.end = out.ends.front();
  std::sort(out.ends.begin(), out.ends.end());
  out.ends.erase(std::unique(out.ends.begin(), out.ends.end()), out.ends.end());
  for (const AddedToken& added : files.added)  // some files do not mark the ends of texts as special
    if (added.special || std::binary_search(out.ends.begin(), out.ends.end(), added.token))
      out.bytes[static_cast<std::size_t>(added.token)].clear();
  for (const Token role : {out.begin, out.end})  // config.json may name tokens that only the model has
    if (role != kNoToken && role < std::ssize(out.bytes)) out.bytes[static_cast<std::size_t>(role)].clear();
}

}  // namespace specula_tools
