"""Figures within sentences, which scripts/pages writes between `<!-- figure: NAME -->` and `<!-- end -->`. Standard library only."""
import json

from methods import Missing, Row


def claims(root):
    """NAME to a function that returns the words, or None if a file of figures is not there."""
    figures = root / "docs" / "benchmarks"

    def load(name):
        return json.loads((figures / f"{name}.json").read_text())

    def llama_cpp():
        """specula's best over llama.cpp's best, for each kind of draft."""
        rate = load("llama_cpp_peers")["best"]["tokens_per_second"]

        def best(*begins):
            return max(speed for name, speed in rate.items() if name.startswith(begins) and ("--bigram" in name or "static" in name) == table)

        kinds = []
        for table, ours, theirs in ((False, ("specula-llama max-gram", "specula-llama cost-aware:max-gram"), "llama-lookup"),
                                    (True, ("specula-llama max-gram", "specula-llama cost-aware:max-gram"), "llama-lookup"),
                                    (False, ("specula-llama chain", "specula-llama cost-aware:chain"), "llama-speculative")):
            kinds.append(best(*ours) / best(theirs))
        return f"{min(kinds):.2f} to {max(kinds):.2f}"

    def h100(section, name):
        return next(x for x in load("cuda_h100_peers")[section] if x["name"] == name)

    def chains():
        x = h100("verification", "B = 64, 4 drafts, alpha .7")
        return f"{x['ours_us']:.0f} us; FlashInfer, from the target's logits {x['verify_us']:.0f} us, from ready probabilities {x['chain_us']:.0f} us"

    def trees():
        x = h100("trees", "B = 64")
        return (f"{x['ours_us']:.0f} us; SGLang's kernel, by another rule, {x['kernel_us']:.0f} us from ready probabilities of all 4,096 rows, "
                f"{x['softmax_us']:.0f} us with PyTorch's softmax before it")

    def best(file):
        return f"{max(p['speedup'] for p in load(file)['pipelines']):.2f}x"

    def temperature_1():
        p = max((p for p in load("paper_hass_t1")["pipelines"] if p["name"] != "autoregressive"), key=lambda p: p["speedup"])
        return f"{p['speedup']:.2f}x (`{p['name']}`)"

    def rag():
        """Of the plain draft's chain, of the same draft cost-aware, and of Max-Gram, on Spec-Bench's retrieval prompts."""
        chain, cost_aware, grams = (Row(figures, "paper_spec_bench", label).of("rag").p["speedup"]
                                    for label in ("draft model, chain", "draft model, cost-aware", "Max-Gram"))
        return f"{chain:.2f}x on retrieval, `cost-aware` {cost_aware:.2f}x, Max-Gram {grams:.2f}x"

    def unless_missing(words):
        def said():
            try:
                return words()
            except (FileNotFoundError, Missing):
                return None
        return said

    all_claims = {"llama.cpp": llama_cpp, "h100 chains": chains, "h100 trees": trees, "avx2 best": lambda: best("main_avx2"),
                  "temperature 1": temperature_1, "rag": rag}
    return {name: unless_missing(words) for name, words in all_claims.items()}
