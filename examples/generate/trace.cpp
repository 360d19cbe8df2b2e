#include "trace.hpp"

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <specula/dot.hpp>

extern char** environ;

namespace specula_examples {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

Trace::Trace(const std::filesystem::path& folder, std::size_t prompts, TextOf text_of)
    : folder_(std::filesystem::absolute(folder)), prompts_(prompts), text_of_(std::move(text_of)) {
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

void Trace::add(const specula::Pipeline& pipeline, std::size_t prompt) {
  round_ = prompt == prompt_ ? round_ + 1 : 1;
  prompt_ = prompt;
  std::string name = prompts_ > 1 ? "prompt-" + padded(prompt + 1, 2) + "-" : "";
  name.append("round-").append(padded(round_, 4)).append(".dot");
  files_.push_back(folder_ / name);
  std::ofstream out(unfinished_ / name, std::ios::binary);
  if (!(out << specula::to_dot(pipeline.proposal(), &pipeline.result(), text_of_) << std::flush))
    throw std::runtime_error(files_.back().string() + ": cannot be written");
}

std::string Trace::draw() {
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (is_round(entry.path().filename().string())) old.push_back(entry.path());
  for (const auto& file : old) fs::remove(file);
  for (const auto& file : files_) fs::rename(unfinished_ / file.filename(), file);
  fs::remove(unfinished_);
  const std::string wrote = std::to_string(files_.size()) + " rounds traced to " + folder_.string();
  for (const auto& file : files_) {
    auto svg = file;
    const int error = run_dot(file.string(), svg.replace_extension(".svg").string());
    if (error == ENOENT)
      return wrote + " as .dot only: `dot` is not on the PATH (Debian: graphviz), so no .svg beside them";
    if (error) return wrote + ", but dot failed to draw " + svg.string();
  }
  return wrote + ", .dot and .svg";
}

}  // namespace specula_examples
