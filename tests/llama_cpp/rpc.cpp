// SPDX-License-Identifier: MIT
// labels: long optimised
// A target on two machines: rpc_devices(), the texts, the round trips, and a supervisor of what libllama
// ends.
#include <specula/llama_cpp/rpc.hpp>

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdint>
#include <deque>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <specula/specula.hpp>

#include "delaying_proxy.hpp"
#include "pack.hpp"
#include "skip.hpp"

using namespace specula;
using namespace specula_test;
using namespace std::chrono_literals;
using llama_cpp::expect_rpc_server;
using llama_cpp::Model;
using llama_cpp::rpc_devices;
using llama_cpp::warm_up;
using specula_tools::DelayingProxy;

namespace {

using List = std::vector<Token>;
using Endpoints = std::vector<std::string>;

/// A socket that listens on a free port of this machine. -1: there is no network.
struct Listener {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string endpoint;
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (socket < 0 || ::bind(socket, generic, size) != 0 || ::listen(socket, 4) != 0 ||
        ::getsockname(socket, generic, &size) != 0)
      return;
    endpoint = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~Listener() {
    if (socket >= 0) ::close(socket);
  }
};

/// Starts a program; its standard output can be read from `out`. Its errors are dropped.
struct Process {
  pid_t pid = -1;
  int out = -1;
  explicit Process(std::vector<std::string> words) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      if (FILE* null = std::fopen("/dev/null", "w")) ::dup2(::fileno(null), STDERR_FILENO);
      ::close(ends[0]), ::close(ends[1]);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out = ends[0];
  }
  Process(const Process&) = delete;
  ~Process() {
    end(SIGKILL);
    ::close(out);
  }
  /// Waits for its end. Its status.
  int end(int signal = 0) {
    int status = 0;
    if (pid < 0) return 0;
    if (signal != 0) ::kill(pid, signal);
    ::waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }
  bool ended() const { return pid < 0 || ::waitpid(pid, nullptr, WNOHANG) != 0; }
  /// What it writes, up to `most` bytes.
  std::string read(std::size_t most = std::size_t{1} << 20) const {
    std::string text;
    char byte = 0;
    while (text.size() < most && ::read(out, &byte, 1) == 1) text += byte;
    return text;
  }
};

/// ggml-rpc-server on a port of its own, and a proxy in front of it.
struct Server {
  std::string endpoint = Listener().endpoint;
  std::unique_ptr<Process> process;
  DelayingProxy proxy{endpoint};
  Server() { start(); }
  void start() {
    process = std::make_unique<Process>(std::vector<std::string>{
        SPECULA_RPC_SERVER, "-p", endpoint.substr(endpoint.find(':') + 1), "-t", "1"});
    for (int i = 0; i < 400 && !process->ended(); ++i) {
      try {
        expect_rpc_server(endpoint);
        return;
      } catch (const std::runtime_error&) {
        std::this_thread::sleep_for(25ms);
      }
    }
    FAIL("no server at ", endpoint, ": ", process->ended() ? process->read() : "it does not answer");
  }
};

/// As Linux lists them.
std::string children_of(pid_t parent) {
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  std::string text;
  std::getline(in, text);
  return text;
}

bool can_run() {
  static const bool once = [] {
    ggml_backend_load_all();
    if (std::string(SPECULA_RPC_SERVER).empty()) return skip("no ggml-rpc-server beside libllama"), false;
    if (Listener().endpoint.empty()) return skip("no loopback network"), false;
    return true;
  }();
  return once;
}

/// Two servers, and a target whose layers lie on them.
struct Machines {
  std::deque<Server> servers{2};
  std::shared_ptr<llama_model> file;
  Machines() {
    const Endpoints endpoints{servers[0].proxy.endpoint(), servers[1].proxy.endpoint()};
    std::vector<ggml_backend_dev_t> devices = rpc_devices(endpoints);
    llama_model_params params = llama_model_default_params();
    params.devices = devices.data();
    file = pack_model("base", params);
  }
};

