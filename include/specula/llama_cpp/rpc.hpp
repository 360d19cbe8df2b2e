// SPDX-License-Identifier: MIT
// Several machines: the devices of llama.cpp's RPC servers, for the layers of a model.
#pragma once

#include <ggml-backend.h>
#include <ggml-rpc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula/base/compiler_options.hpp"
#include "specula/base/read_number.hpp"
#include "specula/base/rows.hpp"
#include "specula/model/language_model.hpp"

namespace specula::llama_cpp {

namespace detail {

/// An address that libllama connects to for "HOST:PORT", which is of IPv4. Throws std::invalid_argument for
/// an endpoint that is none, naming `function`, the one that the caller was called as; std::runtime_error for
/// a host that is not known.
inline sockaddr_in rpc_address(const std::string& endpoint, const std::string& function) {
  const std::size_t colon = endpoint.find(':');
  const std::string_view digits =
      std::string_view(endpoint).substr(colon == std::string::npos ? endpoint.size() : colon + 1);
  std::uint16_t port = 0;
  if (colon == 0 || !specula::detail::read_number(digits, port) || port == 0)
    throw std::invalid_argument(function + ": endpoint '" + endpoint +
                                "', must be HOST:PORT with a port of 1 to 65535, and a host without colons");
  addrinfo hints{};
  hints.ai_family = AF_INET, hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code =
          getaddrinfo(endpoint.substr(0, colon).c_str(), std::string(digits).c_str(), &hints, &found);
      code != 0)
    throw std::runtime_error("RPC server " + endpoint + ": the host is not known: " + gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, &freeaddrinfo);
  sockaddr_in out{};
  std::memcpy(&out, address->ai_addr, sizeof out);
  return out;
}

/// A connection that sees whether an RPC server is there, since libllama ends the process where none is.
class RpcProbe {
 public:
  /// Throws std::runtime_error naming the endpoint if it cannot be connected to, and as rpc_address().
  RpcProbe(const std::string& endpoint, std::chrono::milliseconds patience, const char* function)
      : endpoint_(endpoint), patience_(patience) {
    const sockaddr_in address = rpc_address(endpoint, function);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ < 0) fail("no socket: " + std::generic_category().message(errno));
    int error =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!ready(POLLOUT))
        error = ETIMEDOUT;
      else if (::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    }
    if (error != 0)
      fail("cannot be connected to: " + std::generic_category().message(error) +
           "; start `ggml-rpc-server -H HOST -p PORT` there, and see that no firewall is between");
  }
  ~RpcProbe() { close(); }
  RpcProbe(const RpcProbe&) = delete;
  RpcProbe& operator=(const RpcProbe&) = delete;

  /// Asks for the version of the protocol, as libllama does first. Throws std::runtime_error if nothing that
  /// speaks ours answers.
  void greet() {
    constexpr std::uint64_t kCapabilities = 24, kAnswer = 4 + kCapabilities;  // bytes
    std::array<char, 1 + sizeof kCapabilities + kCapabilities> hello{};       // no capabilities
    hello[0] = 14;                                                            // RPC_CMD_HELLO in all versions
    std::memcpy(&hello[1], &kCapabilities, sizeof kCapabilities);
    if (::send(socket_, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size()))
      no_server();
    std::array<char, sizeof kAnswer + kAnswer> answer{};
    for (std::size_t had = 0; had < answer.size();) {
      if (!ready(POLLIN))
        fail("does not answer: an RPC server serves one client at a time, and another one may be connected");
      const ssize_t size = ::recv(socket_, answer.data() + had, answer.size() - had, 0);
      if (size <= 0) no_server();
      had += static_cast<std::size_t>(size);
    }
    std::uint64_t length = 0;
    std::memcpy(&length, answer.data(), sizeof length);
    if (length != kAnswer) no_server();
    const int major = static_cast<unsigned char>(answer[sizeof length]),
              minor = static_cast<unsigned char>(answer[sizeof length + 1]);
    if (major != RPC_PROTO_MAJOR_VERSION || minor > RPC_PROTO_MINOR_VERSION)
      fail("an RPC server of protocol " + version(major, minor) + ", here is " +
           version(RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION) +
           "; build both of one version of llama.cpp");
  }

 private:
  static std::string version(int major, int minor) {
    return std::to_string(major) + "." + std::to_string(minor);
  }
  [[noreturn]] void fail(const std::string& what) {
    close();
    throw std::runtime_error("RPC server " + endpoint_ + ": " + what);
  }
  [[noreturn]] void no_server() {
    fail(
        "answers as no RPC server of this version of llama.cpp; start ggml-rpc-server of the same build "
        "there");
  }
  bool ready(short events) {
    pollfd one{socket_, events, 0};
    const auto until = std::chrono::steady_clock::now() + patience_;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      const int count = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
      if (count >= 0 || errno != EINTR) return count > 0;
    }
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  std::string endpoint_;
  std::chrono::milliseconds patience_;
  int socket_ = -1;
};

}  // namespace detail

