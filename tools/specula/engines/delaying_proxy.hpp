// SPDX-License-Identifier: MIT
// A proxy on this machine that delays what passes through it, and counts round trips: a distant server
// nearby.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace specula_tools {

/// Listens on a free port of 127.0.0.1, and passes what comes on to `endpoint` and back, each direction later
/// by the same delay, whatever the size: bandwidth is not limited. One thread.
class DelayingProxy {
 public:
  /// Throws std::runtime_error if there is no port. A server that is not there closes its client's
  /// connection.
  explicit DelayingProxy(std::string endpoint);
  ~DelayingProxy();
  DelayingProxy(const DelayingProxy&) = delete;
  DelayingProxy& operator=(const DelayingProxy&) = delete;

  /// "127.0.0.1:PORT", in place of the server's.
  const std::string& endpoint() const { return own_; }
  /// The delay of what comes from now on.
  void set_delay(std::chrono::microseconds one_way) { delay_ = one_way.count(); }

  /// How often the server's data followed data of the client: what a client that waits for answers waited
  /// for.
  std::int64_t round_trips() const { return round_trips_; }
  std::int64_t bytes() const { return bytes_; }  ///< in both directions

 private:
  using Clock = std::chrono::steady_clock;
  struct Part {
    Clock::time_point due;
    std::vector<char> data;  // empty: the end
    std::size_t sent = 0;
  };
  /// One direction of a connection.
  struct Flow {
    int from = -1, to = -1;
    std::deque<Part> parts = {};
    bool reads = true;
  };
  struct Link {
    Flow there, back;
    bool asked = false;
    bool failed = false;
  };

  void run();
  void accept();
  void read(Link& link, Flow& flow);
  static void write(Link& link, Flow& flow);

  std::string target_, own_;
  std::vector<char> buffer_;
  int listener_ = -1;
  std::list<Link> links_;
  std::atomic<std::int64_t> delay_{0}, round_trips_{0}, bytes_{0};
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace specula_tools
