// SPDX-License-Identifier: MIT
// Documents as tokens, which the trainer shares with the example programs.
#pragma once

#include "style_info.hpp"
#include "token_store.hpp"

namespace specula_train {

using specula_examples::copy_tokenizer;
using specula_examples::count_tokens;
using specula_examples::Document;
using specula_examples::kBegin;
using specula_examples::kEnd;
using specula_examples::mark_given;
using specula_examples::parse_assignment;
using specula_examples::read_style_infos;
using specula_examples::read_tokens;
using specula_examples::StyleInfo;
using specula_examples::StyleInfos;
using specula_examples::Token;
using specula_examples::TokenizedCorpus;
using specula_examples::TokenizedStyle;
using specula_examples::write_style_infos;
using specula_examples::write_tokens;

}  // namespace specula_train
