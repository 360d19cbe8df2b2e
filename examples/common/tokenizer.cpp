#include "tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <stdexcept>
#include <utility>

#include "files.hpp"
#include "text_stream.hpp"

namespace specula_examples {
namespace {

class SentencePiece final : public TokenizerCodec {
 public:
  explicit SentencePiece(const std::filesystem::path& file) {
    const std::string model = read_file(file);
    if (const auto status = processor_.LoadFromSerializedProto({model.data(), model.size()}); !status.ok())
      throw std::runtime_error(file.string() + ": " + status.ToString());
    if (processor_.bos_id() < 0 || processor_.eos_id() < 0)
      throw std::runtime_error(file.string() + ": has no <s> or no </s>");
  }
  std::int32_t vocab_size() const override { return processor_.GetPieceSize(); }
  specula::Token begin() const override { return processor_.bos_id(); }
  specula::Token end() const override { return processor_.eos_id(); }
  std::vector<specula::Token> encode(std::string_view text) const override {
    std::vector<int> ids;
    if (const auto status = processor_.Encode({text.data(), text.size()}, &ids); !status.ok())
      throw std::runtime_error("encoding the prompt: " + status.ToString());
    return ids;
  }
  std::string bytes(specula::Token token) const override {
    if (processor_.IsControl(token)) return {};
    const std::string& piece = processor_.IdToPiece(token);
    if (processor_.IsByte(token)) return {static_cast<char>(byte_of_piece(piece))};
    return processor_.IsUnknown(token) ? "\xef\xbf\xbd" : with_spaces(piece);
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

std::unique_ptr<TokenizerCodec> read_any(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path))
    return path.extension() == ".json" ? read_tokenizer_json(path) : read_sentencepiece(path);
  if (const auto model = path / "tokenizer.model"; std::filesystem::exists(model))
    return read_sentencepiece(model);
  if (const auto json = path / "tokenizer.json"; std::filesystem::exists(json))
    return read_tokenizer_json(json);
  throw std::runtime_error(path.string() + ": has neither tokenizer.model nor tokenizer.json");
}

}  // namespace

std::string with_spaces(std::string_view piece) {
  constexpr std::string_view kSpace = "\xe2\x96\x81";
  std::string out;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kSpace);
    out += space ? ' ' : piece.front();
    piece.remove_prefix(space ? kSpace.size() : 1);
  }
  return out;
}

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

std::unique_ptr<TokenizerCodec> read_sentencepiece(const std::filesystem::path& file) {
  return std::make_unique<SentencePiece>(file);
}

Tokenizer::Tokenizer(const std::filesystem::path& folder_or_file) : codec_(read_any(folder_or_file)) {}

std::vector<specula::Token> Tokenizer::encode(std::string_view text) const {
  auto ids = codec_->encode(text);
  ids.insert(ids.begin(), codec_->begin());
  return ids;
}

std::string Tokenizer::bytes(specula::Token token) const {
  return token < 0 || token >= vocab_size() ? std::string() : codec_->bytes(token);
}

std::string Tokenizer::decode(specula::Tokens tokens) const {
  TextStream stream([&](specula::Token token) { return bytes(token); });
  std::string text;
  for (const specula::Token token : tokens) text += stream.put(token);
  return text += stream.flush();
}

}  // namespace specula_examples
