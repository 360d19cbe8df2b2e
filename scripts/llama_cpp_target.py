"""What scripts/llama_cpp_tables runs, and what the programs say of their time."""
import re

LENGTHS = (1, 2, 3, 4)
ROWS = [*(f"chain:small:{n}" for n in LENGTHS), *(f"max-gram:{n}" for n in LENGTHS), "cost-aware:chain:small", "cost-aware:chain:base",
        "cost-aware:max-gram"]
DRAFTS = ("small", "base")
FORMS = {"Q8_0": "q8_0", "Q4_0": "q4_0"}  # of the target: as pages call it, and as specula-gguf does
# Of programs that draft as one of our pipelines does, the one at the same length. An older llama-cli completes, too.
PEERS = {"autoregressive": ("llama-completion", "llama-cli"), "chain:small:{}": ("llama-speculative-simple",), "max-gram:{}": ("llama-lookup",)}


# ---- clocks of the programs: tokens and seconds of decoding in what one of them printed, None where it says nothing of them

def last(pattern, text):
    found = re.findall(pattern, text)  # the last: a text that a model writes may hold anything
    return found[-1] if found else None


def own_clock(text):
    """Of specula-llama with one pipeline."""
    found = last(r"(\d+) tokens, ([\d.]+) tokens/s \(", text)
    return found and (int(found[0]), int(found[0]) / float(found[1]))


def peers_clock(text):
    """Of llama.cpp's programs. Those that speculate print what they decoded and the target's own passes below; those of the one
    that does not are a token each."""
    found = last(r"decoded +(\d+) tokens in .* speed: +([\d.]+) t/s", text)  # their seconds have fewer digits
    if found:
        return int(found[0]), int(found[0]) / float(found[1])
    found = last(r"(?<!prompt )\beval time = +([\d.]+) ms / +(\d+) runs", text)
    return found and (int(found[1]), float(found[0]) / 1000)


def features(system_info):
    """The extensions that libllama was built with, from its "CPU : AVX = 1 | AVX2 = 1 | ... |"."""
    return [name for name, on in re.findall(r"(\w+) = (\w+)", system_info) if on == "1"]
