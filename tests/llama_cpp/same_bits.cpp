// SPDX-License-Identifier: MIT
// labels: optimised
// Options::same_bits: rows of passes over several tokens and of trees have the bits of plain decoding, by
// type of weights, threads and context; where flash attention is used otherwise.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <specula/llama_cpp/model.hpp>

#include <specula/specula.hpp>

#include "random.hpp"
#include "random_gguf.hpp"
#include "random_trees.hpp"
#include "tiny_gguf.hpp"

using namespace specula;
using namespace specula_test;
using llama_cpp::Model;

namespace {

using List = std::vector<Token>;
using Rows = std::vector<std::vector<float>>;

constexpr std::int32_t kVocab = 320;

// ggml asks once, at the first product; otherwise it has others for K-quants from 8 rows on.
[[maybe_unused]] const int tiles = setenv("GGML_CPU_TILED_MM", "0", 0);

/// Loaded once per type and way of loading.
std::shared_ptr<llama_model> weights(ggml_type type, bool extra_buffers = false) {
  static std::map<std::pair<ggml_type, bool>, std::shared_ptr<llama_model>> loaded;
  auto& model = loaded[{type, extra_buffers}];
  llama_model_params params = llama_model_default_params();
  params.use_extra_bufts = extra_buffers;
  if (!model) model = random_model({.type = type, .vocab = kVocab}, params);
  return model;
}

llama_cpp::Options options(std::int32_t capacity, std::int32_t threads = 1) {
  return {.capacity = capacity, .max_nodes = 24, .threads = threads, .same_bits = true};
}

List random_tokens(Random& random, std::int32_t count) {
  List tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(kVocab));
  return tokens;
}

/// The row after each of `tokens` by plain decoding, which leaves them in the context.
Rows plain_rows(Model& model, const List& tokens) {
  Rows rows;
  const NodeId none = kNoParent, root = 0;
  for (const Token token : tokens) {
    const auto row = model.extend({&token, 1}, {&none, 1}).row(0);
    rows.emplace_back(row.begin(), row.end());
    model.commit({&root, 1});
  }
  return rows;
}

bool same(std::span<const float> row, const std::vector<float>& want) {
  return std::equal(row.begin(), row.end(), want.begin(), want.end());
}

/// How many rows of passes over 1 to `most` tokens after `context` differ from those of plain decoding by one
/// thread.
int different_rows(const std::shared_ptr<llama_model>& model, std::int32_t context, std::int32_t most,
                   llama_cpp::Options with) {
  Random random(2);
  with.capacity = context + 2 * most;
  const List text = random_tokens(random, context), tokens = random_tokens(random, most);
  Model tested(model, with);
  tested.append(text);
  with.threads = 1;
  Model plain(model, with);
  plain.append(text);
  const Rows want = plain_rows(plain, tokens);
  List parents(tokens.size());
  std::iota(parents.begin(), parents.end(), kNoParent);
  int different = 0;
  for (std::int32_t n = 1; n <= most; ++n) {
    tested.truncate(context);
    const auto size = static_cast<std::size_t>(n);
    const LogitsView rows = tested.extend(Tokens(tokens).first(size), Nodes(parents).first(size));
    for (std::int32_t r = 0; r < n; ++r) different += !same(rows.row(r), want[static_cast<std::size_t>(r)]);
  }
  return different;
}

/// libllama's log of making a context: whether it has flash attention.
bool has_flash_attention(const llama_cpp::Options& with) {
  static std::string log;
  log.clear();
  llama_log_set([](ggml_log_level, const char* text, void*) { log += text; }, nullptr);
  Model model(weights(GGML_TYPE_Q8_0), with);
  quiet();
  const std::size_t at = log.find("flash_attn ");
  REQUIRE(at != std::string::npos);
  return log.substr(at, log.find('\n', at) - at).find("disabled") == std::string::npos;
}

}  // namespace

TEST_CASE("passes over 2 to 9 tokens: the bits of plain decoding, or an error that says what is needed") {
  quiet();
  const bool llamafile =
      std::string_view(llama_print_system_info()).find("LLAMAFILE = 1") != std::string_view::npos;
  for (const ggml_type type : {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K,
                               GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32})
    for (const bool extra_buffers : {false, true}) {
      const std::string name = ggml_type_name(type);
      CAPTURE(name);
      CAPTURE(extra_buffers);
      try {
        for (const auto& [context, threads] : {std::pair(40, 2), std::pair(600, 2)}) {
          const int different = different_rows(weights(type, extra_buffers), context, 9, options(0, threads));
          CHECK(different == 0);
        }
      } catch (const std::invalid_argument& refused) {
        CHECK(std::string_view(refused.what()).find("load() the weights with use_extra_bufts off") !=
              std::string_view::npos);
        CHECK((extra_buffers || (llamafile && !ggml_is_quantized(type))));
      }
    }
}