const List kPrompt{1, 431, 17, 263, 1200, 88, 5, 431, 17, 263, 90};

template <class S>
List written(Model& target, Model& draft, S shape) {
  Speculator run{TreeVerifier{target, Sampling{}, SamplingParams{.temperature = 0}}, ModelDrafter{draft},
                 std::move(shape)};
  List text;
  run.generate(kPrompt, {.max_new_tokens = 24}, PhiloxRandom{1},
               [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  CHECK(run.stats().rounds < 24);  // drafts were accepted
  return text;
}

std::string message(const auto& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}
std::string refusal(const std::string& endpoint, std::chrono::milliseconds patience = 5s) {
  return message([&] { expect_rpc_server(endpoint, patience); });
}

}  // namespace

TEST_CASE("an endpoint that cannot be used is an exception that names it") {
  if (!can_run()) return;
  for (const char* wrong :
       {"", "host", ":50052", "host:", "host:0", "host:65536", "host:50052x", "::1:50052"}) {
    CAPTURE(wrong);
    const Endpoints endpoints{wrong};
    const std::string said = ": endpoint '" + endpoints[0] + "', must be HOST:PORT";
    CHECK_THROWS_AS(rpc_devices(endpoints), std::invalid_argument);
    CHECK(message([&] { rpc_devices(endpoints); }).starts_with("rpc_devices" + said));
    CHECK(refusal(wrong).starts_with("expect_rpc_server" + said));
    CHECK_THROWS_AS(llama_cpp::limit_rpc_waits(endpoints, 60s), std::invalid_argument);
    CHECK(message([&] { llama_cpp::limit_rpc_waits(endpoints, 60s); }).starts_with("limit_rpc_waits" + said));
  }
  CHECK(refusal("no-such-host.invalid:50052")
            .find("RPC server no-such-host.invalid:50052: the host is not known") == 0);
  const std::string closed = Listener().endpoint;
  CHECK(refusal(closed).find("RPC server " + closed + ": cannot be connected to: ") == 0);
  CHECK(refusal(closed).find("start `ggml-rpc-server") != std::string::npos);
  CHECK_THROWS_WITH_AS(rpc_devices(Endpoints{closed}), refusal(closed).c_str(), std::runtime_error);
  // Connections wait in the queue of a program that never accepts them.
  const Listener silent;
  CHECK(refusal(silent.endpoint, 50ms).find("RPC server " + silent.endpoint + ": does not answer") == 0);
  const Listener other;
  const auto answer_with = [&other](const void* data, std::size_t size) {
    const int client = ::accept(other.socket, nullptr, nullptr);
    char hello[33];
    (void)::recv(client, hello, sizeof hello, MSG_WAITALL);
    (void)::send(client, data, size, MSG_NOSIGNAL);
    ::close(client);
  };
  std::thread answers([&] { answer_with("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 47); });
  CHECK(refusal(other.endpoint)
            .find("RPC server " + other.endpoint +
                  ": answers as no RPC server of this version of llama.cpp; start "
                  "ggml-rpc-server of the same build there") == 0);
  answers.join();
  std::thread newer([&] {
    char answer[36] = {28};
    answer[8] = RPC_PROTO_MAJOR_VERSION + 1;
    answer_with(answer, sizeof answer);
  });
  CHECK(refusal(other.endpoint)
            .find("an RPC server of protocol " + std::to_string(RPC_PROTO_MAJOR_VERSION + 1) +
                  ".0, here is") != std::string::npos);
  newer.join();
}

TEST_CASE("chains and trees write the local text, in one round trip to each server for any number of nodes") {
  if (!can_run()) return;
  quiet();
  const auto small = pack_model("small");
  Model draft(small, exact_options(256)), here(pack_model("base"), exact_options(256));
  Machines machines;
  const std::string same = machines.servers[0].proxy.endpoint();
  CHECK(message([&] { rpc_devices(Endpoints{same, same}); }).find("is there twice") != std::string::npos);
  Model there(machines.file, exact_options(256));
  const List chain = written(here, draft, Chain<>{.length = 4}),
             tree = written(here, draft, DynamicTree{.top_k = 3, .expansions = 3, .total = 11});
  CHECK(chain == tree);
  CHECK(written(there, draft, Chain<>{.length = 4}) == chain);
  CHECK(written(there, draft, DynamicTree{.top_k = 3, .expansions = 3, .total = 11}) == chain);

  // Passes over 1 to 18 nodes, half of them trees.
  there.truncate(0);
  warm_up(there, 18);
  CHECK(there.size() == 0);
  CHECK(there.node_count() == 0);
  there.append(kPrompt);
  for (const std::int32_t nodes : {7, 1, 1, 2, 3, 5, 11, 18})
    for (const bool is_chain : {true, false}) {
      CAPTURE(nodes);
      CAPTURE(is_chain);
      const List tokens(static_cast<std::size_t>(nodes), 17);
      std::vector<NodeId> parents;
      for (NodeId n = 0; n < nodes; ++n)
        parents.push_back(is_chain ? n - 1 : n > 0 ? (n - 1) / 2 : kNoParent);
      std::int64_t before[2], bytes = machines.servers[1].proxy.bytes();
      for (std::size_t s = 0; s < 2; ++s) before[s] = machines.servers[s].proxy.round_trips();
      const auto row = there.extend(tokens, parents).row(nodes - 1);
      CHECK(row[0] == row[0]);
      for (std::size_t s = 0; s < 2; ++s) {
        const std::int64_t trips = machines.servers[s].proxy.round_trips() - before[s];
        CHECK(trips == 1);
      }
      CHECK(machines.servers[1].proxy.bytes() - bytes > 4 * there.vocab_size() * nodes);  // the rows
      there.commit({});
    }
}

TEST_CASE("a server that dies or answers no more ends the process; a supervisor goes on with the same text") {
  if (!can_run()) return;
  quiet();
  std::deque<Server> servers(2);
  const std::vector<std::string> words{SPECULA_SUPERVISED, pack_file("base").string(),
                                       servers[0].proxy.endpoint() + "," + servers[1].proxy.endpoint(),
                                       "def fib(n):\n", "40"};
  Process whole(words);
  const std::string text = whole.read();
  CHECK(whole.end() == 0);
  CHECK(text.size() > 40);
  for (Server& server : servers) server.proxy.set_delay(4ms);
  Process broken(words);
  std::string begin = broken.read(30);
  servers[1].process->end(SIGKILL);
  servers[1].start();
  begin += broken.read();
  CHECK(broken.end() == 0);
  CHECK(begin == text);

  // One that stays connected and answers no more, for longer than is allowed, then again.
  std::vector<std::string> impatient = words;
  impatient.push_back("1");
  Process waiting(impatient);
  begin = waiting.read(30);
  const std::string child = children_of(waiting.pid);
  ::kill(servers[0].process->pid, SIGSTOP);
  std::this_thread::sleep_for(3s);
  if (!child.empty()) CHECK(children_of(waiting.pid) != child);
  ::kill(servers[0].process->pid, SIGCONT);
  begin += waiting.read();
  CHECK(waiting.end() == 0);
  CHECK(begin == text);
}

TEST_CASE("waits for servers are limited on the connections to them, and on no others") {
  if (!can_run()) return;
  quiet();
  const Listener other;
  Machines machines;
  const Endpoints endpoints{machines.servers[0].proxy.endpoint(), machines.servers[1].proxy.endpoint()};
  CHECK(llama_cpp::limit_rpc_waits(endpoints, 60s) == 2);
  CHECK(llama_cpp::limit_rpc_waits(Endpoints{other.endpoint}, 60s) == 0);
}
