// SPDX-License-Identifier: MIT
// labels: long optimised
// llama_cpp::Model, the adapter to libllama: rows, trees, commits and failures, against cpu::Decoder and
// against new contexts.
#include <specula/llama_cpp/model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <specula/model/processors.hpp>
#include <specula/specula.hpp>

#include "model_findings.hpp"
#include "pack.hpp"
#include "random.hpp"
#include "random_trees.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/cpu/decoder_weights.hpp"

using namespace specula;
using namespace specula_test;
using llama_cpp::Model;
using llama_cpp::Options;

static_assert(LanguageModel<Model>);
static_assert(CountsChanges<Model>);
static_assert(ExposesFeatures<Model>);
static_assert(!ExposesKeyValues<Model>);
static_assert(!std::is_move_constructible_v<Model>);

namespace {

using specula_test::difference;  // of rows; here also of all rows of a pass

using List = std::vector<Token>;

// Logits of the pack's models are some units wide; two implementations in floats differ by some 1e-5 of that.
constexpr double kTolerance = 2e-3;

List random_tokens(Random& random, std::int32_t count, std::int32_t vocab) {
  List tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(3 + random.below(vocab - 3));
  return tokens;
}

double difference(const LogitsView& a, const LogitsView& b) {
  REQUIRE(a.rows == b.rows);
  double most = 0;
  for (std::int32_t r = 0; r < a.rows; ++r) most = std::max(most, difference(a.row(r), b.row(r)));
  return most;
}

/// Weights whose products round nothing.
std::shared_ptr<const cpu::DecoderWeights<float>> exact_weights(
    const std::string& name, std::shared_ptr<const cpu::DecoderWeights<float>> target = {}) {
  return std::make_shared<const cpu::DecoderWeights<float>>(
      cpu::load_decoder_weights<float>(std::filesystem::path(SPECULA_MODELS_DIR) / name, std::move(target),
                                       {.stored = cpu::WeightType::bf16}));
}

cpu::Decoder<float> cpu_model(const std::string& name, std::int32_t capacity) {
  return cpu::Decoder<float>(exact_weights(name), {.capacity = capacity, .inputs = cpu::Inputs::full});
}

/// The logits after `path` in a new context.
std::vector<float> fresh_row(Model& other, const List& context, const List& path) {
  other.truncate(0);
  other.append(context);
  const NodeId none = kNoParent;
  if (path.size() > 1) other.append(Tokens(path).first(path.size() - 1));
  const auto row = other.extend(Tokens(path).last(1), {&none, 1}).row(0);
  return {row.begin(), row.end()};
}

/// The likeliest next tokens one by one.
List greedy(Model& model, const List& prompt, std::int32_t count) {
  model.truncate(0);
  model.append(Tokens(prompt).first(prompt.size() - 1));
  List text = prompt;
  const NodeId none = kNoParent, root = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto row = model.extend(Tokens(text).last(1), {&none, 1}).row(0);
    text.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
    model.commit({&root, 1});
  }
  return text;
}

/// A pipeline's text after `prompt`, as long as `want`, and its number of rounds.
template <class Run>
std::int64_t rounds_for(Run& run, const List& prompt, const List& want) {
  PhiloxRandom rng(1);
  List text = prompt;
  run.start(prompt);
  while (text.size() < want.size())
    for (const Token token : run.step(rng)) text.push_back(token);
  text.resize(want.size());
  CHECK(text == want);
  run.forget();
  return run.stats().rounds;
}

}  // namespace

TEST_CASE("logits agree with those of cpu::Decoder, for every model of the pack that has a GGUF form") {
  Random random(1);
  for (const std::string name : {"target", "base", "small", "s2d"}) {
    CAPTURE(name);
    Model model(pack_model(name), exact_options(256));
    auto decoder = cpu_model(name, 256);
    REQUIRE(model.vocab_size() == decoder.vocab_size());
    CHECK(model.capacity() == 256);
    const List context = random_tokens(random, 70, decoder.vocab_size());
    const RandomTree tree = random_tree(random, 24, decoder.vocab_size(), TreeProfile::any);
    model.append(context), decoder.append(context);
    const double most =
        difference(model.extend(tree.tokens, tree.parents), decoder.extend(tree.tokens, tree.parents));
    CHECK(most < kTolerance);
    CHECK(most > 0);  // they are two implementations
  }
}

