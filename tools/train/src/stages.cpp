// SPDX-License-Identifier: MIT
#include "stages.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "files.hpp"
#include "training_loop.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

std::atomic<pid_t> child{0};

/// A child in the same terminal gets Ctrl-C itself; a second SIGINT does no harm.
void pass_on(int signal) {
  request_stop();
  if (const pid_t pid = child; pid > 0) kill(pid, signal);
}

std::string quoted(const std::string& word) {
  const bool plain =
      !word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
          word.npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string Call::text() const {
  std::string text = quoted(program.string());
  for (const auto& argument : arguments) text += ' ' + quoted(argument);
  return text;
}

void run(const Call& call) {
  std::vector<std::string> words{call.program.string()};
  words.insert(words.end(), call.arguments.begin(), call.arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, pass_on);
  pid_t pid = 0;
  if (const int error = posix_spawn(&pid, words.front().c_str(), nullptr, nullptr, pointers.data(), environ);
      error != 0)
    throw std::runtime_error(call.text() + ": cannot be started: " + std::strerror(error));
  child = pid;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) throw std::runtime_error(call.text() + ": lost");
  child = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (stop_was_requested()) return;
  throw std::runtime_error(
      call.text() + (WIFEXITED(status) ? ": ended with exit code " + std::to_string(WEXITSTATUS(status))
                                       : ": ended by signal " + std::to_string(WTERMSIG(status))));
}

Stages::Stages(fs::path directory) : directory_(std::move(directory)) { fs::create_directories(directory_); }

bool Stages::run(const std::string& name, const std::vector<Call>& calls) {
  std::string text;
  for (const auto& call : calls) text += call.text() + "\n";
  const auto file = directory_ / (name + ".done");
  if (fs::exists(file) && specula_tools::read_file(file) == text) {
    std::printf("== %s: done before\n", name.c_str());
    return true;
  }
  for (const auto& call : calls) {
    std::printf("== %s: %s\n", name.c_str(), call.text().c_str());
    std::fflush(stdout);
    specula_train::run(call);
    if (stop_was_requested()) {
      std::printf("stopped in %s; the same command goes on\n", name.c_str());
      return false;
    }
  }
  specula_tools::write_file(file, text);
  return true;
}

}  // namespace specula_train
