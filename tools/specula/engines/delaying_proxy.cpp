// SPDX-License-Identifier: MIT
#include "delaying_proxy.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace specula_tools {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 18, kHeld = 256;  // bytes of a part, parts of a direction
constexpr auto kIdle = std::chrono::milliseconds(50);  // how late the thread sees that it is to end

void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// A connection to "HOST:PORT"; -1 if there is none.
int connected(const std::string& endpoint) {
  const std::size_t colon = endpoint.find(':');
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET, hints.ai_socktype = SOCK_STREAM;
  if (colon == std::string::npos ||
      getaddrinfo(endpoint.substr(0, colon).c_str(), endpoint.substr(colon + 1).c_str(), &hints, &found) != 0)
    return -1;
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) != 0)
    ::close(std::exchange(socket, -1));
  freeaddrinfo(found);
  return socket;
}

}  // namespace

DelayingProxy::DelayingProxy(std::string endpoint) : target_(std::move(endpoint)), buffer_(kPart) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0 || ::bind(listener_, generic, size) != 0 || ::listen(listener_, 8) != 0 ||
      ::getsockname(listener_, generic, &size) != 0) {
    const int error = errno;
    if (listener_ >= 0) ::close(listener_);
    throw std::runtime_error("no port of 127.0.0.1 for a proxy: " + std::generic_category().message(error));
  }
  own_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this] { run(); });
}

DelayingProxy::~DelayingProxy() {
  stops_ = true;
  thread_.join();
  for (const Link& link : links_) ::close(link.there.from), ::close(link.there.to);
  ::close(listener_);
}

void DelayingProxy::run() {
  std::vector<pollfd> waits;
  while (!stops_) {
    waits.assign(1, {listener_, POLLIN, 0});
    Clock::time_point next = Clock::now() + kIdle;
    const auto events = [&](const Flow& reads, const Flow& writes) {
      short wanted = reads.reads && reads.parts.size() < kHeld ? POLLIN : 0;
      if (!writes.parts.empty()) {
        if (writes.parts.front().due <= Clock::now())
          wanted |= POLLOUT;
        else
          next = std::min(next, writes.parts.front().due);
      }
      return wanted;
    };
    for (const Link& link : links_) {
      waits.push_back({link.there.from, events(link.there, link.back), 0});
      waits.push_back({link.back.from, events(link.back, link.there), 0});
    }
    const auto left = std::max(Clock::duration(0), next - Clock::now());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{static_cast<std::time_t>(whole.count()),
                           static_cast<long>(std::chrono::nanoseconds(left - whole).count())};
    if (::ppoll(waits.data(), static_cast<nfds_t>(waits.size()), &timeout, nullptr) <= 0) continue;
    std::size_t at = 1;
    constexpr short kInput = POLLIN | POLLHUP | POLLERR;
    for (Link& link : links_) {
      const short client = waits[at].revents, server = waits[at + 1].revents;
      at += 2;
      if (client & POLLOUT) write(link, link.back);
      if (server & POLLOUT) write(link, link.there);
      if ((client & kInput) && link.there.reads) read(link, link.there);
      if ((server & kInput) && link.back.reads) read(link, link.back);
      const auto ended = [](const Flow& flow) { return !flow.reads && flow.parts.empty(); };
      link.failed = link.failed || (ended(link.there) && ended(link.back));
    }
    for (auto link = links_.begin(); link != links_.end();) {
      if (link->failed) ::close(link->there.from), ::close(link->there.to);
      link = link->failed ? links_.erase(link) : std::next(link);
    }
    if (waits[0].revents & POLLIN) accept();
  }
}

void DelayingProxy::accept() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = connected(target_);
  if (server < 0) {
    ::close(client);
    return;
  }
  send_at_once(client), send_at_once(server);
  links_.push_back({.there = {client, server}, .back = {server, client}});
}

void DelayingProxy::read(Link& link, Flow& flow) {
  const ssize_t size = ::recv(flow.from, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  std::vector<char> data(buffer_.begin(), buffer_.begin() + std::max<ssize_t>(0, size));
  flow.reads = !data.empty();
  bytes_ += static_cast<std::int64_t>(data.size());
  if (&flow == &link.there && flow.reads) link.asked = true;
  if (&flow == &link.back && flow.reads && std::exchange(link.asked, false)) ++round_trips_;
  flow.parts.push_back({Clock::now() + std::chrono::microseconds(delay_), std::move(data)});
}

void DelayingProxy::write(Link& link, Flow& flow) {
  Part& part = flow.parts.front();
  if (part.data.empty()) {
    ::shutdown(flow.to, SHUT_WR);
    flow.parts.pop_front();
    return;
  }
  const ssize_t size = ::send(flow.to, part.data.data() + part.sent, part.data.size() - part.sent,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0) {
    link.failed = errno != EAGAIN && errno != EINTR;
    return;
  }
  part.sent += static_cast<std::size_t>(size);
  if (part.sent == part.data.size()) flow.parts.pop_front();
}

}  // namespace specula_tools