TEST_CASE("200 random rounds: every row is that of its path alone, after any commits and truncations") {
  Random random(2);
  constexpr std::int32_t kCapacity = 300;
  const auto weights = pack_model("small");
  Model model(weights, exact_options(kCapacity)), other(weights, exact_options(kCapacity));
  auto decoder = cpu_model("small", kCapacity);
  const std::int32_t vocab = decoder.vocab_size();
  List text;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    if (text.size() > 180) {
      text.resize(static_cast<std::size_t>(random.below(100)));
      model.truncate(static_cast<std::int32_t>(text.size()));
      decoder.truncate(static_cast<std::int32_t>(text.size()));
    }
    if (round % 3 == 0) {  // some deferred, some computed immediately
      const List more = random_tokens(random, random.below(round % 2 ? 6 : 40), vocab);
      model.append(more), decoder.append(more);
      text.insert(text.end(), more.begin(), more.end());
    }
    RandomTree tree = random_tree(random, vocab, 40);
    for (NodeId node = 0; node < tree.size(); ++node) {  // grown in up to three calls
      const std::int32_t count = std::min(tree.size() - node, 1 + random.below(tree.size()));
      const auto at = static_cast<std::size_t>(node), n = static_cast<std::size_t>(count);
      const double most =
          difference(model.extend(Tokens(tree.tokens).subspan(at, n), Nodes(tree.parents).subspan(at, n)),
                     decoder.extend(Tokens(tree.tokens).subspan(at, n), Nodes(tree.parents).subspan(at, n)));
      CHECK(most < kTolerance);
      node += count - 1;
    }
    CHECK(model.node_count() == tree.size());
    const auto path = tree.path_to(random.below(tree.size()));
    if (round % 8 == 0) {  // the same against a context that never saw a tree
      const std::vector<float> want = fresh_row(other, text, tree.tokens_of(path));
      decoder.truncate(decoder.size()), model.truncate(model.size());
      const RandomTree branch = tree.branch(path.back());
      const LogitsView rows = model.extend(branch.tokens, branch.parents);
      CHECK(difference(rows.row(rows.rows - 1), want) < kTolerance);
      decoder.extend(branch.tokens, branch.parents);
      tree = branch;
    }
    auto keep = tree.path_to(random.below(tree.size()));
    if (random.bernoulli(0.1)) keep.clear();
    model.commit(keep), decoder.commit(keep);
    for (const Token token : tree.tokens_of(keep)) text.push_back(token);
    REQUIRE(model.size() == static_cast<std::int32_t>(text.size()));
    CHECK(model.node_count() == 0);
  }
}

TEST_CASE("check_model() finds nothing") {
  Model model(pack_model("small"), exact_options(64)),
      chunked(pack_model("small"), {.capacity = 64, .max_nodes = 12});
  CHECK(words(check_model(model, {.nodes = 24})) == "");
  CHECK(words(check_model(chunked)) == "");  // keys and values in half floats
}

TEST_CASE("append() and truncate() drop nodes, with deferred tokens and without") {
  Random random(10);
  Model model(pack_model("small"), exact_options(300));
  auto decoder = cpu_model("small", 300);
  for (const std::int32_t count : {0, 1, 16, 17, 40}) {
    CAPTURE(count);
    const RandomTree tree = random_tree(random, 12, decoder.vocab_size(), TreeProfile::bush);
    model.extend(tree.tokens, tree.parents);
    CHECK(model.node_count() == 12);
    const List more = random_tokens(random, count, decoder.vocab_size());
    model.append(more), decoder.append(more);
    CHECK(model.node_count() == 0);
    CHECK(model.size() == decoder.size());
    CHECK(difference(model.extend(tree.tokens, tree.parents), decoder.extend(tree.tokens, tree.parents)) <
          kTolerance);
    model.truncate(model.size()), decoder.truncate(decoder.size());
    CHECK(model.node_count() == 0);
  }
}

