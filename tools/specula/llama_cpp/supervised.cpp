// SPDX-License-Identifier: MIT
// A text that outlives the servers of its model: libllama ends the process that loses an RPC server, so the
// model runs in a child, and this process starts another one with the text so far. A server that is connected
// and does not answer for SECONDS (300) counts as lost. usage:
// specula-llama-supervised TARGET.gguf HOST:PORT[,...] PROMPT [MAX_NEW_TOKENS [SECONDS]]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <specula/llama_cpp/model.hpp>
#include <specula/llama_cpp/rpc.hpp>
#include <specula/llama_cpp/text.hpp>
#include <specula/specula.hpp>

namespace {

using specula::Token;
using specula::Tokens;

constexpr int kTries = 120;                              // without a new token
constexpr auto kPause = std::chrono::milliseconds{500};  // after each

struct Job {
  const char* target;
  std::vector<std::string> servers;
  std::string prompt;
  std::int32_t most;
  std::chrono::seconds limit;
};

/// A token and its text, from the child to the parent in one piece.
struct Message {
  Token token = 0;
  std::uint32_t size = 0;
  std::array<char, 256> text = {};
};

/// Goes on with a text. Every token is sent as soon as the target has accepted it.
void run_child(const Job& job, const std::vector<Token>& written, int to) {
  setenv("GGML_NO_BACKTRACE", "1", 0);  // libllama's end of the process is expected
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  std::vector<ggml_backend_dev_t> devices = specula::llama_cpp::rpc_devices(job.servers);
  llama_model_params params = llama_model_default_params();
  params.devices = devices.data();
  const auto file = specula::llama_cpp::load(job.target, params);
  specula::llama_cpp::limit_rpc_waits(job.servers, job.limit);
  const llama_vocab* const vocab = llama_model_get_vocab(file.get());
  const std::vector<Token> ends = specula::llama_cpp::end_tokens(vocab);
  const auto left = job.most - static_cast<std::int32_t>(written.size());
  if (left < 1 || (!written.empty() && std::binary_search(ends.begin(), ends.end(), written.back())))
    return;  // the last child sent all of it
  std::vector<Token> text = specula::llama_cpp::tokenize(vocab, job.prompt);
  text.insert(text.end(), written.begin(), written.end());
  specula::llama_cpp::Model target(
      file, {.capacity = static_cast<std::int32_t>(text.size()) + left + 16, .max_nodes = 9});
  specula::Speculator run{
      specula::TreeVerifier{target, specula::Sampling{}, specula::SamplingParams{.temperature = 0}},
      specula::MaxGram{target.vocab_size()}, specula::CostAware{specula::Chain<>{.length = 8}}};
  run.generate(text, {.max_new_tokens = left, .stop = ends}, specula::PhiloxRandom{1}, [&](Tokens fresh) {
    for (const Token token : fresh) {
      Message message{token};
      const std::string bytes = specula::llama_cpp::token_bytes(vocab, token);
      message.size = static_cast<std::uint32_t>(bytes.copy(message.text.data(), message.text.size()));
      if (::write(to, &message, sizeof message) != sizeof message)
        throw std::runtime_error("the parent is gone");
    }
  });
}

/// The status of a child that went on with `written`, to which the tokens that it sent are added.
int try_once(const Job& job, std::vector<Token>& written) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "no pipe to a child");
  std::cout.flush();
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "no child process");
  if (child == 0) {
    ::close(ends[0]);
    try {
      run_child(job, written, ends[1]);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  for (Message message; ::read(ends[0], &message, sizeof message) == sizeof message;) {
    written.push_back(message.token);
    std::cout.write(message.text.data(), message.size).flush();
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::cerr << "usage: " << argv[0] << " TARGET.gguf HOST:PORT[,...] PROMPT [MAX_NEW_TOKENS [SECONDS]]\n";
    return 2;
  }
  const Job job{argv[1], split(argv[2]), argv[3], argc > 4 ? std::atoi(argv[4]) : 128,
                std::chrono::seconds(argc > 5 ? std::atoi(argv[5]) : 300)};
  std::vector<Token> written;
  std::cout << job.prompt;
  for (int tries = 0; tries < kTries; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(kPause);
    try {
      for (const std::string& server : job.servers) specula::llama_cpp::expect_rpc_server(server);
    } catch (const std::runtime_error& error) {
      std::cerr << error.what() << std::endl;
      continue;
    }
    const std::size_t before = written.size();
    const int status = try_once(job, written);
    if (WIFEXITED(status)) {
      std::cout << std::endl;
      return WEXITSTATUS(status);
    }
    std::cerr << "the child ended after " << written.size() << " tokens; another one goes on" << std::endl;
    if (written.size() > before) tries = 0;
  }
  std::cerr << argv[0] << ": no new token in " << kTries << " tries\n";
  return 1;
} catch (const std::exception& error) {
  std::cerr << argv[0] << ": " << error.what() << '\n';
  return 1;
}
