// SPDX-License-Identifier: MIT
// Documents as tokens, which the trainer shares with the example programs.
#pragma once

#include "style_info.hpp"
#include "token_store.hpp"

namespace specula_train {

using specula_tools::copy_tokenizer;
using specula_tools::count_tokens;
using specula_tools::Document;
using specula_tools::kBegin;
using specula_tools::kEnd;
using specula_tools::mark_given;
using specula_tools::parse_assignment;
using specula_tools::read_style_infos;
using specula_tools::read_tokens;
using specula_tools::StyleInfo;
using specula_tools::StyleInfos;
using specula_tools::Token;
using specula_tools::TokenizedCorpus;
using specula_tools::TokenizedStyle;
using specula_tools::write_style_infos;
using specula_tools::write_tokens;

}  // namespace specula_train