TEST_CASE("Penalties give the logits of libllama's sampler") {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const Penalties ours{.repetition = static_cast<float>(random.between(0.8, 1.6)),
                         .presence = static_cast<float>(random.between(-0.5, 1)),
                         .frequency = static_cast<float>(random.between(-0.5, 1)),
                         .last = 1 + random.below(20)};
    const std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> sampler(
        llama_sampler_init_penalties(12, ours.last, ours.repetition, ours.frequency, ours.presence),
        &llama_sampler_free);
    List path;
    for (std::int32_t n = random.below(40); n > 0; --n)
      llama_sampler_accept(sampler.get(), path.emplace_back(random.below(12)));
    std::vector<float> row;
    std::vector<llama_token_data> candidates;
    for (llama_token t = 0; t < 12; ++t) {
      row.push_back(static_cast<float>(random.between(-4, 4)));
      candidates.push_back({t, row.back(), 0});
    }
    llama_token_data_array all{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(sampler.get(), &all);
    ours(path, row);
    for (std::size_t t = 0; t < row.size(); ++t)
      REQUIRE(row[t] == doctest::Approx(candidates[t].logit).epsilon(1e-6));
  }
}

TEST_CASE("a full KV cache, and tokens that do not fit") {
  Random random(3);
  for (const std::int32_t capacity : {40, 256}) {
    Model model(pack_model("small"), exact_options(capacity, 16));
    auto decoder = cpu_model("small", capacity);
    const List context = random_tokens(random, capacity - 9, decoder.vocab_size());
    model.append(context), decoder.append(context);
    const RandomTree tree = random_tree(random, 9, decoder.vocab_size(), TreeProfile::bush);
    CHECK(difference(model.extend(tree.tokens, tree.parents), decoder.extend(tree.tokens, tree.parents)) <
          kTolerance);
    const Token token = 5;
    const NodeId none = kNoParent;
    const std::string full = "the context is full: " + std::to_string(capacity) + " of capacity " +
                             std::to_string(capacity) + " tokens in use, 1 more asked for";
    CHECK_THROWS_WITH_AS(model.extend({&token, 1}, {&none, 1}), ("llama_cpp::Model: extend: " + full).c_str(),
                         std::invalid_argument);
    // A path of it is committed; then tokens of the context may take its place.
    const auto path = tree.path_to(8);
    model.commit(path), decoder.commit(path);
    const List more = random_tokens(random, capacity - model.size(), decoder.vocab_size());
    model.append(more), decoder.append(more);
    CHECK_THROWS_WITH_AS(model.append({&token, 1}), ("llama_cpp::Model: append: " + full).c_str(),
                         std::invalid_argument);
    model.truncate(capacity - 1), decoder.truncate(capacity - 1);
    CHECK(difference(model.extend({&token, 1}, {&none, 1}), decoder.extend({&token, 1}, {&none, 1})) <
          kTolerance);
  }
}

