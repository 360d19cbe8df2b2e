#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: ways_out.py ROOT [--list]

Messages of the library and of its programs that name a way out, such as an option or a file. Whatever they name must be there: an option
in the program that prints the message, a command, a script, a page, a build option. And each must be in ways_out.txt with the test
that does what it says, in which its words are. --list prints the messages that it finds.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
SOURCES = ("include/specula", "tools/common", "tools/specula", "tools/train/src", "examples/server")
PROGRAMS = {  # name: the sources that are its own
    **{f"specula {name}": f"tools/specula/{name}" for name in ("run", "compare", "passes", "convert", "quantize", "bigram")},
    "specula-distance": "tools/specula/llama_cpp/distance.cpp", "specula-server": "examples/server",
    "specula-train": "tools/train/src/*_command.cpp tools/train/src/main.cpp", "specula-train-answers": "tools/train/src/answers_main.cpp",
    "specula-train-text": "tools/train/src/text_main.cpp tools/train/src/prompts_command.cpp"}
# Options that a source names although programs that include it lack them, by what keeps the message from these.
ELSEWHERE = {
    "specula run alone calls it": "common/decoding_options.hpp --prompt --prompts --stop, specula/engines/engine.hpp --grammar --json-schema",
    "specula compare alone calls it": "common/prompts.cpp --skip --dev",
    "it is called where there is the option": "common/prompts.cpp --style, common/chat_options.hpp --style --chat --system, common/text_batch.cpp --batch, "
                                              "common/decoding_options.hpp --threads, specula/engines/cpu_engine.cpp --batch, "
                                              "specula/engines/model_options.cpp --engine, specula/engines/llama_models.cpp --draft",
    "a program without it gives words of its own": "common/chat_template.hpp --raw",
}
ELSEWHERE = {("tools/" + words.split()[0], option) for entries in ELSEWHERE.values() for words in entries.split(", ") for option in words.split()[1:]}
OUTSIDE = ("llama-", "ggml-", "git ", "update-alternatives", "iconv")  # programs of others
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
VERBS = ("add ask bring build call configure convert download draw give install leave load lower make merge move name put rename run save set "
         "shorten start take truncate try use wrap write").replace(" ", "|")
WAY = re.compile(  # what a message has in it that names a way out
    rf"(?:[;:,(`] |\bor |\band )(?:{VERBS})\b|^(?:run|give|take|write)\b|\. Write |(?:^|[\w:;,(`] ?)specula[\w-]* [a-z]+|\bdocs/|scripts/|git lfs|\(iconv|\(Debian:|-D[A-Z]|/v1/"
    r"|[;:] ?[\w ]*--[a-z]|(?:for|with|goes|by|than|without|or|and|among|nor a) --[a-z]|see \w+::|\w::\w+ is (?:off|false)|\(\) (?:first|begins|or)|; \w+\(\)"
    r"|runs it|needs? no\b|reads? no\b|need less|takes less|not need it|knows more|has it,|by Model|another draft|[;,] [\w ]+ takes? |choice of|as GumbelCoupling"
    r"|the nearest are|is a drafter|meant\?|is a drafter, too|can only be|no chat template \(|drafters come after")


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def statements(text):
    """What lies between semicolons and braces, strings aside, with the strings."""
    found, current = [], ""
    for part in re.findall(r'"(?:[^"\\\n]|\\.)*"|R"\w*\(.*?\)\w*"|\'(?:[^\'\\\n]|\\.)+\'|[;{}]|[^"\';{}]+|.', text, flags=re.S):
        if part in (";", "{", "}"):
            found.append(current)
            current = ""
        else:
            current += part
    return found


def messages(text, everything=False):
    """What it throws, a variable part as {}; and constants for messages. Or all that it says but what describes options."""
    for statement in statements(text):
        statement = re.sub(r"\s+", " ", statement).strip()
        thrown = re.search(r"\bthrow\b|\bfail\w*\(|\brefuse\w*\(|\bwrong\(|\bexpect\w*\(|\brequire\(|no_template_ =|UsageError\(|StatusError\(|\bend\(|TORCH_CHECK", statement)
        if not thrown and not everything and not re.search(r"\bk[A-Z]\w+(?:\[\])? = \"|way_out\b|\bwhat =|return \"|return std::string\(\"|string message|message \+|known\.append|std::cerr", statement):
            continue
        if re.search(r"COMPREPLY|add_option|add_flag|static_assert|add_subcommand|\basm\b|__asm__|->check|get_option|option_defaults|footer|app\.count\(", statement):
            continue
        if thrown:
            statement = statement[thrown.start():]
        parts = [part.replace('\\"', '"').replace("\\n", " ") for part in STRING.findall(statement.replace('" "', ""))]
        if parts and parts != ["specula run"]:  # the name of a program
            yield "{}".join(parts)


def sources():
    return {file: without_comments(file.read_text()) for folder in SOURCES for file in sorted((ROOT / folder).rglob("*.[ch]*"))}


def name(file):
    return str(file.relative_to(ROOT))