/// Sees that an RPC server answers at `endpoint`, "HOST:PORT", since libllama ends the process where none
/// does. Throws std::invalid_argument for an endpoint that is none; std::runtime_error naming it if no server
/// accepts a connection and answers, each within `patience`, or one of another version. Two round trips.
inline void expect_rpc_server(const std::string& endpoint,
                              std::chrono::milliseconds patience = std::chrono::seconds(5)) {
  detail::RpcProbe(endpoint, patience, "expect_rpc_server").greet();
}

/// The devices of the RPC servers (`ggml-rpc-server`) at `endpoints`, "HOST:PORT" each, in this order, and a
/// nullptr: for llama_model_params::devices, which load() reads. The model's layers go to these devices, by
/// their free memory; the embedding of tokens stays here. Models that are not given them do not use them. A
/// server serves one process at a time, and llama.cpp's protocol has no protection: only on a network of
/// one's own. Once a server was found here, its loss ends this process, inside libllama (docs/llama_cpp.md);
/// for one that stays connected and answers no more there is limit_rpc_waits().
///
/// Throws what expect_rpc_server() throws, for each endpoint; std::invalid_argument for one that is there
/// twice and for more than 15 devices; std::runtime_error if llama.cpp was built without RPC. Some round
/// trips to each server; `patience` is the time in which one has to accept the connection, and to answer.
inline std::vector<ggml_backend_dev_t> rpc_devices(
    std::span<const std::string> endpoints, std::chrono::milliseconds patience = std::chrono::seconds(5)) {
  constexpr std::size_t kMost = 15;  // libllama's 16 backends include the CPU
  const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
  const auto add_server = rpc ? reinterpret_cast<decltype(&ggml_backend_rpc_add_server)>(
                                    ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"))
                              : nullptr;
  if (!add_server)
    throw std::runtime_error(
        "rpc_devices: llama.cpp was built without RPC: build it with -DGGML_RPC=ON, or by scripts/llama_cpp");
  static std::mutex mutex;
  static std::set<std::string> known;  // these may be busy with a model of this process
  const std::scoped_lock lock(mutex);
  std::vector<ggml_backend_dev_t> devices;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const std::string& endpoint = endpoints[i];
    if (std::find(endpoints.begin(), endpoints.begin() + static_cast<std::ptrdiff_t>(i), endpoint) !=
        endpoints.begin() + static_cast<std::ptrdiff_t>(i))
      throw std::invalid_argument("rpc_devices: endpoint '" + endpoint + "' is there twice");
    {
      detail::RpcProbe probe(endpoint, patience, "rpc_devices");
      if (known.count(endpoint) == 0) probe.greet();
    }
    const ggml_backend_reg_t server = add_server(endpoint.c_str());
    if (!server) throw std::runtime_error("RPC server " + endpoint + ": has no devices");
    known.insert(endpoint);
    for (std::size_t d = 0; d < ggml_backend_reg_dev_count(server); ++d)
      devices.push_back(ggml_backend_reg_dev_get(server, d));
  }
  if (devices.size() > kMost)
    throw std::invalid_argument("rpc_devices: " + std::to_string(devices.size()) +
                                " devices, libllama runs a model on at most " + std::to_string(kMost));
  devices.push_back(nullptr);
  return devices;
}

/// From here on a server at one of these endpoints that lets libllama wait longer than `most` counts as lost,
/// which ends this process: else it waits for ever for one that is connected and answers no more, as a
/// machine that sleeps, or a link that drops packets. To be called when a model lies on the servers; the
/// longest wait is that for a prompt's largest pass. Returns how many connections it found. Throws as
/// expect_rpc_server() for an endpoint that is none.
inline std::int32_t limit_rpc_waits(std::span<const std::string> endpoints, std::chrono::seconds most) {
  std::vector<sockaddr_in> servers;
  for (const std::string& endpoint : endpoints)
    servers.push_back(detail::rpc_address(endpoint, "limit_rpc_waits"));
  rlimit limit{};
  constexpr rlim_t kMost = 1 << 20;
  const rlim_t sockets = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_cur, kMost) : kMost;
  const timeval wait{.tv_sec = most.count(), .tv_usec = 0};
  std::int32_t found = 0;
  for (int socket = 0; socket < static_cast<int>(sockets); ++socket) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || size != sizeof peer)
      continue;
    const bool ours = std::any_of(servers.begin(), servers.end(), [&](const sockaddr_in& server) {
      return peer.sin_family == AF_INET && peer.sin_port == server.sin_port &&
             peer.sin_addr.s_addr == server.sin_addr.s_addr;
    });
    if (ours && ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0 &&
        ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0)
      ++found;
  }
  return found;
}

/// Runs a pass over 1, 2, ..., `nodes` nodes of an empty model, so that no later one is the first of its
/// size: of a size that libllama has not seen in this process it asks each server what its results take,
/// which is 5 or 6 further round trips. CostAware would take them for the cost of drafting. Throws what
/// extend() throws.
template <LanguageModel M>
void warm_up(M& model, std::int32_t nodes) {
  std::vector<Token> tokens;
  std::vector<NodeId> parents;
  for (NodeId n = 0; n < nodes; ++n) {
    tokens.push_back(0);
    parents.push_back(n > 0 ? n - 1 : kNoParent);
    model.extend(tokens, parents);
    model.commit({});
  }
}

}  // namespace specula::llama_cpp
