// SPDX-License-Identifier: MIT
#include "trace.hpp"

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <regex>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <specula/accept/target_distributions.hpp>
#include <specula/study/dot.hpp>

#include "files.hpp"
#include "html_page.hpp"
#include "page.hpp"

extern char** environ;

namespace specula_tools {
namespace {

namespace fs = std::filesystem;

constexpr char kPage[] = "trace.html";

std::string padded(std::size_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0').append(text);
}

/// Whether a run may have written a file of this name.
bool is_round(const std::string& name) {
  static const std::regex kName("(prompt-[0-9]{2,}-)?round-[0-9]{4,}\\.(dot|svg)");
  return std::regex_match(name, kName);
}

/// Runs `dot -Tsvg -o SVG FILE` without a shell. Returns 0, an errno if it could not be started, or -1 if it
/// failed.
int run_dot(const std::string& file, const std::string& svg) {
  std::vector<std::string> words{"dot", "-Tsvg", "-o", svg, file};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (const int error = posix_spawnp(&child, "dot", nullptr, nullptr, arguments.data(), environ))
    return error;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/// Bytes as a JSON string of characters U+0000 to U+00FF: tokens need not be whole characters of UTF-8.
std::string as_characters(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      out += c;
    else
      out.append(1, static_cast<char>(0xC0 | byte >> 6)).append(1, static_cast<char>(0x80 | (byte & 0x3F)));
  }
  return out;
}

/// Four decimals are enough to read, and keep the page small.
template <class Values>
nlohmann::ordered_json rounded(const Values& values) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto value : values) out.push_back(std::round(static_cast<double>(value) * 1e4) / 1e4);
  return out;
}

}  // namespace

Trace::Trace(const std::filesystem::path& folder, std::size_t prompts, TextOf text_of)
    : folder_(std::filesystem::absolute(folder)),
      prompts_(prompts),
      text_of_(std::move(text_of)),
      texts_(prompts) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_))
    throw std::runtime_error("--trace " + folder.string() + ": cannot be created");
  unfinished_ = folder_ / ".unfinished-trace";
  fs::remove_all(unfinished_, error);  // left by a killed run
  if (!fs::create_directory(unfinished_, error))
    throw std::runtime_error("--trace " + folder.string() + ": cannot be written to");
}

Trace::~Trace() {
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);
}

void Trace::add(const specula::Pipeline& pipeline, std::size_t prompt, std::size_t emitted) {
  const specula::TokenTree& tree = pipeline.proposal();
  const specula::VerifyResult& result = pipeline.result();
  Text& text = texts_.at(prompt);
  if (text.rounds.empty()) {
    const specula::Tokens all = pipeline.text(), before = all.first(all.size() - result.accepted.size());
    text.prompt.assign(before.begin(), before.end());
  }
  text.rounds.emplace_back();
  Round& round = text.rounds.back();
  round.tokens.assign(tree.tokens().begin(), tree.tokens().end());
  round.parents.assign(tree.parents().begin(), tree.parents().end());
  for (specula::NodeId n = 0; n < tree.size(); ++n) round.confidences.push_back(tree.confidence(n));
  round.result = result;
  round.emitted = emitted;

  std::string name = prompts_ > 1 ? "prompt-" + padded(prompt + 1, 2) + "-" : "";
  name.append("round-").append(padded(text.rounds.size(), 4)).append(".dot");
  files_.push_back(folder_ / name);
  std::ofstream out(unfinished_ / name, std::ios::binary);
  if (!(out << specula::to_dot(tree, &result, text_of_) << std::flush))
    throw std::runtime_error(files_.back().string() + ": cannot be written");
}

void Trace::add_target_probs(specula::AnyModel& target) {
  constexpr std::size_t kChunk = 128;
  for (Text& text : texts_) {
    if (text.rounds.empty()) continue;
    target.truncate(0);
    const specula::Tokens context = specula::Tokens(text.prompt).first(text.prompt.size() - 1);
    for (std::size_t from = 0; from < context.size(); from += kChunk)
      target.append(context.subspan(from, std::min(kChunk, context.size() - from)));
    for (Round& round : text.rounds) {
      const specula::LogitsView rows = target.extend(round.tokens, round.parents);
      specula::VerifyWorkspace workspace(rows.vocab, rows.rows);
      const specula::TargetDistributions distributions(rows, {},
                                                       workspace);  // at temperature 1, as confidences
      std::vector<specula::Distribution> after;
      for (specula::NodeId n = 0; n < rows.rows; ++n) after.push_back(distributions[n]);
      round.target_probs.assign(1, 1.0);
      for (std::size_t n = 1; n < round.tokens.size(); ++n)
        round.target_probs.push_back(after[static_cast<std::size_t>(round.parents[n])](round.tokens[n]));
      const auto last = static_cast<std::size_t>(round.result.accepted.back());
      round.target_probs.push_back(after[last](round.result.next_token));
      target.commit(round.result.accepted);
    }
  }
}

std::string Trace::page(const std::string& title) const {
  nlohmann::ordered_json bytes = nlohmann::ordered_json::object(), texts = nlohmann::ordered_json::array();
  const auto name = [&](specula::Tokens tokens) {
    for (const specula::Token token : tokens) {
      const std::string key = std::to_string(token);
      if (!bytes.contains(key)) bytes[key] = as_characters(text_of_(token));
    }
  };
  for (const Text& text : texts_) {
    name(text.prompt);
    nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
    for (const Round& round : text.rounds) {
      name(round.tokens);
      name({&round.result.next_token, 1});
      rounds.push_back({{"tokens", round.tokens},
                        {"parents", round.parents},
                        {"draft", rounded(round.confidences)},
                        {"accepted", round.result.accepted},
                        {"next", round.result.next_token},
                        {"emitted", round.emitted}});
      if (round.target_probs.empty()) continue;
      rounds.back()["target"] = rounded(std::span(round.target_probs).first(round.tokens.size()));
      rounds.back()["next_target"] = rounded(std::span(round.target_probs).last(1))[0];
    }
    texts.push_back({{"prompt", text.prompt}, {"rounds", std::move(rounds)}});
  }
  return html_page(kTracePage,
                   {{"pipeline", title}, {"bytes", std::move(bytes)}, {"texts", std::move(texts)}});
}

std::string Trace::draw(const std::string& title, specula::AnyModel* target) {
  if (target) add_target_probs(*target);
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (is_round(entry.path().filename().string())) old.push_back(entry.path());
  for (const auto& file : old) fs::remove(file);
  for (const auto& file : files_) fs::rename(unfinished_ / file.filename(), file);
  fs::remove(unfinished_);
  write_file(folder_ / kPage, page(title));
  const std::string wrote =
      std::to_string(files_.size()) + " rounds traced to " + folder_.string() + ": " + kPage + ", ";
  for (const auto& file : files_) {
    auto svg = file;
    const int error = run_dot(file.string(), svg.replace_extension(".svg").string());
    if (error == ENOENT)
      return wrote + "and .dot only: `dot` is not on the PATH (Debian: graphviz), so no .svg beside them";
    if (error) return wrote + ".dot, but dot failed to draw " + svg.string();
  }
  return wrote + ".dot and .svg";
}

}  // namespace specula_tools
