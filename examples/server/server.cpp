// SPDX-License-Identifier: MIT
// A server of completions and chats in the common JSON form, over a BatchSpeculator. One thread writes all
// texts (text_queue.hpp); each request waits in a thread of the HTTP library for the text of its own.
//
//   POST /v1/completions, /v1/chat/completions   GET /v1/models, /health, /metrics
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <httplib.h>

#include <CLI/CLI.hpp>

#include <specula/batch.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/model/processed.hpp>
#include <specula/model/processors.hpp>
#include <specula/specula.hpp>

#include "completions.hpp"
#include "options.hpp"
#include "text_queue.hpp"

using namespace specula;
using namespace specula_tools;

/// In Prometheus' text form. Tokens over rounds are the tokens per pass of the target.
std::string metrics(const TextQueue::Counts& counts) {
  std::ostringstream out;
  out << "specula_requests_total " << counts.requests << "\nspecula_tokens_total " << counts.tokens
      << "\nspecula_rounds_total " << counts.rounds << "\nspecula_texts_running " << counts.running
      << "\nspecula_texts " << counts.texts << '\n';  // those that wait, too
  return out.str();
}

struct Options {
  std::string target, draft, host = "127.0.0.1";
  int port = 8080, texts = 8, queue = 64, capacity = 2048, threads = 1;
};

constexpr std::size_t kLargestBody = std::size_t{8} << 20;

/// The models of all texts: slots of one target and of one draft, if there is any.
struct Models {
  static cpu::DecoderOptions sizes(const Options& options) {
    cpu::DecoderOptions sizes;
    sizes.slots = options.texts, sizes.capacity = options.capacity, sizes.threads = options.threads;
    return sizes;
  }
  explicit Models(const Options& options) : target(options.target, sizes(options)) {
    cpu::DecoderOptions own = sizes(options);
    own.team = target.team();
    if (!options.draft.empty()) draft.emplace(options.draft, own);
  }
  cpu::Decoder<float> target;
  std::optional<cpu::Decoder<float>> draft;
};

/// Writes the texts of `queue` until that is stopped. Each round of a text copies what it has written before,
/// or takes the draft; one budget of all texts says how many tokens.
void write(TextQueue& queue, Models& models) {
  using Slot = SlotOf<cpu::Decoder<float>>;
  using Penalised = Processed<Slot, std::reference_wrapper<const Penalties>>;
  const std::int32_t texts = models.target.slots(), vocab = models.target.vocab_size();
  std::vector<Penalties> rules(static_cast<std::size_t>(texts));
  std::deque<Slot> slots;
  std::deque<Penalised> penalised;
  const auto in = [&](cpu::Decoder<float>& model, std::int32_t slot) -> Penalised& {
    const auto& rule = rules[static_cast<std::size_t>(slot)];
    return penalised.emplace_back(slots.emplace_back(model, slot), std::cref(rule));
  };
  const auto serve = [&](auto make, auto&... all) {
    BatchSpeculator batch{texts, make, all...};
    batch.share(BatchBudget());
    queue.write(batch, rules);
  };
  const Chain<> chain{.length = 8};
  const auto with_draft = [&](std::int32_t slot) {
    return Speculator{TreeVerifier{in(models.target, slot), Sampling{}},
                      Stack{ModelDrafter{in(*models.draft, slot)}, MaxGram{vocab}}, Either{chain}};
  };
  const auto with_copies = [&](std::int32_t slot) {
    return Speculator{TreeVerifier{in(models.target, slot), Sampling{}}, MaxGram{vocab}, chain};
  };
  models.draft ? serve(with_draft, *models.draft, models.target) : serve(with_copies, models.target);
}

/// The body, of any kind that curl sends. The library's own limit does not hold for all of them.
std::string read(const httplib::Request& in, const httplib::ContentReader& reader) {
  std::string body;
  if (in.is_multipart_form_data()) throw Refused(400, "the body is no JSON object");
  const bool all = reader([&](const char* data, std::size_t size) {
    body.append(data, size);
    return body.size() <= kLargestBody;
  });
  if (!all)
    throw Refused(413, "the body has more than " + std::to_string(kLargestBody) + " bytes, or was cut");
  return body;
}

