// SPDX-License-Identifier: MIT
// P=$(scripts/llama_cpp); L="-L$P/lib -lllama -lggml -lggml-base -Wl,-rpath,$P/lib"
// g++ -std=c++20 -O2 -Iinclude -I$P/include examples/08_llama_cpp.cpp $L
// ./a.out TARGET.gguf DRAFT.gguf TEXT
//
// Models that llama.cpp runs: a draft of the same vocabulary speculates for a target.
#include <iostream>
#include <vector>

#include <specula/llama_cpp/model.hpp>
#include <specula/llama_cpp/text.hpp>
#include <specula/llama_cpp/vocabulary.hpp>
#include <specula/specula.hpp>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto target_file = specula::llama_cpp::load(argv[1]), draft_file = specula::llama_cpp::load(argv[2]);
  const specula::llama_cpp::Options options{
      .capacity = 4096,
      .threads = 8,
      .vocab_size = specula::llama_cpp::shared_vocabulary(*target_file, *draft_file)};
  specula::llama_cpp::Model target(target_file, options), draft(draft_file, options);

  specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{},
                                                specula::SamplingParams{.temperature = 0.8f, .top_p = 0.95f}},
                          specula::ModelDrafter{draft},
                          specula::CostAware{specula::Chain<specula::Draw::sampled>{.length = 8}}};
  const llama_vocab* const vocab = llama_model_get_vocab(target_file.get());
  const std::vector<specula::Token> ends = specula::llama_cpp::end_tokens(vocab);  // there may be several
  run.generate(specula::llama_cpp::tokenize(vocab, argv[3], /*special*/ true),
               {.max_new_tokens = 256, .stop = ends}, specula::PhiloxRandom{/*seed*/ 1},
               [&](specula::Tokens fresh) {
                 for (const specula::Token token : fresh)
                   std::cout << specula::llama_cpp::token_bytes(vocab, token) << std::flush;
               });
}