TEST_CASE("heads that are no whole blocks of the cache are refused; without the option they run") {
  quiet();
  const auto odd = random_model({.width = 160, .layers = 1, .heads = 2, .vocab = kVocab});
  CHECK_THROWS_WITH_AS(
      Model(odd, options(64)),
      "llama_cpp::Model: same_bits: a head has 80 numbers per key, must be a multiple of 32: leave it out; "
      "in cpu::Decoder (specula run --engine cpu) rows have the same bits in every pass without it",
      std::invalid_argument);
  Model model(odd, {.capacity = 64, .threads = 1});
  const Token token = 1;
  const NodeId none = kNoParent;
  CHECK(model.extend({&token, 1}, {&none, 1}).rows == 1);
}

TEST_CASE("random trees: every row has the bits of plain decoding, after any commits and truncations") {
  quiet();
  Random random(3);
  Model model(weights(GGML_TYPE_Q8_0), options(400)), plain(weights(GGML_TYPE_Q8_0), options(400));
  List text;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    if (text.size() > 150) {
      text.resize(static_cast<std::size_t>(random.below(100)));
      model.truncate(static_cast<std::int32_t>(text.size()));
    }
    const List more = random_tokens(random, random.below(4));
    model.append(more);
    text.insert(text.end(), more.begin(), more.end());
    const RandomTree tree = random_tree(random, kVocab, 24);
    const auto half = static_cast<std::size_t>(random.below(tree.size()));  // in two calls
    model.extend(Tokens(tree.tokens).first(half), Nodes(tree.parents).first(half));
    const NodeId last = tree.size() - 1;
    const auto path = tree.path_to(last);
    const LogitsView rows =
        model.extend(Tokens(tree.tokens).subspan(half), Nodes(tree.parents).subspan(half));
    const auto row = rows.row(rows.rows - 1);
    plain.truncate(0);
    plain_rows(plain, text);
    CHECK(same(row, plain_rows(plain, tree.tokens_of(path)).back()));
    const auto keep = tree.path_to(random.bernoulli(0.5) ? last : random.below(tree.size()));
    model.commit(keep);
    for (const Token token : tree.tokens_of(keep)) text.push_back(token);
    REQUIRE(model.size() == static_cast<std::int32_t>(text.size()));
  }
}

TEST_CASE("one seed, one text: plain decoding, chains and trees at temperature 1") {
  quiet();
  Model target(weights(GGML_TYPE_Q4_1), options(300)),
      draft(weights(GGML_TYPE_Q4_0), {.capacity = 300, .threads = 1});
  Random random(4);
  const List prompt = random_tokens(random, 20);
  const auto text = [&](auto drafter, auto shape) {
    Speculator run{TreeVerifier{target, SampleAndMatch{}, SamplingParams{.temperature = 1}},
                   std::move(drafter), shape};
    List out;
    run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom(5),
                 [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
    CHECK(out.size() == 60);
    CHECK((run.stats().rounds < 60 || shape.length == 0));
    return out;
  };
  const List want = text(NoDrafter{kVocab}, Chain<>{.length = 0});
  CHECK(text(ModelDrafter{draft}, Chain<>{.length = 4}) == want);
  CHECK(text(ModelDrafter{draft}, Beam{.width = 3, .length = 3}) == want);
}

TEST_CASE("flash attention: where layers lie on a GPU, values are quantised, or it was asked for") {
  quiet();
  CHECK(has_flash_attention(options(64)));
  const auto with = [](auto change) {
    return llama_cpp::Options{
        .capacity = 64, .threads = 1, .adjust = [=](llama_context_params& params) { change(params); }};
  };
  CHECK(!has_flash_attention({.capacity = 64, .threads = 1}));
  CHECK(has_flash_attention(with([](auto& params) { params.type_v = GGML_TYPE_Q8_0; })));
  CHECK(!has_flash_attention(with([](auto& params) { params.type_k = GGML_TYPE_Q8_0; })));
  CHECK(has_flash_attention(
      with([](auto& params) { params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED; })));
}
