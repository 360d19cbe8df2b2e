// SPDX-License-Identifier: MIT
// Chat templates known by their text, against transformers' renderings of them.
#include "known_templates.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "rendered_chats.hpp"

using namespace specula_tools;
using specula_test::RenderedChats;

TEST_CASE("every known template renders what transformers renders") {
  const RenderedChats expected;
  std::size_t formats = 0;
  for (const auto& entry : expected.json["known"]) {
    for (const std::string fingerprint : entry["fingerprints"]) {
      CAPTURE(fingerprint);
      const KnownTemplate known = find_known_template(fingerprint);
      REQUIRE(bool(known));
      expected.compare(entry, [&](const std::vector<ChatTurn>& turns) {
        return known(turns, {"<s>", "</s>", expected.now});
      });
    }
    ++formats;
  }
  CHECK(formats == 15);
}

TEST_CASE("the fingerprint of a template is that of its text as Jinja reads it") {
  const std::string text = "{{ bos_token }}\nx\n";
  CHECK(template_fingerprint(text) == template_fingerprint("{{ bos_token }}\r\nx"));
  CHECK(template_fingerprint(text) == template_fingerprint("{{ bos_token }}\rx\r\n"));
  CHECK(template_fingerprint(text) != template_fingerprint(text + "\n"));
  CHECK(template_fingerprint(text) != template_fingerprint("{{ eos_token }}\nx\n"));
  CHECK(template_fingerprint("") == "cbf29ce484222325-0");  // FNV-1a's offset basis
  CHECK(template_fingerprint("a") == "af63dc4c8601ec8c-1");
  CHECK(!find_known_template(template_fingerprint(text)));
}