TEST_CASE("errors name bad input and change nothing") {
  Random random(4);
  Options options = exact_options(200, 12);
  options.max_leaves = 3;
  Model model(pack_model("small"), options);
  auto decoder = cpu_model("small", 200);
  const std::int32_t vocab = decoder.vocab_size();
  const List context = random_tokens(random, 30, vocab), tokens = random_tokens(random, 3, vocab);
  const std::vector<NodeId> parents{kNoParent, 0, 0};
  model.append(context), decoder.append(context);
  model.extend(tokens, parents), decoder.extend(tokens, parents);

  const auto throws = [&](auto call, const char* message) {
    CHECK_THROWS_WITH_AS(call(), message, std::invalid_argument);
  };
  const List two{5, 6}, outside{vocab}, below{-1};
  const std::vector<NodeId> none{kNoParent}, third{3}, ahead{4, 0}, wrong{1, 2}, later{7};
  throws([&] { model.extend(outside, none); },
         ("llama_cpp::Model: extend or append: token " + std::to_string(vocab) + ", must be 0 to " +
          std::to_string(vocab - 1))
             .c_str());
  throws([&] { model.append(below); },
         ("llama_cpp::Model: extend or append: token -1, must be 0 to " + std::to_string(vocab - 1)).c_str());
  throws([&] { model.extend(two, none); }, "llama_cpp::Model: extend: 2 tokens and 1 parents");
  throws([&] { model.extend(two, ahead); },
         "llama_cpp::Model: extend: parent 4 of node 3, must be an earlier node or kNoParent");
  const std::vector<NodeId> itself{3, 0};
  throws([&] { model.extend(two, itself); },
         "llama_cpp::Model: extend: parent 3 of node 3, must be an earlier node or kNoParent");
  throws([&] { model.commit(wrong); },
         "llama_cpp::Model: commit: node 1 at place 0, must be a path of nodes from the context down");
  throws([&] { model.commit(later); },
         "llama_cpp::Model: commit: node 7 at place 0, must be a path of nodes from the context down");
  const std::vector<NodeId> behind{3};
  throws([&] { model.commit(behind); },
         "llama_cpp::Model: commit: node 3 at place 0, must be a path of nodes from the context down");
  throws([&] { model.truncate(31); }, "llama_cpp::Model: truncate: to 31 tokens, must be 0 to 30");
  throws([&] { model.truncate(-1); }, "llama_cpp::Model: truncate: to -1 tokens, must be 0 to 30");
  const List ten = random_tokens(random, 10, vocab), four = random_tokens(random, 4, vocab);
  const std::vector<NodeId> star(10, 0), branches{0, 0, kNoParent, kNoParent};
  throws([&] { model.extend(ten, star); },
         "llama_cpp::Model: extend: 3 nodes and 10 more, but max_nodes is 12");
  throws([&] { model.extend(four, branches); },
         "llama_cpp::Model: extend: a tree of more than 3 leaves, see Options::max_leaves");
  CHECK_THROWS_WITH_AS(model.features(), "llama_cpp::Model: features: Options::features is off",
                       std::logic_error);

  // The tree continues where it was.
  const Token token = 9;
  const NodeId node = 2, root = 0;
  CHECK(difference(model.extend({&token, 1}, {&node, 1}), decoder.extend({&token, 1}, {&node, 1})) <
        kTolerance);
  CHECK(difference(model.extend({&token, 1}, {&root, 1}), decoder.extend({&token, 1}, {&root, 1})) <
        kTolerance);
  CHECK(model.extend({}, {}).rows == 0);
}

