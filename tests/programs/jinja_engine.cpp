// SPDX-License-Identifier: MIT
// Jinja templates by llama.cpp's engine, against transformers' renderings of them.
#include "jinja_engine.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "rendered_chats.hpp"
#include "skip.hpp"

using namespace specula_tools;
using specula_test::RenderedChats;

TEST_CASE("templates render what transformers renders") {
  if (!has_jinja())
    return specula_test::skip("built without the Jinja engine, which scripts/llama_cpp builds");
  const RenderedChats expected;
  for (const auto& entry : expected.json["own"]) {
    CAPTURE(entry["template"].get<std::string>());
    expected.compare(entry, [&](const std::vector<ChatTurn>& turns) {
      return render_jinja({.source = entry["template"], .begin = "<s>", .end = "</s>"}, turns, expected.now);
    });
  }
}

TEST_CASE("what a template calls wrong is said in the engine's words") {
  if (!has_jinja())
    return specula_test::skip("built without the Jinja engine, which scripts/llama_cpp builds");
  const std::vector<ChatTurn> turns{{"user", "x"}};
  const auto render = [&](const std::string& source) { return render_jinja({.source = source}, turns, 0); };
  CHECK_THROWS_WITH_AS(render("{{ raise_exception('no system role') }}"), "Jinja Exception: no system role",
                       std::runtime_error);
  CHECK_THROWS_AS(render("{% for x in %}"), std::runtime_error);
  CHECK(render("{{ bos_token }}.") == ".");  // a model without one
}
