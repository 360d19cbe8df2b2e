#include "tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

#include "files.hpp"
#include "text_stream.hpp"

namespace specula_examples {
namespace {

/// Throws std::runtime_error naming the file if it is no SentencePiece model, or has no <s> or </s>.
Tokenizer read_sentencepiece(const std::filesystem::path& file) {
  const auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  const std::string model = read_file(file);
  if (const auto status = processor->LoadFromSerializedProto({model.data(), model.size()}); !status.ok())
    throw std::runtime_error(file.string() + ": " + status.ToString());
  if (processor->bos_id() < 0 || processor->eos_id() < 0)
    throw std::runtime_error(file.string() + ": has no <s> or no </s>");
  std::vector<std::string> bytes;
  for (int token = 0; token < processor->GetPieceSize(); ++token)
    bytes.push_back(processor->IsControl(token) ? std::string()
                    : processor->IsUnknown(token)
                        ? "\xef\xbf\xbd"
                        : bytes_of_piece(processor->IdToPiece(token), processor->IsByte(token)));
  return Tokenizer(
      std::move(bytes), processor->bos_id(), processor->eos_id(), [processor](std::string_view text) {
        std::vector<int> ids;
        if (const auto status = processor->Encode({text.data(), text.size()}, &ids); !status.ok())
          throw std::runtime_error("encoding the prompt: " + status.ToString());
        return ids;
      });
}

Tokenizer read_any(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path))
    return path.extension() == ".json" ? read_tokenizer_json(path) : read_sentencepiece(path);
  if (const auto model = path / "tokenizer.model"; std::filesystem::exists(model))
    return read_sentencepiece(model);
  if (const auto json = path / "tokenizer.json"; std::filesystem::exists(json))
    return read_tokenizer_json(json);
  throw std::runtime_error(path.string() + ": has neither tokenizer.model nor tokenizer.json");
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
  constexpr std::string_view kSpace = "\xe2\x96\x81";
  std::string out;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kSpace);
    out += space ? ' ' : piece.front();
    piece.remove_prefix(space ? kSpace.size() : 1);
  }
  return out;
}

Tokenizer::Tokenizer(const std::filesystem::path& folder_or_file) : Tokenizer(read_any(folder_or_file)) {}

Tokenizer::Tokenizer(std::vector<std::string> bytes, specula::Token begin, specula::Token end, Encode encode)
    : bytes_(std::move(bytes)), begin_(begin), end_(end), encode_(std::move(encode)) {}

std::vector<specula::Token> Tokenizer::encode(std::string_view text) const {
  auto ids = encode_(text);
  ids.insert(ids.begin(), begin_);
  return ids;
}

std::string Tokenizer::bytes(specula::Token token) const {
  return token < 0 || token >= vocab_size() ? std::string() : bytes_[static_cast<std::size_t>(token)];
}

std::string Tokenizer::decode(specula::Tokens tokens) const {
  TextStream stream([&](specula::Token token) { return bytes(token); });
  std::string text;
  for (const specula::Token token : tokens) text += stream.put(token);
  return text += stream.flush();
}

}  // namespace specula_examples