TEST_CASE("a failed pass changes nothing") {
  struct Failure {
    bool on = false, throws = false;  // an exception, or libllama's abort callback
    int left = 0;                     // computation steps before it
    bool now() { return on && --left < 0; }
  } failure;
  for (const bool features : {false, true}) {
    CAPTURE(features);
    Random random(5);
    Options options = exact_options(2000);
    options.features = features;
    options.adjust = [&](llama_context_params& params) {
      params.type_k = params.type_v = GGML_TYPE_F32;
      params.n_ubatch = 16;  // so that it fails with a part of the batch in the cache
      params.abort_callback = [](void* data) {
        auto& state = *static_cast<Failure*>(data);
        return !state.throws && state.now();
      };
      params.cb_eval = [](ggml_tensor*, bool asks, void* data) {
        auto& state = *static_cast<Failure*>(data);
        if (asks && state.throws && state.now()) throw std::bad_alloc();
        return false;
      };
      params.abort_callback_data = params.cb_eval_user_data = &failure;
    };
    Model model(pack_model("small"), options);
    auto decoder = cpu_model("small", 2000);
    const std::int32_t vocab = decoder.vocab_size();
    int failed = 0, passed = 0;
    /// Whether the call succeeded; if not, sizes are unchanged.
    const auto tried = [&](int steps, auto call) {
      const std::int32_t size = model.size(), nodes = model.node_count();
      failure = {true, random.bernoulli(0.5), random.below(steps)};
      std::string what;
      try {
        call();
      } catch (const std::bad_alloc&) {
        what = "thrown";
      } catch (const std::runtime_error& error) {
        what = error.what();
      }
      failure.on = false;
      (what.empty() ? passed : failed) += 1;
      if (what.empty()) return true;
      REQUIRE((what == "thrown" || what.find("aborted (it returned 2)") != std::string::npos));
      REQUIRE(model.size() == size);
      REQUIRE(model.node_count() == nodes);
      return false;
    };
    for (int round = 0; round < 100; ++round) {
      CAPTURE(round);
      const bool is_long = round % 20 == 0;  // in several passes
      const List more = random_tokens(random, is_long ? 700 : random.below(round % 4 == 0 ? 60 : 9), vocab);
      model.truncate(model.size());  // a failed append drops the nodes
      if (tried(is_long ? 3000 : 150, [&] { model.append(more); })) decoder.append(more);
      REQUIRE(model.size() == decoder.size());
      const RandomTree tree = random_tree(random, vocab, 40);
      const auto half = static_cast<std::size_t>(random.below(tree.size()));  // in two calls
      const Tokens tokens[] = {Tokens(tree.tokens).first(half), Tokens(tree.tokens).subspan(half)};
      const Nodes parents[] = {Nodes(tree.parents).first(half), Nodes(tree.parents).subspan(half)};
      decoder.truncate(decoder.size());
      for (int part = 0; part < 2; ++part) {
        if (tried(150, [&] { model.extend(tokens[part], parents[part]); })) {
          model.truncate(model.size());  // once more, for comparison
          for (int again = 0; again < part; ++again) model.extend(tokens[again], parents[again]);
        }
        CHECK(difference(model.extend(tokens[part], parents[part]),
                         decoder.extend(tokens[part], parents[part])) < kTolerance);
      }
      const auto path = tree.path_to(random.below(tree.size()));
      model.commit(path), decoder.commit(path);
      if (features && round % 5 == 0) {
        const auto ours = model.features();
        const auto want = decoder.features();
        REQUIRE(ours.size() == want.size());
        double most = 0;
        for (std::int32_t i = 0; i < ours.size(); ++i)
          most = std::max(most, difference(ours.row(i), want.row(i)));
        CHECK(most < kTolerance);
      }
      if (model.size() > 1100) model.truncate(20), decoder.truncate(20);
    }
    CHECK(failed > 40);
    CHECK(passed > 40);
  }
}

TEST_CASE("a long prompt is computed in several passes") {
  Random random(9);
  for (const bool features : {false, true}) {
    Options options = exact_options(1400);
    options.features = features;
    Model model(pack_model("small"), options);
    auto decoder = cpu_model("small", 1400);
    const List prompt = random_tokens(random, 1250, decoder.vocab_size());
    const Token token = 7;
    const NodeId none = kNoParent;
    model.append(prompt), decoder.append(prompt);
    CHECK(model.size() == 1250);
    CHECK(difference(model.extend({&token, 1}, {&none, 1}), decoder.extend({&token, 1}, {&none, 1})) <
          kTolerance);
    if (features)
      for (const std::int32_t i : {0, 79, 80, 81, 511, 512, 1249})
        CHECK(difference(model.features().row(i), decoder.features().row(i)) < kTolerance);
  }
}

TEST_CASE(
    "options of any size create a context, and Options::adjust cannot change what the adapter relies on") {
  const auto weights = pack_model("small");
  const List tokens{1, 5, 9, 12};
  const std::vector<NodeId> tree{kNoParent, 0, 0, 1};
  auto decoder = cpu_model("small", 64);
  const LogitsView want = decoder.extend(tokens, tree);
  const auto rows_are_right = [&](const Options& options, double tolerance = kTolerance) {
    Model model(weights, options);
    CHECK(difference(model.extend(tokens, tree), want) < tolerance);
    return model.capacity();
  };
  Options options = exact_options(4, 700);
  options.max_leaves = 256;
  rows_are_right(options);
  options.max_nodes = 4, options.max_leaves = 2;
  rows_are_right(options);
  options.capacity = 0;
  CHECK(rows_are_right(options) == llama_model_n_ctx_train(weights.get()));
  options = exact_options(64);
  options.adjust = [](llama_context_params& params) {
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.n_ctx = 1, params.n_batch = 1, params.n_ubatch = 2, params.n_seq_max = 1;
    params.n_outputs_max = 1;
    params.kv_unified = params.swa_full = false;
    params.embeddings = true;
    params.attention_type = LLAMA_ATTENTION_TYPE_NON_CAUSAL;
    params.pooling_type = LLAMA_POOLING_TYPE_MEAN;
  };
  rows_are_right(options);
  options.features = true;  // pooled ones would be per sequence, not per token
  Model with_features(weights, options);
  with_features.append(tokens);
  decoder.truncate(0), decoder.append(tokens);
  for (const std::int32_t i : {0, 3})
    CHECK(difference(with_features.features().row(i), decoder.features().row(i)) < kTolerance);
  decoder.truncate(0), decoder.extend(tokens, tree);  // as `want` shows
  // Samplers of libllama's, which would take the place of logits.
  const std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> chain(
      llama_sampler_chain_init(llama_sampler_chain_default_params()), &llama_sampler_free);
  llama_sampler_chain_add(chain.get(), llama_sampler_init_greedy());
  llama_sampler_seq_config sampler{0, chain.get()};
  options = exact_options(64);
  options.adjust = [&](llama_context_params& params) {
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.samplers = &sampler;
    params.n_samplers = 1;
  };
  rows_are_right(options);
  // A quantised cache, which needs flash attention.
  options.adjust = [](llama_context_params& params) { params.type_k = params.type_v = GGML_TYPE_Q8_0; };
  rows_are_right(options, 0.5);
}

