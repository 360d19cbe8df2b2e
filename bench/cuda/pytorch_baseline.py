# SPDX-License-Identifier: MIT
"""Token-level rejection sampling as it is written in PyTorch, on the work of the bars: a baseline, no more.

usage: pytorch_baseline.py --out FILE

Softmax of both models' rows, acceptance, the residual and its draw, all on the device; inputs are rotated over more
than twice the second cache. Eagerly, and in a captured graph where that works.
"""
import argparse
import json
import statistics

import torch

VOCAB = 128256
DRAFT_TOKENS = 4


def verify(target, draft, tokens):
    """target (B, K + 1, V), draft (B, K, V), tokens (B, K): the accepted count and the token after it, (B) each."""
    p = torch.softmax(target.float(), dim=-1)
    q = torch.softmax(draft.float(), dim=-1)
    index = tokens.unsqueeze(-1)
    ratio = p[:, :DRAFT_TOKENS].gather(-1, index).squeeze(-1) / q.gather(-1, index).squeeze(-1)
    accepted = torch.rand_like(ratio) < ratio
    count = accepted.int().cumprod(dim=-1).sum(dim=-1)
    at = count.view(-1, 1, 1).long().expand(-1, 1, VOCAB)
    q = torch.nn.functional.pad(q, (0, 0, 0, 1))
    left = (p.gather(1, at) - q.gather(1, at)).squeeze(1).clamp_min(0)
    left = left / left.sum(dim=-1, keepdim=True)
    # The exponential race: torch.multinomial would wait for the host.
    next_token = (left / torch.empty_like(left).exponential_(1)).argmax(dim=-1)
    return count, next_token


def median_us(run, sets, launches, repeats=15):
    for s in range(sets):
        run(s)
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for i in range(launches):
            run(i % sets)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times)


def measure(sequences):
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    sets = int(max(2, -(-2.2 * cache // (sequences * (DRAFT_TOKENS + 1) * VOCAB * 2)) + 1))
    generator = torch.Generator(device="cuda").manual_seed(1)
    targets, drafts, tokens = [], [], []
    for _ in range(sets):
        target = (2 * torch.randn(sequences, DRAFT_TOKENS + 1, VOCAB, device="cuda", generator=generator)).bfloat16()
        noise = 0.7707 * torch.randn(sequences, DRAFT_TOKENS, VOCAB, device="cuda", generator=generator)
        draft = (target[:, :DRAFT_TOKENS].float() + noise).bfloat16()
        q = torch.softmax(draft.float(), dim=-1).view(-1, VOCAB)
        tokens.append(torch.multinomial(q, 1, generator=generator).view(sequences, DRAFT_TOKENS))
        targets.append(target)
        drafts.append(draft)
    out = {"sequences": sequences, "sets": sets, "alpha": 0.7}

    def eager(s):
        return verify(targets[s], drafts[s], tokens[s])

    counts = torch.cat([eager(s)[0] for s in range(sets)])
    out["accepted"] = counts.float().mean().item()
    launches = max(sets, 8)
    out["eager_us"] = [median_us(eager, sets, launches), median_us(eager, sets, launches)]
    try:
        graphs = []
        for s in range(sets):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                eager(s)
            graphs.append(graph)
        out["graph_us"] = [median_us(lambda s: graphs[s].replay(), sets, launches) for _ in range(2)]
    except RuntimeError as error:
        out["graph_error"] = str(error)[:300]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    results = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0), "work": []}
    for sequences in (1, 64):
        one = measure(sequences)
        results["work"].append(one)
        with open(options.out, "w") as file:
            json.dump(results, file, indent=1)
        graph = f"{max(one['graph_us']):.1f} us in a graph" if "graph_us" in one else "no graph"
        print(f"| PyTorch baseline, B = {sequences}, 4 drafts, rejection, alpha .7 | "
              f"{max(one['eager_us']):.1f} us eagerly | {graph} |", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