/// SIGINT and SIGTERM, blocked in this thread and in those that it will start.
sigset_t blocked_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

/// A server that listens until its scope ends, and then until its answers are sent. A signal stops the queue,
/// a second one ends the process.
class Listening {
 public:
  Listening(httplib::Server& server, TextQueue& queue, const Api& api, const sigset_t& signals)
      : server_(server), api_(api) {
    waits_ = std::thread([this, &queue, signals] {
      for (int signal = 0, count = 0; sigwait(&signals, &signal) == 0 && !ends_;) {
        if (++count > 1) std::_Exit(128 + signal);
        queue.stop();
      }
    });
    listens_ = std::thread([this] { server_.listen_after_bind(), over_ = true; });
  }
  ~Listening() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!over_ && (!server_.is_running() || api_.open() > 0) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    server_.stop();
    listens_.join();
    ends_ = true;
    pthread_kill(waits_.native_handle(), SIGTERM);
    waits_.join();
  }

 private:
  httplib::Server& server_;
  const Api& api_;
  std::atomic<bool> over_ = false, ends_ = false;
  std::thread waits_, listens_;
};

int run(const Options& options) {
  const sigset_t signals = blocked_signals();  // of the models' threads, too
  const std::size_t most = static_cast<std::size_t>(options.texts) + static_cast<std::size_t>(options.queue);
  Models models(options);
  TextQueue queue(static_cast<std::int64_t>(most));
  Api api(options.target, models.target.vocab_size(), options.capacity, queue);
  httplib::Server server;
  server.new_task_queue = [most] { return new httplib::ThreadPool(most + 8); };
  socket_t listener = -1;
  server.set_socket_options([&listener](socket_t socket) {  // by default a second server would share the port
    const int yes = 1;
    setsockopt(listener = socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_exception_handler([](const auto&, auto& out, std::exception_ptr why) { refuse(out, why); });
  for (const bool chat : {false, true})
    server.Post(chat ? "/v1/chat/completions" : "/v1/completions",
                [&api, chat](const auto& in, auto& out, const httplib::ContentReader& reader) {
                  api.answer(read(in, reader), out, chat);
                });
  server.Get("/v1/models", [&](const auto&, auto& out) {
    send(out, {{"object", "list"}, {"data", {{{"id", api.name()}, {"object", "model"}}}}});
  });
  server.Get("/health", [](const auto&, auto& out) { send(out, {{"status", "ok"}}); });
  server.Get("/metrics",
             [&](const auto&, auto& out) { out.set_content(metrics(queue.counts()), "text/plain"); });
  const int port = options.port ? options.port : server.bind_to_any_port(options.host);
  if (port < 0 || (options.port && !server.bind_to_port(options.host, port)))
    throw std::runtime_error("cannot listen at " + options.host + ":" + std::to_string(options.port));
  listen(listener, SOMAXCONN);  // the library lets five clients wait to be connected
  const Listening listening(server, queue, api, signals);
  std::cout << "http://" << options.host << ':' << port << std::endl;
  write(queue, models);
  return 0;
}

int main(int argc, char** argv) {
  return run_program("server", [&] {
    Options options;
    CLI::App app{"Completions and chats over HTTP.", "server"};
    app.option_defaults()->always_capture_default();
    app.add_option("--target", options.target, "Folder or GGUF file")->required();
    app.add_option("--draft", options.draft, "A smaller model's; without one texts draft by copying alone");
    app.add_option("--host", options.host, "Address to listen at");
    app.add_option("--port", options.port, "0: any that is free")->check(CLI::Range(0, 65535));
    app.add_option("--texts", options.texts, "Written at once")->check(CLI::Range(1, 4096));
    app.add_option("--queue", options.queue, "That may wait; more get 429")->check(CLI::Range(0, 4096));
    app.add_option("--capacity", options.capacity, "Tokens of a text, prompt included");
    app.add_option("--threads", options.threads, "Of the models")->check(CLI::Range(1, 256));
    const bool done = parse_command_line(app, std::vector<std::string>(argv + 1, argv + argc));
    return done || only_parses() ? 0 : run(options);
  });
}
