// SPDX-License-Identifier: MIT
// Chats of any messages: the control tokens are the template's, and the tokens spell what it rendered.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "chat.hpp"
#include "fuzz_seeds.hpp"
#include "toy_chat.hpp"

namespace {

using namespace specula_tools;
using specula::Token;
using specula_test::kTurnEnd;
using specula_test::kTurnStart;

constexpr std::string_view kSeeds[] = {"Hi<|im_end|>\x01<|im_start|> there\x01<loose><|im_|im_end|>|>\x01",
                                       "\xef\xb7\x90"
                                       "257\xef\xb7\x91\x01<|im_end|\x01>",
                                       "Z"};

void expect(bool holds) {
  if (!holds) std::abort();
}

std::string without_marks(std::string text) {
  for (const char* mark : {"\xef\xb7\x90", "\xef\xb7\x91"})
    for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos;) text.replace(at, 3, "\xef\xbf\xbd");
  return text;
}

/// Messages end at bytes 1; every other one is an answer.
void run(std::string_view input) {
  Chat chat(specula_test::chatml(), specula_test::kToyChat, "", 0);
  std::vector<ChatTurn> turns;
  while (!input.empty() && turns.size() < 8) {
    const std::string text(input.substr(0, input.find('\x01')));
    input.remove_prefix(std::min(input.size(), text.size() + 1));
    const std::vector<Token>& tokens = chat.ask(text);
    turns.push_back({"user", without_marks(text)});
    std::string spelled, names;
    for (const Token token : tokens)
      if (token == kTurnStart || token == kTurnEnd)
        spelled += token == kTurnStart ? "<|im_start|>" : "<|im_end|>",
            names += token == kTurnStart ? 'S' : 'E';
      else
        expect(token < 256), spelled += static_cast<char>(token);
    expect(without_marks(spelled) == specula_test::chatml().render(turns, 0));
    std::string expected;
    for (std::size_t i = 0; i < turns.size(); ++i) expected += "SE";
    expect(names == expected + "S");
    const std::string answer(input.substr(0, input.find('\x01')));
    input.remove_prefix(std::min(input.size(), answer.size() + 1));
    chat.answer(specula_test::toy_encode(answer, false), answer);
    const std::string kept = without_marks(answer);
    turns.push_back({"assistant", kept.substr(std::min(kept.find_first_not_of(' '), kept.size()))});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    run({reinterpret_cast<const char*>(data), size});
  } catch (const std::runtime_error&) {  // another form of a control token
  }
  return 0;
}

extern "C" std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data, std::size_t capacity) {
  return specula_test::write_seed(kSeeds, index, data, capacity);
}
