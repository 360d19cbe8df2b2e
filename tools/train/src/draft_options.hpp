// SPDX-License-Identifier: MIT
// Options of drafts for a target: what they take from it, and what they learn from it.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "command_options.hpp"
#include "draft_vocabulary.hpp"
#include "session.hpp"

namespace specula_train {

/// What a draft takes from its target.
struct Borrowed {
  torch::Tensor embedding = {};  // undefined: it has one of its own
  DraftVocabulary vocabulary = {};
};

struct DraftOptions {
  std::filesystem::path target;
  bool target_embedding = false;
  std::string loss = "text";
  const CLI::Option *vocabulary = nullptr, *embedding = nullptr;  // whether they are given

  /// --draft-vocabulary, whose number `training` has, and the others.
  void add_to(CLI::App& command, TrainingOptions& training);

  bool learns_target() const { return loss == "target"; }

  /// Lets a draft with these sizes take what it takes from its target. What it starts from, a checkpoint's
  /// export or that of --init, says what, and which tokens it predicts; else options, target and text.
  Borrowed borrow(DecoderConfig& draft, const Llama& lender, const TrainingOptions& training,
                  const Session& session) const;

  /// For the model card.
  std::string describe_loss() const;
};

/// "; over the target's embedding; draft vocabulary of ...", for the model card.
std::string describe(const Borrowed& borrowed);

}  // namespace specula_train
