#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: server.py SERVER MODELS [--requests N]

examples/server with real clients over loopback: what each gets alone and among 32, clients that leave, a full queue,
wrong bodies, and its memory over N requests (2000).
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

asked = argparse.ArgumentParser(usage=__doc__)
asked.add_argument("server")
asked.add_argument("models", type=pathlib.Path)
asked.add_argument("--requests", type=int, default=2000)
given = asked.parse_args()

PROMPTS = [f"Question: Ann has {n} boxes of {n + 3} pens. How many pens" for n in range(2, 34)]
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
LONG = {"max_tokens": 2000, "temperature": 0, "prompt": "1, 2, 3, 4"}


class Server:
    def __init__(self, *options, target=None, draft=True):
        words = ["--target", target or given.models / "target", "--port", 0, *options]
        words += ["--draft", given.models / "small"] if draft else []
        self.process = subprocess.Popen([given.server, *map(str, words)], stdout=subprocess.PIPE, text=True)
        self.ends = False
        self.host, self.port = self.process.stdout.readline().strip().removeprefix("http://").split(":")

    def call(self, path, body=None):
        """Status, headers and body."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=120)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request("GET" if data is None else "POST", path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

    def complete(self, prompt, **more):
        status, _, body = self.call("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0, **more})
        assert status == 200, body
        if not more.get("stream"):
            return json.loads(body)["choices"][0]["text"]
        *events, last = body.strip().split("\n\n")
        assert last == "data: [DONE]", last
        parts = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
        assert [part["finish_reason"] is None for part in parts] == [True] * (len(parts) - 1) + [False], parts
        return "".join(part["text"] for part in parts)

    def metric(self, name):
        lines = dict(line.split() for line in self.call("/metrics")[2].splitlines())
        return int(lines[f"specula_{name}"])

    @contextlib.contextmanager
    def begun(self, body):
        """A request of which the beginning of the answer is there; then its client is gone."""
        data = json.dumps(body).encode()
        with socket.create_connection((self.host, int(self.port)), timeout=120) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            assert client.recv(16).startswith(b"HTTP/1.1 200")
            yield

    def leaves(self, body):
        with self.begun(body):
            pass

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def is_idle(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric("texts") == 0:
                return True
            time.sleep(0.05)
        return False

    def __enter__(self):
        return self

    def end(self):
        """Once: a second signal does not wait for answers."""
        if not self.ends:
            self.process.send_signal(signal.SIGTERM)
        self.ends = True

    def __exit__(self, *error):
        self.end()
        code = self.process.wait(60)
        self.process.stdout.close()
        assert code == 0, code


class Tests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--texts", 8, "--queue", 64).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_says_what_it_is(self):
        status, headers, body = self.server.call("/health")
        self.assertEqual((status, json.loads(body)), (200, {"status": "ok"}))
        self.assertIn("application/json", headers["Content-Type"])
        self.assertEqual(json.loads(self.server.call("/v1/models")[2])["data"], [{"id": "target", "object": "model"}])
        self.assertEqual(self.server.call("/v1/nothing")[0], 404)
        self.assertEqual(self.server.host, "127.0.0.1")

    def test_an_answer_has_the_common_form(self):
        answer = json.loads(self.server.call("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 5, "temperature": 0})[2])
        self.assertEqual((answer["object"], answer["model"], len(answer["choices"])), ("text_completion", "target", 1))
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        usage = answer["usage"]
        self.assertEqual(usage["completion_tokens"], 5)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 5)

    def test_each_of_32_gets_what_it_gets_alone(self):
        alone = [self.server.complete(prompt) for prompt in PROMPTS]
        drawn = [self.server.complete(prompt, temperature=1, seed=n) for n, prompt in enumerate(PROMPTS)]
        self.assertGreater(len(set(alone)), 16)
        self.assertNotEqual(alone, drawn)
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            seeded = [pool.submit(self.server.complete, prompt, temperature=1, seed=n) for n, prompt in enumerate(PROMPTS[:8])]
            whole = [pool.submit(self.server.complete, prompt) for prompt in PROMPTS[8:]]
            streamed = [pool.submit(self.server.complete, prompt, stream=True) for prompt in PROMPTS]
            self.assertEqual([one.result() for one in seeded], drawn[:8])
            self.assertEqual([one.result() for one in whole], alone[8:])
            self.assertEqual([one.result() for one in streamed], alone)
        self.assertTrue(self.server.is_idle())
        twice = [self.server.complete(PROMPTS[0], temperature=1, seed=None) for _ in range(8)]
        self.assertGreater(len(set(twice)), 1, "no seed is a seed")

    def test_clients_that_leave_cost_nobody_a_text(self):
        alone = [self.server.complete(prompt) for prompt in PROMPTS[:16]]
        self.assertTrue(self.server.is_idle())
        before = self.server.metric("tokens_total")
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            gone = [pool.submit(self.server.leaves, {**LONG, "stream": n % 2 == 0}) for n in range(16)]
            stay = [pool.submit(self.server.complete, prompt) for prompt in PROMPTS[:16]]
            self.assertEqual([one.result() for one in stay], alone)
            for one in gone:
                one.result()
        self.assertTrue(self.server.is_idle(), "texts of clients that left are still written")
        written = self.server.metric("tokens_total") - before
        self.assertLess(written, 16 * 24 + 16 * 500, "texts of clients that left were written to their ends")

    def test_wrong_bodies_are_told_what_is_wrong(self):
        right = {"prompt": "a", "max_tokens": 2}
        for body, says in (("", "the body: offset 0"), ("{", "the body: offset"), ("[1]", "the body: expected a JSON object"), (b"\xff\x00", "the body: offset 0"),
                           ({}, "'prompt': missing, expected a string"), ({"prompt": 3}, "'prompt': expected a string, found 3"),
                           ({**right, "max_tokens": 0}, "'max_tokens': expected an integer from 1 to 1048576, found 0"),
                           ({**right, "max_tokens": 1.5}, "max_tokens"), ({**right, "max_tokens": "3"}, "max_tokens"),
                           ({**right, "temperature": -1}, "'temperature': expected a number from 0 to 100, found -1"), ({**right, "top_p": 0}, "top_p"),
                           ({**right, "seed": -1}, "seed"), ({**right, "n": 2}, "'n': expected"), ({**right, "stop": [1]}, "'stop': expected a string or an array of them, found 1"),
                           ({**right, "stop": ["x"] * 17}, "at most 16"), ('{"prompt": "a", "stop": [%s]}' % ("[" * 100000 + "]" * 100000), "nested deeper than"),
                           ({**right, "presence_penalty": 3}, "presence_penalty"), ({**right, "tools": []}, "'tools': not supported"),
                           ({**right, "prompt": "word " * 5000}, "")):
            with self.subTest(body=str(body)[:60]):
                status, _, answer = self.server.call("/v1/completions", body)
                self.assertEqual(status, 400, answer)
                self.assertIn(says, json.loads(answer)["error"]["message"])
        self.assertEqual(self.server.call("/v1/completions", right)[0], 200)
        self.assertTrue(self.server.is_idle())

    def test_a_text_ends_before_a_stop_string(self):
        text = self.server.complete(PROMPTS[3])
        stop = text[6:9]
        for stream in (False, True):
            self.assertEqual(self.server.complete(PROMPTS[3], stop=[stop, "never"], stream=stream), text[:text.index(stop)])

    def test_penalties_are_of_one_text(self):
        alone = self.server.complete(PROMPTS[5], presence_penalty=2, frequency_penalty=1)
        plain = self.server.complete(PROMPTS[5])
        self.assertNotEqual(alone, plain)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            texts = [pool.submit(self.server.complete, PROMPTS[5], **({"presence_penalty": 2, "frequency_penalty": 1} if n % 2 else {})) for n in range(16)]
            self.assertEqual([one.result() for one in texts], [plain, alone] * 8)

    def test_memory_does_not_grow(self):
        def some(count):
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda n: self.server.complete(PROMPTS[n % 32], max_tokens=4, stream=n % 2 == 0), range(count)))
            return self.server.memory()

        before = some(max(100, given.requests // 10))
        after = some(given.requests)
        self.assertLess(after - before, 4096, f"{before} KB, after {given.requests} requests {after} KB")

    def test_a_full_queue_answers_429(self):
        with Server("--texts", 1, "--queue", 1) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            with server.begun({**LONG, "stream": True}):
                waits = pool.submit(server.call, "/v1/completions", {**LONG, "max_tokens": 8})
                while server.metric("texts") < 2:
                    time.sleep(0.01)
                status, headers, body = server.call("/v1/completions", LONG)
            self.assertEqual((status, headers.get("Retry-After")), (429, "1"), body)
            self.assertIn("texts already: try again later", body)
            self.assertIn("2 texts", json.loads(body)["error"]["message"])
            self.assertEqual(waits.result()[0], 200)
            self.assertTrue(server.is_idle())
            self.assertEqual(server.call("/v1/completions", {**LONG, "max_tokens": 8})[0], 200)

    def test_large_bodies_are_refused_however_they_come(self):
        large = b'{"prompt": "' + b"a" * (9 << 20) + b'"}'
        status, _, body = self.server.call("/v1/completions", large)
        self.assertEqual(status, 413, body)
        with socket.create_connection((self.server.host, int(self.server.port)), timeout=60) as client, contextlib.suppress(OSError):
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(100):
                client.sendall(b"100000\r\n" + b"a" * (1 << 20) + b"\r\n")
            self.assertIn(b"413", client.recv(64))
        form = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl says of -d
        connection = http.client.HTTPConnection(self.server.host, int(self.server.port), timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "word " * 400, "max_tokens": 1, "user": "x" * 9000}), form)
            self.assertEqual(connection.getresponse().status, 200)
        self.assertTrue(self.server.is_idle())

    def test_one_server_a_port(self):
        second = subprocess.run([given.server, "--target", given.models / "small", "--port", self.server.port], capture_output=True, text=True, timeout=60)
        self.assertEqual(second.returncode, 1, second.stderr)
        self.assertIn("cannot listen at 127.0.0.1", second.stderr)

    def test_texts_end_with_the_server(self):
        with Server("--texts", 2, "--capacity", 4096, draft=False) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
            texts = [pool.submit(server.call, "/v1/completions", {**LONG, "max_tokens": 4000}) for _ in range(4)]
            while server.metric("texts") < 4:
                time.sleep(0.01)
            server.end()
            cut = 0
            for text in texts:
                try:
                    status, _, body = text.result()
                    self.assertIn(status, (200, 503), body)
                except http.client.IncompleteRead:  # what had begun
                    cut += 1
            self.assertLessEqual(cut, 2)

    def test_chats_take_the_template_of_the_model(self):
        status, _, body = self.server.call("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
        self.assertEqual((status, json.loads(body)["error"]["message"]), (400, "target has no chat template; ask /v1/completions"))
        self.server.complete("a")
        with tempfile.TemporaryDirectory() as folder:
            for file in (given.models / "target").iterdir():
                (pathlib.Path(folder) / file.name).symlink_to(file.resolve())
            (pathlib.Path(folder) / "chat_template.jinja").write_text(CHATML)
            with Server(target=folder) as server:
                user, model = {"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}
                for messages, status in (([user], 200), ([{"role": "system", "content": "Be short."}, user], 200), ([user, model, user], 200),
                                         ([], 400), ([model], 400), ([user, user], 400), ([user, model], 400), ([{"role": "user"}], 400), ("a", 400), ([user, model] * 400 + [user], 400)):
                    with self.subTest(messages=messages):
                        answer = server.call("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0})
                        self.assertEqual(answer[0], status, answer[2])
                        if status == 200:
                            said = json.loads(answer[2])
                            self.assertEqual((said["object"], said["choices"][0]["message"]["role"]), ("chat.completion", "assistant"))
                streamed = server.call("/v1/chat/completions", {"messages": [user], "max_tokens": 4, "temperature": 0, "stream": True})[2]
                self.assertIn('"object":"chat.completion.chunk"', streamed)
                self.assertIn('"delta":{"content":', streamed)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
