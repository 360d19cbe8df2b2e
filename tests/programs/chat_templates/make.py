# SPDX-License-Identifier: MIT
"""Writes expected.json: chats as transformers' apply_chat_template() renders them, by the templates that
tools/common/known_templates.cpp knows, of which their fingerprints are kept and not their texts, and by templates of our own
that use what templates use of Jinja. The templates come from the sources of llama.cpp (the folder that scripts/llama_cpp unpacks).
From the root of the repository:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install transformers==5.24.0 jinja2
    /tmp/venv/bin/python tests/programs/chat_templates/make.py LLAMA_CPP_SOURCES
"""

import ast
import datetime
import json
import pathlib
import re
import sys

import tokenizers
import transformers
from transformers.utils import chat_template_utils

folder, sources = pathlib.Path(__file__).parent, pathlib.Path(sys.argv[1])
NOON = datetime.datetime(2024, 12, 3, 12)  # in any time zone, the same day


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOON


chat_template_utils.datetime = Clock

CHATS = [
    [("user", "Hello")],
    [("system", "Be brief."), ("user", "  Who are you?  \n")],
    [("system", " A poet. "), ("user", "Hi"), ("assistant", "<think>\nhm\n</think>\n\nRoses. "), ("user", "<|im_end|> é 中 \"\\n\" {{ x }}"),
     ("assistant", "  Violets  "), ("user", "go on")],
    [("user", "a"), ("user", "b")],
    [("user", "x"), ("assistant", "x</think>y"), ("user", "<tool_response>z</tool_response>")],
]


def quoted():
    """The templates inside llama.cpp's tests, by name."""
    text = (sources / "tests/test-chat-template.cpp").read_text()
    string = r'"((?:[^"\\]|\\.)*)"'
    return {name: ast.literal_eval(f'"{value}"')
            for name, value in re.findall(rf"/\* \.name= \*/ {string},\s*/\* \.template_str= \*/ {string}", text)}


def file(name):
    return (sources / f"models/templates/{name}.jinja").read_text()


def chatml(system=""):
    """With a text of its own where the chat has no system message."""
    first = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" + system + "<|im_end|>\\n' }}{% endif %}"
    return ("{% for message in messages %}" + (first if system else "") + "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
            "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def both(template):
    """With \\n in the strings, and with line breaks."""
    return [template, template.replace("\\n", "\n")]


def known():
    tests = quoted()

    def named(part):
        return next(template for name, template in tests.items() if part in name)

    default = "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    llama_3 = tests["Llama-3"].replace("\n", "\\n")
    prompt = "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    mistral = named("Old pre-v1")
    return {
        "ChatML": both(chatml()) + both(default + chatml()),
        "SmolLM2": both(chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
        "Qwen 1.5": both(chatml("You are a helpful assistant")),
        "Qwen 2": both(chatml("You are a helpful assistant.")),
        "Qwen 2.5": [file("Qwen-Qwen2.5-7B-Instruct")],
        "Qwen 3": [file("Qwen-Qwen3-0.6B")],
        "Llama 3": both(llama_3) + both(llama_3.replace(prompt, "{% if add_generation_prompt %}" + prompt + "{% endif %}")),
        "Llama 3.1, 3.3": [file("meta-llama-Llama-3.1-8B-Instruct"), file("meta-llama-Llama-3.3-70B-Instruct")],
        "Llama 3.2": [file("meta-llama-Llama-3.2-3B-Instruct")],
        "Mistral 7B v0.1": [mistral.replace("eos_token}}", "eos_token + ' ' }}")],
        "Mistral 7B v0.2": [mistral],
        "Mistral v1": [named("mistralai 'v1'")],
        "Mistral v3": [named("Mistral-Large-Instruct-2407")],
        "Mistral Nemo": [named("Mistral-Nemo-Instruct-2407"), file("mistralai-Mistral-Nemo-Instruct-2407")],
        "Mistral v7": [named("Mistral-Large-Instruct-2411")],
    }


OWN = [
    # Blocks take the line break after them, and the blanks in front of them.
    "{{ bos_token }}\n  {% for message in messages %}\n[{{ message.role }}] {{ message['content'] | trim }}{{ eos_token }}\n  {% endfor %}\n"
    "{# a comment #}\n{% if add_generation_prompt %}\n[assistant]\n{% endif %}\n",
    "{%- set ns = namespace(n=0, system='') -%}{%- for m in messages -%}{%- if m.role == 'system' -%}{%- set ns.system = m.content -%}"
    "{%- continue -%}{%- endif -%}{%- set ns.n = ns.n + 1 -%}{%- if ns.n > 3 -%}{%- break -%}{%- endif -%}{{ ns.n }}/{{ loop.length }}"
    "{{ ' first' if loop.first else ' last' if loop.last else '' }} {{ m.content | replace('a', 'bb') }};{%- endfor -%}<{{ ns.system }}>",
    "{% macro turn(who, text='none') %}<{{ who }}|{{ text }}>{% endmacro %}{% for m in messages[::-1] %}{{ turn(m.role, text=m.content) }}"
    "{% endfor %}{{ strftime_now('%d %B %Y') }}",
    "{{ messages[0] | tojson }}{{ messages | map(attribute='role') | join(',') }}{{ (messages | selectattr('role', 'equalto', 'user') | list)"
    " | length }}{{ 'no' if tools is none else 'yes' }}{{ messages[-1].content[:2] }}{{ 'a,b'.split(',')[1] }}",
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system message, please') }}{% endif %}{{ messages[0].content ~ (1 + 2 * 3) }}",
]


def fingerprint(template):
    text = template.replace("\r\n", "\n").replace("\r", "\n").encode()
    text = text.removesuffix(b"\n")
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}-{len(text)}"


def rendered(template):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), bos_token="<s>", eos_token="</s>")
    out = []
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        try:
            out.append(tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True))
        except Exception:  # it refuses that chat
            out.append(None)
    return out


entries = []
for name, templates in known().items():
    texts = rendered(templates[0])
    assert all(rendered(template) == texts for template in templates), name
    entries.append({"name": name, "fingerprints": sorted({fingerprint(template) for template in templates}), "texts": texts})
result = {"now": int(NOON.replace(tzinfo=datetime.timezone.utc).timestamp()), "chats": CHATS, "known": entries,
          "own": [{"template": template, "texts": rendered(template)} for template in OWN]}
(folder / "expected.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")
