// SPDX-License-Identifier: MIT
// A server of completions and chats over HTTP: each request waits in a thread of the HTTP library, one thread
// writes all texts, and the first one waits for the signal that ends the server.
#include <chrono>
#include <csignal>
#include <deque>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>
#include <type_traits>

#include <httplib.h>

#include <specula/batch.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/model/processed.hpp>
#include <specula/specula.hpp>
#include "completions.hpp"
#include "options.hpp"

using namespace specula;

struct Options {
  std::string target, draft, host = "127.0.0.1";
  int port = 8080, texts = 8, queue = 64, capacity = 2048, threads = 1;
};

/// The models, with a slot for each text, and in each slot the penalties of that text.
struct Models {
  using Model = cpu::Decoder<float>;
  using Rows = Processed<SlotOf<Model>, std::reference_wrapper<const Penalties>>;

  explicit Models(const Options& options) {
    cpu::DecoderOptions sizes;
    sizes.slots = options.texts, sizes.capacity = options.capacity, sizes.threads = options.threads;
    target.emplace(options.target, sizes);
    sizes.team = target->team();
    if (!options.draft.empty()) draft.emplace(options.draft, sizes);
  }
  Rows& rows_of(Model& model, std::int32_t slot) {
    return rows.emplace_back(slots.emplace_back(model, slot), std::cref(penalties[slot]));
  }
  std::optional<Model> target, draft;
  PenaltiesBySlot penalties;
  std::deque<SlotOf<Model>> slots;
  std::deque<Rows> rows;
};

/// What writes the texts of a queue until that is stopped. Each round of a text copies what it has written
/// before, or takes the draft; one budget of all texts says how many tokens.
std::function<void()> writer_of(TextQueue& queue, Models& models) {
  const auto writer = [&]<class Make, class... All>(Make make, All&... all) -> std::function<void()> {
    const auto batch = std::make_shared<BatchSpeculator<Make, All...>>(models.target->slots(), make, all...);
    batch->share(BatchBudget());
    return [&queue, batch] { queue.write(*batch); };
  };
  const MaxGram copies{models.target->vocab_size()};
  const Chain<> chain{.length = 8};
  const auto target = [&models](std::int32_t slot) {
    return TreeVerifier{models.rows_of(*models.target, slot), Sampling{}};
  };
  const auto with_draft = [=, &models](std::int32_t slot) {
    Stack drafters{ModelDrafter{models.rows_of(*models.draft, slot)}, copies};
    return Speculator{target(slot), std::move(drafters), Either{chain}};
  };
  const auto with_copies = [=](std::int32_t slot) { return Speculator{target(slot), copies, chain}; };
  return models.draft ? writer(with_draft, *models.draft, *models.target)
                      : writer(with_copies, *models.target);
}

/// The body, of any kind that curl sends: the library's own limit does not hold for all of them.
std::string body_of(const httplib::Request& in, const httplib::ContentReader& reader) {
  constexpr std::size_t kMost = std::size_t{8} << 20;
  std::string body;
  if (in.is_multipart_form_data()) throw std::invalid_argument("the body must be a JSON object");
  if (!reader([&](const char* data, std::size_t size) { return body.append(data, size).size() <= kMost; }))
    throw std::length_error("the body has more than " + std::to_string(kMost) + " bytes, or was cut");
  return body;
}

/// An answer that is being sent. The text ends with it.
struct Sending {
  QueuedText text;
  Answer answer;
  TextPart part = text.next();  // until the text has begun, the status is open

  /// False if the client has left, or the text has failed: then the client sees that its answer is cut off.
  bool send(httplib::DataSink& sink) try {
    const std::string more = answer.add(part);
    if (!(more.empty() ? sink.is_writable() : sink.write(more.data(), more.size()))) return false;
    if (answer.ended) sink.done();
    if (!answer.ended) part = text.next(std::chrono::milliseconds(200));
    return true;
  } catch (...) {  // there is no handler around this
    return false;
  }
};

int status_of(const std::exception& error) {
  if (dynamic_cast<const QueueFull*>(&error)) return 429;
  if (dynamic_cast<const QueueStopped*>(&error)) return 503;
  if (dynamic_cast<const std::length_error*>(&error)) return 413;
  return dynamic_cast<const std::invalid_argument*>(&error) ? 400 : 500;
}

