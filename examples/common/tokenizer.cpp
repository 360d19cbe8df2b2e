#include "tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <fstream>
#include <stdexcept>

namespace specula_examples {

Tokenizer::Tokenizer(const std::filesystem::path& model_file)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  if (!std::ifstream(model_file))
    throw std::runtime_error(model_file.string() + ": cannot be opened for reading");
  if (const auto status = processor_->Load(model_file.string()); !status.ok())
    throw std::runtime_error(model_file.string() + ": " + status.ToString());
  if (processor_->bos_id() < 0 || processor_->eos_id() < 0)
    throw std::runtime_error(model_file.string() + ": has no <s> or no </s>");
}

Tokenizer::~Tokenizer() = default;

std::int32_t Tokenizer::vocab_size() const { return processor_->GetPieceSize(); }

specula::Token Tokenizer::end() const { return processor_->eos_id(); }

std::vector<specula::Token> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  if (const auto status = processor_->Encode({text.data(), text.size()}, &ids); !status.ok())
    throw std::runtime_error("encoding the prompt: " + status.ToString());
  ids.insert(ids.begin(), processor_->bos_id());
  return ids;
}

std::string Tokenizer::bytes(specula::Token token) const {
  if (token < 0 || token >= vocab_size() || processor_->IsControl(token)) return {};
  const std::string& piece = processor_->IdToPiece(token);
  if (processor_->IsByte(token))
    return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // <0x0A>
  if (processor_->IsUnknown(token)) return "\xef\xbf\xbd";
  constexpr std::string_view kSpace = "\xe2\x96\x81";
  std::string out;
  for (std::size_t at = 0; at < piece.size();) {
    const bool space = piece.compare(at, kSpace.size(), kSpace) == 0;
    out += space ? ' ' : piece[at];
    at += space ? kSpace.size() : 1;
  }
  return out;
}

std::string Tokenizer::decode(specula::Tokens tokens) const {
  TextStream stream(*this);
  std::string text;
  for (const specula::Token token : tokens) text += stream.put(token);
  return text += stream.flush();
}

}  // namespace specula_examples
