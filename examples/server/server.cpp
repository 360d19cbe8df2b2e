// SPDX-License-Identifier: MIT
// A server of completions and chats in the common JSON form, over a BatchSpeculator. One thread writes all
// texts (text_queue.hpp); each request waits in a thread of the HTTP library for the text of its own.
//
//   POST /v1/completions, /v1/chat/completions   GET /v1/models, /health, /metrics
#include <csignal>
#include <cstdint>
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
using namespace specula_examples;

/// The status of an exception, and what it says.
void refuse(httplib::Response& out, std::exception_ptr why) {
  std::string message;
  try {
    std::rethrow_exception(why);
  } catch (const Refused& error) {
    out.status = error.status, message = error.what();
    if (error.status == 429) out.set_header("Retry-After", "1");
  } catch (const std::invalid_argument& error) {
    out.status = 400, message = error.what();
  } catch (const std::exception& error) {
    out.status = 500, message = error.what();
  }
  send(out, {{"error", {{"message", message}, {"code", out.status}}}});
}

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

/// Writes the texts of `queue`, after `ready`. Each round of a text copies what it has written before, or
/// takes the draft; one budget of all texts says how many tokens.
void write(TextQueue& queue, const Options& options, const std::function<void()>& ready) {
  using Model = cpu::Decoder<float>;
  using Penalised = Processed<SlotOf<Model>, std::reference_wrapper<const Penalties>>;
  cpu::DecoderOptions own;
  own.slots = options.texts, own.capacity = options.capacity, own.threads = options.threads;
  Model target(options.target, own);
  own.team = target.team();
  std::optional<Model> draft;
  if (!options.draft.empty()) draft.emplace(options.draft, own);
  std::vector<Penalties> rules(static_cast<std::size_t>(options.texts));
  std::deque<SlotOf<Model>> slots;
  std::deque<Penalised> models;
  const auto in = [&](Model& model, std::int32_t slot) -> Penalised& {
    const auto& rule = rules[static_cast<std::size_t>(slot)];
    return models.emplace_back(slots.emplace_back(model, slot), std::cref(rule));
  };
  const auto serve = [&](auto make, auto&... all) {
    BatchSpeculator batch{options.texts, make, all...};
    batch.share(BatchBudget());
    ready();
    queue.write(batch, rules);
  };
  const MaxGram copies(target.vocab_size());
  const Chain<> chain{.length = 8};
  const auto with_draft = [&](std::int32_t slot) {
    return Speculator{TreeVerifier{in(target, slot), Sampling{}},
                      Stack{ModelDrafter{in(*draft, slot)}, copies}, Either{chain}};
  };
  const auto with_copies = [&](std::int32_t slot) {
    return Speculator{TreeVerifier{in(target, slot), Sampling{}}, copies, chain};
  };
  draft ? serve(with_draft, *draft, target) : serve(with_copies, target);
}

int run(const Options& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // of all threads to come, of which one waits for them
  const std::size_t most = static_cast<std::size_t>(options.texts) + static_cast<std::size_t>(options.queue);
  TextQueue queue(static_cast<std::int64_t>(most));
  const Api api(options.target, queue);
  httplib::Server server;
  server.new_task_queue = [most] { return new httplib::ThreadPool(most + 8); };
  server.set_payload_max_length(std::size_t{8} << 20);
  server.set_exception_handler([](const auto&, auto& out, std::exception_ptr why) { refuse(out, why); });
  server.Post("/v1/completions", [&](const auto& in, auto& out) { api.answer(in, out, false); });
  server.Post("/v1/chat/completions", [&](const auto& in, auto& out) { api.answer(in, out, true); });
  server.Get("/v1/models", [&](const auto&, auto& out) {
    send(out, {{"object", "list"}, {"data", {{{"id", api.name()}, {"object", "model"}}}}});
  });
  server.Get("/health", [](const auto&, auto& out) { send(out, {{"status", "ok"}}); });
  server.Get("/metrics",
             [&](const auto&, auto& out) { out.set_content(metrics(queue.counts()), "text/plain"); });
  const int port = options.port ? options.port : server.bind_to_any_port(options.host);
  if (port < 0 || (options.port && !server.bind_to_port(options.host, port)))
    throw std::runtime_error("cannot listen at " + options.host + ":" + std::to_string(options.port));
  std::jthread listens, waits;
  write(queue, options, [&] {
    listens = std::jthread([&] { server.listen_after_bind(); });
    waits = std::jthread([&] {
      int signal = 0;
      sigwait(&signals, &signal);
      queue.stop();
    });
    std::cout << "http://" << options.host << ':' << port << std::endl;
  });
  server.stop();
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