void add_routes(httplib::Server& server, TextQueue& queue, const Completions& completions) {
  const auto send = [](httplib::Response& out, const Json& json) {
    out.set_content(dump(json), "application/json");
  };
  server.set_exception_handler([send](const auto&, auto& out, const std::exception_ptr& why) {
    try {
      std::rethrow_exception(why);
    } catch (const std::exception& error) {
      out.status = status_of(error);
      if (out.status == 429) out.set_header("Retry-After", "1");
      send(out, {{"error", {{"message", error.what()}, {"code", out.status}}}});
    }
  });
  for (const bool chat : {false, true}) {
    const auto answer = [&, chat](const auto& in, auto& out, const httplib::ContentReader& reader) {
      auto [request, form] = completions.read(body_of(in, reader), chat);
      QueuedText text = queue.join(std::move(request));
      const std::shared_ptr<Sending> sending(new Sending{std::move(text), std::move(form)});
      if (sending->part.failure) std::rethrow_exception(sending->part.failure);
      out.set_chunked_content_provider(
          sending->answer.streams ? "text/event-stream" : "application/json",
          [sending](std::size_t, httplib::DataSink& sink) { return sending->send(sink); });
    };
    server.Post(chat ? "/v1/chat/completions" : "/v1/completions", answer);
  }
  server.Get("/v1/models", [&, send](const auto&, auto& out) {
    const Json model = {{"id", completions.name}, {"object", "model"}};
    send(out, {{"object", "list"}, {"data", Json::array({model})}});
  });
  server.Get("/health", [send](const auto&, auto& out) { send(out, {{"status", "ok"}}); });
  server.Get("/metrics", [&](const auto&, auto& out) {  // in Prometheus' form
    const TextQueue::Counts& counts = queue.counts();
    std::ostringstream lines;
    lines << "specula_requests_total " << counts.joined << "\nspecula_tokens_total " << counts.tokens
          << "\nspecula_rounds_total " << counts.rounds << "\nspecula_texts_running " << counts.running
          << "\nspecula_texts " << counts.texts << '\n';
    out.set_content(lines.str(), "text/plain");
  });
}

int run(const Options& options) {
  sigset_t signals;  // blocked in all threads that begin from here on
  sigemptyset(&signals), sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Models models(options);
  const int most = options.texts + options.queue;
  TextQueue queue(most);
  const std::function<void()> writer = writer_of(queue, models);
  const Completions completions(options.target, models.target->vocab_size(), models.penalties);
  httplib::Server server;
  add_routes(server, queue, completions);
  server.new_task_queue = [most] { return new httplib::ThreadPool(static_cast<std::size_t>(most) + 8); };
  socket_t listener = -1;
  server.set_socket_options([&listener](socket_t socket) {  // by default a second server would share the port
    const int yes = 1;
    setsockopt(listener = socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const int port = options.port ? options.port : server.bind_to_any_port(options.host);
  if (port < 0 || (options.port && !server.bind_to_port(options.host, port)))
    throw std::runtime_error("cannot listen at " + options.host + ":" + std::to_string(options.port));
  listen(listener, SOMAXCONN);  // the library lets five clients wait to be connected
  bool listened = false;
  std::thread writes(writer), listens([&] {
    listened = server.listen_after_bind();
    if (!listened) kill(getpid(), SIGTERM);
  });
  std::cout << "http://" << options.host << ':' << port << std::endl;

  int signal = 0;
  sigwait(&signals, &signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second one ends the process
  queue.stop();
  writes.join();
  const auto sent = [&] { return server.is_running() && queue.counts().texts == 0; };
  for (int tries = 0; tries < 500 && !sent(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server.stop();
  listens.join();
  return listened ? 0 : 1;
}

int main(int argc, char** argv) {
  return specula_tools::run_program("server", [&] {
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
    const bool done = specula_tools::parse_command_line(app, std::vector<std::string>(argv + 1, argv + argc));
    return done || specula_tools::only_parses() ? 0 : run(options);
  });
}
