// SPDX-License-Identifier: MIT
#include "limited_call.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <exception>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace specula_tools {
namespace {

constexpr char kText = 'T', kError = 'E', kMemory = 'M';  // the first byte of what the child writes

void limit(int resource, rlim_t soft) {
  rlimit now{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return;
  now.rlim_cur = std::min(soft, now.rlim_max);
  setrlimit(static_cast<__rlimit_resource_t>(resource), &now);
}

/// Bytes of address space in use.
std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(to, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

[[noreturn]] void run_child(const std::function<std::string()>& work, const CallLimits& limits, rlim_t memory,
                            int to) {
  for (const int signal : {SIGXCPU, SIGINT, SIGTERM, SIGPIPE, SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  if (const int null = open("/dev/null", O_WRONLY | O_CLOEXEC); null >= 0) dup2(null, STDERR_FILENO);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, limits.seconds);
  if (memory > 0) limit(RLIMIT_AS, memory);
  try {
    const std::string text = work();
    write_all(to, std::string(1, kText));
    write_all(to, text);
  } catch (const std::bad_alloc&) {
    write_all(to, std::string(1, kMemory));
  } catch (const std::exception& error) {
    write_all(to, std::string(1, kError));
    write_all(to, error.what());
  } catch (...) {
    write_all(to, std::string(1, kError));
  }
  _exit(0);  // what the parent has not written out yet must not be written twice
}

/// Up to `most` bytes.
std::string read_all(int from, std::size_t most) {
  std::string out;
  std::array<char, 1 << 14> part{};
  while (out.size() <= most) {
    const ssize_t size = read(from, part.data(), part.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    out.append(part.data(), static_cast<std::size_t>(size));
  }
  return out;
}

std::runtime_error failure(const char* what) {
  return std::runtime_error(std::string(what) + ": " + std::generic_category().message(errno));
}

}  // namespace

std::string limited_call(const std::function<std::string()>& work, const CallLimits& limits) {
  const std::uint64_t space = address_space();
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw failure("no pipe to a child process");
  const pid_t child = fork();
  if (child < 0) {
    const std::runtime_error error = failure("no child process");
    close(ends[0]), close(ends[1]);
    throw error;
  }
  if (child == 0) run_child(work, limits, space > 0 ? space + limits.memory : 0, ends[1]);
  close(ends[1]);
  const std::string written = read_all(ends[0], limits.output + 1);
  close(ends[0]);
  if (written.size() > limits.output + 1) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (written.size() > limits.output + 1)
    throw std::runtime_error("its result is longer than " + std::to_string(limits.output) + " bytes");
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL))
    throw std::runtime_error("it takes more than " + std::to_string(limits.seconds) + " seconds");
  if (!written.empty() && written.front() == kMemory)
    throw std::runtime_error("it needs more than " + std::to_string(limits.memory >> 20) + " MiB");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || written.empty())
    throw std::runtime_error("it nests too deeply, needs too much memory, or meets a fault of what reads it");
  if (written.front() == kError) throw std::runtime_error(written.substr(1));
  return written.substr(1);
}

}  // namespace specula_tools