TEST_CASE("features are the LM head's inputs at committed tokens") {
  Random random(6);
  Options options = exact_options(200);
  options.features = true;
  Model model(pack_model("base"), options);
  auto decoder = cpu_model("base", 200);
  const std::int32_t vocab = decoder.vocab_size();
  const auto agree = [&] {
    const auto ours = model.features();
    const auto want = decoder.features();
    REQUIRE(ours.size() == want.size());
    REQUIRE(ours.width() == want.width());
    for (std::int32_t i = 0; i < ours.size(); ++i)
      if (!(difference(ours.row(i), want.row(i)) < kTolerance)) return false;
    return true;
  };
  CHECK(model.features().size() == 0);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    if (model.size() > 120) model.truncate(40), decoder.truncate(40);
    const List more = random_tokens(random, 1 + random.below(round % 2 ? 5 : 40), vocab);
    model.append(more), decoder.append(more);
    if (round % 3 == 0) CHECK(agree());  // deferred tokens are computed
    const RandomTree tree = random_tree(random, vocab, 24);
    CHECK(difference(model.extend(tree.tokens, tree.parents), decoder.extend(tree.tokens, tree.parents)) <
          kTolerance);
    const auto path = tree.path_to(random.below(tree.size()));
    model.commit(path), decoder.commit(path);
    CHECK(agree());
  }
  for (const int call : {0, 1, 2}) {  // every call that changes the model ends a view
    const auto old = model.features();
    const std::uint64_t before = model.change_count();
    const Token token = 5;
    const NodeId none = kNoParent;
    if (call == 0) model.append({&token, 1});
    if (call == 1) model.extend({&token, 1}, {&none, 1});
    if (call == 2) model.commit({});
    CHECK(model.change_count() > before);
    CHECK_THROWS_WITH_AS(old.size(), "FeaturesView is stale: the model was called since", std::logic_error);
  }
  const auto view = model.features();
  CHECK(model.features().row(3).data() == view.row(3).data());  // asking again leaves it valid
  model.truncate(5);
  CHECK_THROWS_AS(view.row(3), std::logic_error);
}

TEST_CASE("a vocabulary can be cut, and rows keep their stride") {
  Options options = exact_options(64);
  options.vocab_size = 1000;
  Model cut(pack_model("small"), options), whole(pack_model("small"), exact_options(64));
  const List tokens{1, 5, 999}, outside{1000};
  const std::vector<NodeId> chain{kNoParent, 0, 1};
  const LogitsView rows = cut.extend(tokens, chain), all = whole.extend(tokens, chain);
  CHECK(rows.vocab == 1000);
  CHECK(rows.stride == all.vocab);
  for (std::int32_t r = 0; r < 3; ++r) CHECK(difference(rows.row(r), all.row(r).first(1000)) == 0);
  CHECK_THROWS_WITH_AS(cut.append(outside),
                       "llama_cpp::Model: extend or append: token 1000, must be 0 to 999",
                       std::invalid_argument);
}

