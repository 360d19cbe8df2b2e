# SPDX-License-Identifier: MIT
"""Writes the files beside this one: small vocabularies of each kind of tokenizer.json that is common, trained on the texts of
this repository, and the tokens that Hugging Face's library gives for some texts. The test programs/tokenizer_json compares
ours with them. From the root of the repository:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3
    /tmp/venv/bin/python tests/programs/tokenizers/make.py
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA_3.replace("{1,3}", "")

# One line for each script; the last of them decompose, or have marks in another order than NFC.
LINES = """
Ein Wörterbuch für größere Texte, don't WE'LL they'Ve it's 'twas
12345678 2024 1000000 314159 12 345 x123456
Les élèves n'ont pas reçu leurs œuvres; ça coûte 12,50 €.
Быстрая коричневая лиса прыгает через ленивую собаку
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία
المملكة العربية ٢٠٢٤ نص قصير
שלום עולם, טקסט בעברית
हिन्दी में एक छोटा वाक्य १२३
বাংলা ভাষায় লেখা
ภาษาไทยไม่มีช่องว่างระหว่างคำ
ខ្មែរ មិនមានដកឃ្លា
မြန်မာဘာသာ စာသား
தமிழ் உரை తెలుగు పాఠం ಕನ್ನಡ ಪಠ್ಯ മലയാളം
ગુજરાતી ਪੰਜਾਬੀ ଓଡ଼ିଆ සිංහල
ქართული ტექსტი Հայերեն տեքստ
አማርኛ ጽሑፍ ፩፪፫
日本語の文章、カタカナとひらがな。全角１２３
中文没有空格，但是有标点。
한국어 문장입니다. 한국어
བོད་ཡིག ລາວ ᏣᎳᎩ ދިވެހި
🙂👍🏽👩‍👩‍👧‍👦🇩🇪❤️ 1️⃣ x²½Ⅷ
e\u0301te\u0301 A\u030angstro\u0308m q\u0323\u0307 \u1112\u1161\u11ab
\ufb01 \u2126 \u00a0x\u3000y\u2028z\u0085 \u200b
""".strip("\n").split("\n")
LINES = [line.encode().decode("unicode_escape") if "\\u" in line and line.isascii() else line for line in LINES]

PLAIN = [
    "", " ", "  a", "a  b   c    d ", "\n", "\n\n\n x\n y", "\t\tif (x) {\r\n\r\n\treturn 0;\r\n}", "     ",
    "0", "12345678", "3.14159e-10", "x1y22z333", "a_b__c___", "!!??...", "  !!\n\n??", "'s'S'lL", "I'm",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababab", "----------", "the the  thethe", "\x00\x01\x7f\xad",
    "<|end|>", "a<|end|>b", "<|end|><|end|> <|end|>\n", "x<tool>y", " <tool> z", "<tool", "a single single. singles _single",
    "template <class T> // the draft tokens are accepted", "{\"key\": [1, 2, 3]}", "C:\\temp\\new", "https://example.org/a?b=c&d#e",
]


def texts():
    out = PLAIN + LINES
    chance = random.Random(1)
    points = [p for p in range(1, 0x30000) if not 0xD800 <= p < 0xE000]
    for first, last in [(0x20, 0x24F), (0x300, 0x58F), (0x600, 0xDFF), (0x2000, 0x2BFF), (0x3000, 0x31FF), (0x1F300, 0x1F64F)]:
        for _ in range(3):
            out.append("".join(chr(chance.randint(first, last)) for _ in range(12)))
    for _ in range(4):
        out.append("".join(chr(chance.choice(points)) for _ in range(10)))
    return out


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"), byte_level(False)])


KINDS = {  # pre-tokenizer, normalizer, ignore_merges
    "gpt2": (byte_level(True), None, False),
    "llama3": (split(LLAMA_3), None, True),
    "qwen2": (split(QWEN), normalizers.NFC(), False),
    "smollm2": (pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(True)]), None, False),
}


def train(kind):
    pre_tokenizer, normalizer, whole_words = KINDS[kind]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizer
    if normalizer:
        made.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|begin|>", "<|end|>"], show_progress=False
    )
    pages = [page.read_text() for page in sorted(pathlib.Path("docs").glob("*.md"))]
    made.train_from_iterator(pages + LINES * 20, trainer)
    made.add_tokens([AddedToken("<tool>", normalized=False, lstrip=True), AddedToken("single", single_word=True, normalized=False)])
    made.decoder = decoders.ByteLevel()
    if whole_words:
        begin = processors.TemplateProcessing("<|begin|> $A", None, [("<|begin|>", made.token_to_id("<|begin|>"))])
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
    file = json.loads(made.to_str())
    file["model"]["ignore_merges"] = whole_words
    if whole_words:  # some merges less, so that words are found that pairs do not make
        del file["model"]["merges"][100::3]
        made_of = set("".join(pair) for pair in file["model"]["merges"])
        file["model"]["merges"] = [p for p in file["model"]["merges"] if all(len(x) == 1 or x in made_of for x in p)]
    return json.dumps(file, ensure_ascii=True, separators=(",", ":"))


def write(folder, texts, files, chats):
    """`files`: the tokenizer.json of each kind. The first `chats` texts are also encoded with their control tokens."""
    expected = {"texts": texts}
    for kind, text in files.items():
        (folder / f"{kind}.json").write_text(text + "\n")
        made = Tokenizer.from_str(text)
        for name, some, as_text in (("text", texts, True), ("chat", texts[:chats], False)):
            made.encode_special_tokens = as_text
            expected[f"{kind} {name}"] = [e.ids for e in made.encode_batch(some, add_special_tokens=as_text)]
    lines = ",\n".join(f'"{key}":{json.dumps(value, ensure_ascii=True, separators=(",", ":"))}' for key, value in expected.items())
    (folder / "expected.json").write_text("{" + lines + "}\n")


if __name__ == "__main__":
    write(pathlib.Path(__file__).parent, texts(), {kind: train(kind) for kind in KINDS}, len(PLAIN))
