// SPDX-License-Identifier: MIT
// Chat templates: where they are found, what is refused, and that hostile ones end.
#include "chat_template.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "files.hpp"
#include "gguf_container.hpp"
#include "jinja_engine.hpp"
#include "skip.hpp"

using namespace specula_tools;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path(fs::temp_directory_path() / "specula_chat_template_test") {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  void config(const json& value) const {
    write_file(path / "tokenizer_config.json", json{{"chat_template", value}}.dump());
  }
  std::string failure() const {
    try {
      find_chat_template(path);
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).substr(path.string().size());
    }
    return "no error";
  }
  fs::path path;
};

const std::vector<ChatTurn> kHello{{"user", "Hello"}};
constexpr const char* kChatml =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::string failure(const std::string& source) {
  try {
    ChatTemplate({.source = source, .where = "FILE"}).render(kHello, 0);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a template is found in its own file, then in tokenizer_config.json") {
  const Folder folder;
  CHECK(!find_chat_template(folder.path));
  folder.config(nullptr);
  CHECK(!find_chat_template(folder.path));
  folder.config("of the config");
  CHECK(find_chat_template(folder.path)->source == "of the config");
  CHECK(find_chat_template(folder.path)->where ==
        (folder.path / "tokenizer_config.json").string() + ": key 'chat_template'");
  folder.config(json::array(
      {{{"name", "tool_use"}, {"template", "tools"}}, {{"name", "default"}, {"template", "this"}}}));
  CHECK(find_chat_template(folder.path)->source == "this");
  write_file(folder.path / "chat_template.jinja", "of the file\n");
  CHECK(find_chat_template(folder.path)->source == "of the file\n");
  CHECK(find_chat_template(folder.path)->where == (folder.path / "chat_template.jinja").string());
}

TEST_CASE("a GGUF file has it in a key") {
  const Folder folder;
  const auto file = folder.path / "model.gguf";
  GgufContainer out;
  write_file(file, out.bytes());
  CHECK(!find_chat_template(file));
  out.set("tokenizer.chat_template", "of the key");
  write_file(file, out.bytes());
  CHECK(find_chat_template(file)->source == "of the key");
  CHECK(find_chat_template(file)->where == file.string() + ": key 'tokenizer.chat_template'");
}

TEST_CASE("what is no template is refused by file and key") {
  const Folder folder;
  folder.config(
      json::array({{{"name", "rag"}, {"template", "x"}}, {{"name", "tool_use"}, {"template", "y"}}}));
  CHECK(
      folder.failure() ==
      "/tokenizer_config.json: key 'chat_template': none of the templates is the default one, they are rag, "
      "tool_use; give --raw, or write the one to use into chat_template.jinja");
  GgufContainer out;
  out.set("tokenizer.chat_templates", std::vector<std::string>{"rag"});
  out.set("tokenizer.chat_template.rag", "x");
  const fs::path file = folder.path / "m.gguf";
  write_file(file, out.bytes());
  CHECK_THROWS_WITH_AS(
      find_chat_template(file, "do this"),
      (file.string() +
       ": key 'tokenizer.chat_template': none of the templates is the default one, they are rag; do "
       "this, or make a folder of the file (specula convert) and write the one to use into "
       "chat_template.jinja there")
          .c_str(),
      std::runtime_error);
  folder.config(7);
  CHECK(folder.failure().starts_with("/tokenizer_config.json: key 'chat_template'"));
  folder.config(json::array({"x"}));
  CHECK(folder.failure().starts_with("/tokenizer_config.json: key 'chat_template'"));
}

TEST_CASE("a known template needs no engine") {
  CHECK(ChatTemplate({.source = kChatml}).render(kHello, 0) ==
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("without an engine any other template is refused, with the way out") {
  const std::string other = std::string(kChatml) + "!";
  if (has_jinja())
    CHECK(ChatTemplate({.source = other}).render(kHello, 0) ==
          "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n!");
  else
    CHECK(failure(other) ==
          "FILE: a chat template that this program does not know, and it was built without a Jinja engine: "
          "configure it "
          "with -DLLAMA_DIR=$(scripts/llama_cpp), or give --raw");
}

TEST_CASE("a long template is refused") {
  CHECK(failure(std::string(ChatTemplate::kLongest + 1, 'x')) ==
        "FILE: a chat template of 262145 bytes, expected at most 262144; give --raw");
}

TEST_CASE("hostile templates end, and the program goes on") {
  if (!has_jinja())
    return specula_test::skip("built without the Jinja engine, which scripts/llama_cpp builds");
  const auto repeat = [](const std::string& text) {
    std::string out;
    for (int i = 0; i < 40000; ++i) out += text;
    return out;
  };
  for (const std::string& source : {
           std::string("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
           std::string("{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s "
                       "%}{% endfor %}"),
           std::string("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
           std::string("{% set a = [1] %}{% set _ = a.append(a) %}{{ a | tojson }}"),
           "{{ " + repeat("(") + "1" + repeat(")") + " }}",
       })
    CHECK(failure(source).starts_with("FILE: the chat template fails: it "));
  CHECK(failure("{{ raise_exception('no') }}") ==
        "FILE: the chat template fails: Jinja Exception: no; give --raw");
  CHECK(failure(kChatml) == "no error");
}