TEST_CASE("speculation gives the text of plain decoding") {
  Model target(pack_model("target"), exact_options(400)), draft(pack_model("small"), exact_options(400));
  Model plain(pack_model("target"), exact_options(400));
  Random random(7);
  const List prompt = random_tokens(random, 24, target.vocab_size());
  const List want = greedy(plain, prompt, 100);
  const auto check = [&](auto shape) {
    Speculator run{TreeVerifier{target, Greedy{}, SamplingParams{.temperature = 0}}, ModelDrafter{draft},
                   shape};
    CHECK(rounds_for(run, prompt, want) < 100);
  };
  check(Chain<>{.length = 4});
  check(Beam{.width = 3, .length = 3});
}

TEST_CASE("what is added to the weights: no prefix of the context before it is kept") {
  Model model(pack_model("small"), exact_options(400)), other(pack_model("small"), exact_options(400));
  const std::int32_t width = llama_model_n_embd(model.weights().get());
  const std::int32_t layers = llama_model_n_layer(model.weights().get());
  const std::vector<float> vector(static_cast<std::size_t>(width * (layers - 1)),
                                  0.5f);  // of layers from 1 on
  const auto add_to = [&](Model& to) {
    REQUIRE(llama_set_adapter_cvec(to.context(), vector.data(), vector.size(), width, 1, layers - 1) == 0);
  };
  Random random(8);
  const List prompt = random_tokens(random, 200, model.vocab_size());
  const auto pipeline = [](Model& of) {
    auto run = std::make_unique<Speculator<TreeVerifier<Model, Greedy>, NoDrafter, Chain<>>>(
        TreeVerifier{of, Greedy{}}, NoDrafter{of.vocab_size()}, Chain<>{.length = 0});
    run->verifier().report_logprobs({});
    return run;
  };
  const auto write = [&](auto& run) {  // the log-probabilities of the text
    std::vector<double> text;
    run->generate(prompt, {.max_new_tokens = 10}, PhiloxRandom(1), [&](Tokens fresh) {
      for (std::size_t i = 0; i < fresh.size(); ++i)
        text.push_back(static_cast<double>(run->logprobs()[i].logprob));
    });
    return text;
  };
  const auto differ = [](const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0;
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most > 1e-3;
  };
  auto run = pipeline(model), fresh = pipeline(other);
  const auto plain = write(run);
  add_to(other);
  const auto want = write(fresh);
  REQUIRE(differ(plain, want));
  add_to(model);
  CHECK(differ(write(run), want));  // its prefix is that of the plain model
  model.context_changed();
  CHECK(!differ(write(run), want));
  CHECK(!differ(write(run), want));  // on the prefix that it has kept
  PhiloxRandom rng(1);
  run->step(rng);
  REQUIRE(llama_set_adapter_cvec(model.context(), nullptr, 0, 0, 0, 0) == 0);
  model.context_changed();
  CHECK_THROWS_WITH_AS(run->step(rng), doctest::Contains("or its weights or settings changed"),
                       std::logic_error);
  CHECK(!differ(write(run), plain));
}

TEST_CASE("a draft head proposes the same from libllama's features as from cpu::Decoder's") {
  Options options = exact_options(400);
  options.features = true;
  Model target(pack_model("target"), options), plain(pack_model("target"), exact_options(400));
  const auto weights = exact_weights("target");
  const cpu::DecoderOptions own_options{.capacity = 400, .inputs = cpu::Inputs::full};
  cpu::Decoder<float> decoder(weights, own_options);
  cpu::Decoder<float> head(exact_weights("hass", weights), own_options);
  Random random(8);
  const List prompt = random_tokens(random, 24, target.vocab_size());
  const List want = greedy(plain, prompt, 100);
  const auto rounds = [&](auto& model) {
    Speculator run{TreeVerifier{model, Greedy{}, SamplingParams{.temperature = 0}}, FeatureHead{head, model},
                   Chain<>{.length = 4}};
    return rounds_for(run, prompt, want);
  };
  const auto here = rounds(target), there = rounds(decoder);
  CHECK(std::abs(here - there) <= 2);
  CHECK(here < 60);
}
