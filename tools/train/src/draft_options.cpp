// SPDX-License-Identifier: MIT
#include "draft_options.hpp"

#include <stdexcept>

namespace specula_train {
namespace {

namespace fs = std::filesystem;

/// From this vocabulary on, an embedding of its own would be most of a small draft.
constexpr std::int64_t kLargeVocabulary = 16384;

/// The export that a training goes on from; empty: none.
fs::path begins_from(const TrainingOptions& training) {
  const auto own = training.output / "export";
  const bool resumes = training.loop.resume && fs::exists(training.checkpoint_file());
  return resumes && fs::exists(own / "config.json") ? own : training.init;
}

}  // namespace

void DraftOptions::add_to(CLI::App& command, TrainingOptions& training) {
  training.add_draft_vocabulary_to(command);
  vocabulary = command.get_option("--draft-vocabulary");
  embedding = command.add_flag(
      "--target-embedding,!--own-embedding", target_embedding,
      "Take the target's embedding through a projection, and have an LM head of the draft vocabulary; or "
      "have an embedding of its own, and predict all tokens. By default the former for vocabularies of "
      "16,384 "
      "or more, and with --draft-vocabulary");
  command
      .add_option("--loss", loss,
                  "text: predict the text's next token; target: the target's distribution (distillation)")
      ->check(CLI::IsMember({"text", "target"}))
      ->capture_default_str();
}

Borrowed DraftOptions::borrow(DecoderConfig& draft, const Llama& lender, const TrainingOptions& training,
                              const Session& session) const {
  const auto& target_config = lender->config();
  draft.ends = target_config.ends;
  const bool wants_some = vocabulary->count() > 0 && training.draft_vocabulary > 0;
  const auto from = begins_from(training);
  const auto begun = from.empty() ? specula::cpu::DecoderConfig{} : read_inference_config(from);
  const bool over = embedding->count() > 0 ? target_embedding
                    : !from.empty()        ? begun.target_hidden_size > 0
                                           : wants_some || draft.vocab_size >= kLargeVocabulary;
  if (!over) {
    if (wants_some)
      throw std::invalid_argument(
          "--draft-vocabulary: a draft with an embedding of its own predicts all tokens; leave it out, or "
          "give --target-embedding");
    if (begun.target_hidden_size > 0)
      throw std::invalid_argument(from.string() +
                                  ": a draft over its target's embedding; leave --own-embedding out");
    return {};
  }
  Borrowed borrowed{.embedding = lender->embedding(),
                    .vocabulary = begun.target_hidden_size == 0 ? session.draft_vocabulary(draft.ends)
                                                                : session.draft_vocabulary_of(from)};
  draft.draft_vocab_size = static_cast<std::int64_t>(borrowed.vocabulary.tokens.size());
  draft.target_hidden_size = target_config.hidden;
  draft.tied_head = false;
  return borrowed;
}

std::string DraftOptions::describe_loss() const {
  return learns_target() ? "Cross entropy with the target's distribution among the tokens that it predicts"
                         : "Next-token cross entropy";
}

std::string describe(const Borrowed& borrowed) {
  if (!borrowed.embedding.defined()) return {};
  return "; over the target's embedding; " + describe(borrowed.vocabulary);
}

}  // namespace specula_train
