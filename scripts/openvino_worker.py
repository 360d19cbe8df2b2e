# SPDX-License-Identifier: MIT
"""OpenVINO GenAI, for scripts/public_model, which runs this in a virtual environment: a JSON list asks, another one answers, after its version.

{"file", "assistant_tokens", "threads", "tokens", "new_tokens"} measures one text, by prompt lookup unless assistant_tokens
is 0; {"file", "threads", "text", "first", "rows"} the total variation of the next tokens' distributions from the logits in the file
`rows`, along a text from token `first` on; {"file", "threads", "context", "most", "turns"} the times in ms of passes over 1 to `most`
tokens after `context` or a few more.
"""
import functools
import json
import pathlib
import statistics
import sys
import time

import numpy
import openvino
import openvino_genai


@functools.cache
def pipeline(file, lookup, threads):
    made = openvino_genai.LLMPipeline(file, "CPU", INFERENCE_NUM_THREADS=threads, **({"prompt_lookup": True} if lookup else {}))
    generated(made, list(range(2000, 2032)), 4, 4 if lookup else 0)  # its first text takes longer
    return made


def generated(pipe, tokens, new_tokens, assistant_tokens):
    config = openvino_genai.GenerationConfig(max_new_tokens=new_tokens, do_sample=False, apply_chat_template=False)
    config.eos_token_id = pipe.get_tokenizer().get_eos_token_id()
    config.stop_token_ids = {config.eos_token_id}
    if assistant_tokens:
        config.num_assistant_tokens, config.max_ngram_size = assistant_tokens, 3
    return pipe.generate(openvino.Tensor(numpy.array([tokens], dtype=numpy.int64)), config)


def measure(file, assistant_tokens, threads, tokens, new_tokens):
    done = generated(pipeline(file, assistant_tokens > 0, threads), tokens, new_tokens, assistant_tokens)
    written, times = list(done.tokens[0]), done.perf_metrics
    decoding = times.get_generate_duration().mean - times.get_ttft().mean  # ms, of all tokens but the first
    return {"tokens": written, "ms": decoding / max(1, len(written) - 1), "prefill_ms": times.get_ttft().mean}


def request_of(file, threads):
    """The model that GenAI makes of the file, run by OpenVINO itself."""
    openvino_genai.LLMPipeline(file, "CPU", INFERENCE_NUM_THREADS=threads, enable_save_ov_model=True)
    return openvino.Core().compile_model(str(pathlib.Path(file).parent / "openvino_model.xml"), "CPU", {"INFERENCE_NUM_THREADS": threads}).create_infer_request()


def given(text, begin, end):
    """The inputs of a pass over these tokens of a text."""
    return {"input_ids": numpy.array([text[begin:end]], dtype=numpy.int64), "attention_mask": numpy.ones((1, end), dtype=numpy.int64),
            "position_ids": numpy.arange(begin, end, dtype=numpy.int64)[None], "beam_idx": numpy.zeros(1, dtype=numpy.int32)}


def passes(file, threads, context, most, turns):
    request, times = request_of(file, threads), []
    text = [int(x) for x in numpy.random.default_rng(1).integers(1000, 9000, context + most * (turns + 1))]
    for n in range(1, most + 1):
        request.reset_state()
        request.infer(given(text, 0, context))
        took = []
        for turn in range(turns + 1):  # the context grows by each; in the first one it makes what it needs for this size
            at = context + n * turn
            start = time.perf_counter()
            request.infer(given(text, at, at + n))
            took.append(1e3 * (time.perf_counter() - start))
        times.append(statistics.median(took[1:]))
    return {"ms": times}


def distance(file, threads, text, first, rows):
    """A pass per token."""
    request = request_of(file, threads)
    apart, same, begin, references = [], 0, 0, numpy.memmap(rows, dtype=numpy.float32)
    for n, end in enumerate(range(first + 1, len(text))):
        row = request.infer(given(text, begin, end))["logits"][0, -1]
        reference = references[n * row.size:(n + 1) * row.size]
        p, q = (numpy.exp(x.astype(float) - x.max()) for x in (row, reference))
        apart.append(float(abs(p / p.sum() - q / q.sum()).sum() / 2))
        same += int(row.argmax() == reference.argmax())
        begin = end
    return {"mean": sum(apart) / len(apart), "largest": max(apart), "same_likeliest": same, "rows": len(apart)}


answers = [openvino_genai.get_version()]
for asked in json.load(sys.stdin):
    answers.append((distance if "rows" in asked else passes if "most" in asked else measure)(**asked))
print(json.dumps(answers))