class Programs:
    """Which sources a program is made of, and which options it takes."""

    def __init__(self, texts):
        self.texts = texts
        self.by_name = {}
        for file in texts:
            self.by_name.setdefault(file.name, []).append(file)
        self.adders = {}  # a function that adds options: these, and the adders that it calls
        for file, text in texts.items():
            for at in re.finditer(r"\b(add_\w+|add_to|add_inner_to)\((?:CLI::App|auto)?[^;{]*\) (?:const )?\{", text):
                indent = re.match(" *", text[text.rfind("\n", 0, at.start()) + 1:])[0]
                self.adders.setdefault(at[1], []).append((file, text[at.end():text.find(f"\n{indent}}}", at.end())]))
        self.options, self.files = {}, {}
        for program, own in PROGRAMS.items():
            files = [file for part in own.split() for file in ([ROOT / part] if (ROOT / part).is_file() else
                                                                [*ROOT.glob(part if "*" in part else part + "/*.[ch]pp")])]
            self.files[program] = self.included(files)
            own_texts = [texts[file] for file in files]
            if program.startswith("specula-train"):
                own_texts += [texts[file] for file in self.files[program] if "tools/train" in name(file) and not file.name.endswith(("_command.cpp", "_main.cpp"))]
            self.options[program] = {"--help", "--version"}.union(*(self.added(text, self.files[program], set()) for text in own_texts))

    def included(self, files):
        seen, left = set(), list(files)
        while left:
            file = left.pop()
            if file in seen or file not in self.texts:
                continue
            seen.add(file)
            for include in re.findall(r'#include "([^"]+)"|#include <(specula/[^>]+)>', file.read_text()):
                for found in self.by_name.get(pathlib.Path("".join(include)).name, []):
                    left += [found, found.with_suffix(".cpp")]
        return seen

    def added(self, text, files, seen):
        out = set()
        for at in re.finditer(r"add_(?:option|flag)(?:_function)?\(", text):
            out |= set(re.findall(r"--[a-z][a-z0-9-]*", STRING.search(text, at.end())[0]))
        for call in re.findall(r"\b(add_\w+|add_to|add_inner_to)\(", text):
            if call not in seen:
                seen.add(call)
                for file, body in self.adders.get(call, []):
                    if file in files:
                        out |= self.added(body, files, seen)
        return out


def faults_of_names(texts):
    programs, unused = Programs(texts), set(ELSEWHERE)
    commands = {word for text in texts.values() for word in re.findall(r'add_subcommand\(\s*"([a-z]+)"', text)}
    commands |= {program.split()[1] for program in PROGRAMS if " " in program}
    built = "".join(file.read_text() for file in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir(), ROOT / "scripts/llama_cpp"] if file.is_file())
    faults = []
    for file, text in texts.items():
        users = [program for program in PROGRAMS if file in programs.files[program]]
        for said in messages(text, everything="tools/train" not in name(file)):  # its draft command writes commands for others
            for page in re.findall(r"\b(?:docs|scripts|tools|examples)/[\w./-]+\w", said):
                if not (ROOT / page).exists():
                    faults.append(f"{name(file)}: there is no {page}: {said}")
            for define in re.findall(r"-D([A-Z_]+)", said):
                if define not in built:
                    faults.append(f"{name(file)}: nothing reads -D{define}: {said}")
            for command in re.findall(r"\bspecula(?:-train|-train-text)? ([a-z]+)\b(?! is| was)", said):
                if command not in commands and re.search(rf"(?:run `?|[:;(,] |or |by |with )specula(?:-train|-train-text)? {command}\b", said):
                    faults.append(f"{name(file)}: there is no command {command}: {said}")
            for at in re.finditer(r"(?<![\w-])--[a-z][a-z0-9-]+", said):
                option, before = at[0], said[:at.start()]
                of = re.search(r"(specula[\w-]*(?: [a-z]+)?|scripts/\w+|(?:%s)[\w-]*(?: \w+)*) $" % "|".join(OUTSIDE), before)
                if of and of[1].startswith("scripts/"):
                    if option not in (ROOT / of[1]).read_text():
                        faults.append(f"{name(file)}: {of[1]} has no {option}: {said}")
                elif of and of[1].startswith("specula"):
                    which = [p for p in PROGRAMS if p == of[1] or p == of[1].split()[0]]
                    if not any(option in programs.options[p] for p in which):
                        faults.append(f"{name(file)}: {of[1]} has no {option}: {said}")
                elif not of:
                    if name(file).startswith("include/"):
                        faults.append(f"{name(file)}: the library has no options, so of which program is {option}? {said}")
                    for program in users:
                        if option in programs.options[program]:
                            continue
                        unused.discard((name(file), option))
                        if (name(file), option) not in ELSEWHERE:
                            faults.append(f"{name(file)}: {program} has no {option}: {said}")
    return faults + [f"ELSEWHERE: {' '.join(entry)} is not needed" for entry in unused]


def plain(text):
    """Without what strings are written with in a test: the ends of lines, of C++ strings and of shell quotes, and escapes."""
    text = re.sub(r'"\s*\n\s*"|\\\n\s*', "", text)
    return re.sub(r"""[\\'"`.*$^]""", "", text).replace("  ", " ")


def faults_of_table(texts):
    rows = []
    for number, line in enumerate((ROOT / "tests/programs/ways_out.txt").read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            rows.append((number, *(part.strip() for part in line.split("|"))))
    faults, used = [], set()
    for file, text in texts.items():
        for said in messages(text):
            its = {number for number, of, words, _ in rows if name(file) == of and plain(words) in plain(said)}
            used |= its
            if WAY.search(said) and not its:
                faults.append(f"{name(file)}: names a way out, and is not in ways_out.txt: {said}")
    for number, file, words, test in rows:
        if number not in used:
            faults.append(f"ways_out.txt:{number}: no message of {file} says '{words}'")
        for one in test.split() if not test.startswith("-") else []:
            if not (ROOT / one).exists() or plain(words) not in plain((ROOT / one).read_text()):
                faults.append(f"ways_out.txt:{number}: {one} has not the words '{words}'")
    return faults


def main():
    texts = sources()
    if "--list" in sys.argv:
        for file, text in texts.items():
            for said in messages(text):
                if WAY.search(said):
                    print(f"{name(file)} | {said}")
        return 0
    faults = faults_of_names(texts) + faults_of_table(texts)
    print("\n".join([*faults, f"{len(faults)} wrong"]))
    return 1 if faults else 0


sys.exit(main())
