"""How the server is run: keys and tenants, limits, the queue, draining, settings, metrics, the cache's endpoints.

usage: operations_test.py PROGRAM
"""
import gzip
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import exposition
from exposition import Rules  # noqa: F401 (its tests run here, too)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SYSTEM = "You are a kind old storyteller who tells short stories about animals and children to a child in the evening."
QUESTION = "Tell me a story about a small brown dog that lived near the river with an old man and a cat."


class Program:
    """`reprise serve` with the bundled model; port 0: on a free one."""

    def __init__(self, *options, environment=None, port=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
        env.update(environment or {})
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", str(port), "--threads", "1", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.lines = []
        self.port = None
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"http://\S+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        if self.port is None:
            self.process.wait(timeout=10)
            raise RuntimeError("".join(self.lines))
        self.reader = threading.Thread(target=self.lines.extend, args=(self.process.stdout,))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        self.reader.join()
        self.process.stdout.close()

    def wait_for_log(self, text):
        """The log, as soon as it has that text."""
        while text not in (log := "".join(self.lines)):
            assert self.process.poll() is None, log
            time.sleep(0.01)
        return log

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def ask(self, method, path, body=None, key=None, headers=None, raw=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = dict(headers or {})
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
        if key:
            sent["Authorization"] = "Bearer " + key
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), text if raw else json.loads(text)

    def chat(self, key=None, tokens=8, **fields):
        body = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}],
                "max_tokens": tokens, "temperature": 0}
        body.update(fields)
        status, _, answer = self.ask("POST", "/v1/chat/completions", body, key)
        assert status == 200, answer
        return answer

    def cache(self, key=None):
        return self.ask("GET", "/v1/cache", key=key)[2]

    def open_stream(self, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": tokens, "temperature": 0,
             "ignore_eos": True, "stream": True}), {"Content-Type": "application/json"})
        return connection, connection.getresponse()


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def config(text):
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name) / "reprise.toml"
    path.write_text(text)
    return folder, str(path)


KEYS = """
[[keys]]
name = "alice"
key = "alice-secret"
[[keys]]
name = "bob"
key = "bob-secret"
[[keys]]
name = "carol"
key = "carol-secret"
share = true
[[keys]]
name = "dave"
key = "dave-secret"
share = true
[[keys]]
name = "root"
key = "root-secret"
admin = true
"""


class Tenants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder, path = config(KEYS)
        cls.server = Program("--config", path)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        time.sleep(0.1)  # idle-time work of the test before
        self.server.ask("POST", "/v1/cache/reset", {"all": True}, "root-secret")

    def test_every_route_but_the_probes_needs_a_key(self):
        posts = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/tokenize",
                 "/detokenize", "/apply-template", "/v1/cache/reset", "/v1/cache/pins", "/chat/completions",
                 "/completions", "/reset_prefix_cache", "/v1/responses", "/responses", "/v1/responses/input_tokens",
                 "/api/chat", "/api/generate", "/api/show", "/completion", "/infill", "/v1/embeddings"]
        gets = ["/v1/models", "/v1/models/x", "/models", "/props", "/metrics", "/metrics/vllm", "/v1/cache",
                "/v1/cache/events", "/v1/responses/x", "/api/tags", "/api/ps", "/api/version", "/slots", "/version",
                "/server_info", "/v1/loads", "/tokenizer_info"]
        for method, paths in (("POST", posts), ("GET", gets)):
            for path in paths:
                for key in (None, "wrong", "alice-secre", "alice-secret2"):
                    body = {} if method == "POST" else None
                    status, _, answer = self.server.ask(method, path, body, key)
                    self.assertEqual(status, 401, (method, path))
                    self.assertIn("error", answer)
        for path in ("/health", "/live"):
            self.assertEqual(self.server.ask("GET", path)[0], 200)

    def test_nothing_is_shared_between_keys(self):
        first = self.server.chat("alice-secret")
        self.assertEqual(cached(first), 0)
        self.assertGreater(cached(self.server.chat("alice-secret")), 20)
        other = self.server.chat("bob-secret")
        self.assertEqual(cached(other), 0)
        # Not even that somebody else has it.
        self.assertEqual(other["reprise"]["reason"], "cold")
        self.assertEqual(other["reprise"]["known_tokens"], 0)
        self.assertEqual(other["choices"][0]["message"], first["choices"][0]["message"])

    def test_nothing_of_others_is_visible(self):
        secret = "The treasure lies below the seventh tree. " + SYSTEM
        asked = {"messages": [{"role": "system", "content": secret}, {"role": "user", "content": QUESTION}]}
        self.server.chat("alice-secret", **asked)
        mine = self.server.cache("alice-secret")
        self.assertTrue(any("treasure" in node["text"] for node in mine["tree"]["nodes"]))
        theirs = self.server.cache("bob-secret")
        self.assertNotIn("treasure", json.dumps(theirs))
        ids = {report["request_id"] for report in mine["reports"]}
        self.assertTrue(ids)
        self.assertFalse(ids & {report["request_id"] for report in theirs["reports"]})
        self.assertNotIn("server", theirs)
        self.assertIn("server", self.server.cache("root-secret"))
        self.assertNotIn("treasure", json.dumps(self.server.cache("root-secret")))
        for path in ("/metrics", "/metrics/vllm"):
            self.assertEqual(self.server.ask("GET", path, key="bob-secret")[0], 403)
            self.assertEqual(self.server.ask("GET", path, key="root-secret", raw=True)[0], 200)

    def test_keys_that_share_share(self):
        self.server.chat("carol-secret")
        self.assertGreater(cached(self.server.chat("dave-secret")), 20)

    def test_a_salt_is_a_namespace_of_its_own(self):
        self.server.chat("alice-secret", cache_salt="one")
        self.assertEqual(cached(self.server.chat("alice-secret", cache_salt="two")), 0)
        self.assertGreater(cached(self.server.chat("alice-secret", cache_salt="one")), 20)
        # A salt cannot reach into another tenant's namespace.
        self.assertEqual(cached(self.server.chat("bob-secret", cache_salt="one")), 0)

    def test_reset_is_for_ones_own(self):
        self.server.chat("alice-secret")
        self.server.chat("bob-secret")
        self.assertEqual(self.server.ask("POST", "/v1/cache/reset", {"all": True}, "bob-secret")[0], 403)
        self.assertEqual(self.server.ask("POST", "/v1/cache/reset", {}, "bob-secret")[0], 200)
        self.assertGreater(cached(self.server.chat("alice-secret")), 20)
        self.assertEqual(cached(self.server.chat("bob-secret")), 0)

    def test_anthropic_key_header(self):
        status, _, answer = self.server.ask("GET", "/v1/models", headers={"x-api-key": "alice-secret"})
        self.assertEqual(status, 200, answer)

    def test_logs_have_no_text_and_no_keys(self):
        self.server.chat("alice-secret")
        log = self.server.wait_for_log('"path":"/v1/chat/completions"')
        for secret in ("storyteller", "brown dog", "alice-secret"):
            self.assertNotIn(secret, log)


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Program()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_pins(self):
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        self.server.chat()
        status, _, answer = self.server.ask("POST", "/v1/cache/pins", {"messages": messages, "ttl": "5m"})
        self.assertEqual(status, 200, answer)
        self.assertGreater(answer["pinned_tokens"], 20)
        self.assertEqual(answer["ttl_seconds"], 300)
        self.assertGreater(self.server.cache()["server"]["stored"]["pinned"], 0)
        self.server.ask("DELETE", "/v1/cache/pins", {"messages": messages})
        self.assertEqual(self.server.cache()["server"]["stored"]["pinned"], 0)
        self.assertEqual(self.server.ask("POST", "/v1/cache/pins", {"messages": messages, "ttl": "soon"})[0], 400)

    def test_the_feed_pushes_changes_and_nothing_else(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        connection.request("GET", "/v1/cache/events")
        answer = connection.getresponse()
        self.assertEqual(answer.getheader("content-type"), "text/event-stream; charset=utf-8")

        def event():
            while True:
                line = answer.readline()
                if line.startswith(b"data: "):
                    return json.loads(line[6:])

        begin = event()["server"]["totals"]["lookups"]
        self.server.chat(messages=[{"role": "user", "content": "Something new for the feed to show, please."}])
        while event()["server"]["totals"]["lookups"] == begin:
            pass
        connection.sock.settimeout(0.7)  # what is under way may still come; then it is silent
        quiet = False
        for _ in range(8):
            try:
                event()
            except TimeoutError:
                quiet = True
                break
        self.assertTrue(quiet, "the feed pushes although nothing changes")
        connection.close()

    def test_page_and_its_policy(self):
        status, headers, text = self.server.ask("GET", "/", raw=True)
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotRegex(text.decode(), r"(src|href)=[\"']https?:")
        self.assertEqual(self.server.ask("GET", "/", headers={"If-None-Match": headers["ETag"]}, raw=True)[0], 304)
        self.assertEqual(self.server.ask("GET", "/assets/../../etc/passwd", raw=True)[0], 404)

    def metrics(self, path="/metrics"):
        status, headers, text = self.server.ask("GET", path, raw=True)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        return text.decode()

    def test_metrics_are_what_promtool_wants(self):
        self.server.chat()
        text = self.metrics()
        families = exposition.parse(text)
        self.assertEqual(exposition.lint(families), [])
        self.assertTrue(all(name.startswith("reprise_") for name in families))
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_the_board_asks_for_what_is_there(self):
        self.server.chat()
        served = {name for family in exposition.parse(self.metrics()).values() for name, _, _ in family.samples}
        board = json.loads((ROOT / "packaging/grafana.json").read_text())
        asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        names = set(re.findall(r"[a-z]+[_:][a-z0-9_:]+", re.sub(r"\[\$\w+\]|histogram_quantile", "", " ".join(asked))))
        self.assertGreater(len(names), 15)
        self.assertEqual(names - served, set())

    def test_metrics_under_the_names_of_vllm(self):
        self.server.chat()
        self.server.chat(stop=["e"])
        for _ in range(200):  # idle-time work holds memory, too
            families = exposition.parse(self.metrics("/metrics/vllm"))
            if families["vllm:kv_cache_usage_perc"].samples[0][2] == 0:
                break
            time.sleep(0.02)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info",
                     "prompt_tokens_total", "generation_tokens_total", "request_success_total",
                     "prefix_cache_queries_total", "prefix_cache_hits_total", "time_to_first_token_seconds",
                     "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                     "request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds",
                     "request_prompt_tokens", "request_generation_tokens"):
            for _, labels, _ in families["vllm:" + name].samples:
                self.assertEqual(labels["model_name"], "reprise-tiny-q8_0")

        def value(name, **wanted):
            return [v for _, labels, v in families["vllm:" + name].samples if wanted.items() <= labels.items()][0]

        self.assertEqual(value("kv_cache_usage_perc"), 0)  # what is only remembered is free
        self.assertGreater(value("request_success_total", finished_reason="stop"), 0)
        self.assertGreater(value("request_success_total", finished_reason="length"), 0)
        again = exposition.parse(self.metrics("/metrics/vllm"))
        self.assertEqual(again["vllm:cache_config_info"].samples, families["vllm:cache_config_info"].samples)
        self.assertEqual({problem for _, problem in exposition.lint(families)}, {"contains ':'"})

    def test_models_text_and_ids(self):
        model = self.server.ask("GET", "/v1/models")[2]["data"][0]["id"]
        self.assertEqual(self.server.ask("GET", "/v1/models/" + model)[2]["id"], model)
        self.assertEqual(self.server.ask("GET", "/models/" + model)[2]["id"], model)
        self.assertEqual(self.server.ask("GET", "/v1/models/org/none")[0], 404)
        self.assertRegex(self.server.ask("GET", "/version")[2]["version"], r"^\d+\.\d+\.\d+$")
        info = self.server.ask("GET", "/tokenizer_info")[2]
        self.assertIn("message", info["chat_template"])
        self.assertEqual(info["model_max_length"], 4096)
        status, _, answer = self.server.ask("GET", "/v1/nowhere")
        self.assertEqual(status, 404)
        self.assertTrue(answer["error"]["message"].startswith("there is nothing at /v1/nowhere"))
        self.assertLess(len(answer["error"]["message"]), 100)
        _, _, answer = self.server.ask("POST", "/v1/v1/chat/completions", {})
        self.assertIn("did you mean /v1/chat/completions?", answer["error"]["message"])
        tokens = self.server.ask("POST", "/tokenize", {"content": "Once upon a time"})[2]["tokens"]
        self.assertEqual(self.server.ask("POST", "/detokenize", {"tokens": tokens})[2]["content"], "Once upon a time")
        text = "h\u00e9llo \U0001f600"
        tokens = self.server.ask("POST", "/tokenize", {"content": text, "with_pieces": True})[2]["tokens"]
        pieces = [token["piece"] for token in tokens]  # as llama.cpp has them: bytes where they are no text
        self.assertEqual(b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in pieces).decode(), text)
        vllm = self.server.ask("POST", "/tokenize", {"prompt": "Once upon a time"})[2]
        self.assertEqual(vllm["count"], len(vllm["tokens"]))
        prompt = self.server.ask("POST", "/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})[2]["prompt"]
        self.assertIn("Hi", prompt)
        self.assertEqual(self.server.ask("GET", "/props")[2]["context_tokens"], 4096)

    def test_the_prompt_is_scored_as_it_would_be_generated(self):
        def complete(**fields):
            return self.server.ask("POST", "/v1/completions", {"temperature": 0, "logprobs": 2, **fields})[2]["choices"][0]

        text = "Once upon a time"
        ids = self.server.ask("POST", "/tokenize", {"prompt": text})[2]["tokens"]
        said = complete(prompt=text, max_tokens=12, return_token_ids=True)
        scored = complete(prompt=ids + said["token_ids"], max_tokens=0, echo=True)
        self.assertEqual(scored["text"], text + said["text"])
        self.assertIsNone(scored["logprobs"]["token_logprobs"][0])
        for name in ("token_logprobs", "top_logprobs", "tokens"):
            self.assertEqual(scored["logprobs"][name][len(ids):], said["logprobs"][name], name)
        self.assertEqual(complete(prompt=text, max_tokens=2, echo=True)["logprobs"]["tokens"][:4],
                         scored["logprobs"]["tokens"][:4])

    def test_echo_of_several_prompts_and_choices(self):
        body = {"prompt": ["Once upon a", "The old dog"], "n": 2, "max_tokens": 3, "logprobs": 1, "echo": True, "seed": 1}
        choices = self.server.ask("POST", "/v1/completions", body)[2]["choices"]
        self.assertEqual(len(choices), 4)
        for choice in choices:
            self.assertTrue(choice["text"].startswith(body["prompt"][choice["index"] // 2]))
            logprobs = choice["logprobs"]
            self.assertEqual("".join(logprobs["tokens"]), choice["text"])
            for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
                self.assertEqual(choice["text"][offset:offset + len(token)], token)
            self.assertEqual([value is None for value in logprobs["token_logprobs"]], [True] + [False] * (len(logprobs["tokens"]) - 1))

    def test_request_ids(self):
        for sent, kept in (("abc-123.X_y", True), ("bad id!", False), ("x" * 200, False)):
            headers = self.server.ask("GET", "/health", headers={"x-request-id": sent})[1]
            self.assertEqual(headers["x-request-id"] == sent, kept)

    def test_other_names_of_this_machine_are_refused(self):
        for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("evil.example", 403), ("127.0.0.1.evil", 403)):
            self.assertEqual(self.server.ask("GET", "/v1/models", headers={"Host": host})[0], status, host)

    def test_forms_of_web_pages_are_refused(self):
        for kind, status in (("text/plain", 415), ("text/plain; x=json", 415), ("application/x-www-form-urlencoded", 415),
                             ("application/jsonp", 415), ("application/json", 200),
                             ("Application/JSON ; charset=utf-8", 200), ("application/vnd.x+json", 200)):
            got = self.server.ask("POST", "/tokenize", '{"content": "a"}', headers={"Content-Type": kind})[0]
            self.assertEqual(got, status, kind)
        # Who says nothing is a program, unless a browser says who asks.
        here = f"http://127.0.0.1:{self.server.port}"
        for more, status in (({}, 200), ({"Origin": here}, 415), ({"Sec-Fetch-Site": "same-origin"}, 415)):
            got = self.server.ask("POST", "/tokenize", '{"content": "a"}', headers={"Content-Type": "", **more})[0]
            self.assertEqual(got, status, more)

    def test_pages_of_other_sites_are_refused(self):
        here = f"http://127.0.0.1:{self.server.port}"
        for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
                                ({"Origin": here}, 200), ({}, 200), ({"Sec-Fetch-Site": "cross-site"}, 403),
                                ({"Sec-Fetch-Site": "same-site", "Origin": here}, 403),
                                ({"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"}, 200)):
            self.assertEqual(self.server.ask("POST", "/v1/cache/reset", headers=headers)[0], status, headers)
        # They may look, but browsers show them nothing: no answer allows it.
        status, headers, _ = self.server.ask("GET", "/v1/models", headers={"Origin": "http://evil.example"})
        self.assertEqual(status, 200)
        self.assertFalse([name for name in headers if name.lower().startswith("access-control")])
        self.assertEqual(self.server.ask("OPTIONS", "/v1/models")[0], 405)

    def test_packed_bodies_are_refused(self):
        packed = gzip.compress(b'{"content": "a"}')
        status, _, answer = self.server.ask("POST", "/tokenize", packed, headers={"Content-Encoding": "gzip"})
        self.assertEqual(status, 415)
        self.assertIn("content-encoding", answer["error"]["message"])


class Running(unittest.TestCase):
    def test_sigterm_lets_streams_finish(self):
        with Program() as server:
            connection, answer = server.open_stream(tokens=600)
            first = answer.readline()
            self.assertTrue(first.startswith(b"data: "))
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.assertEqual(server.ask("GET", "/health")[0], 503)
            self.assertEqual(server.ask("GET", "/live")[0], 200)
            status, headers, _ = server.ask("POST", "/v1/chat/completions", {"messages": []})
            self.assertEqual(status, 503)
            self.assertIn("Retry-After", headers)
            rest = answer.read()
            self.assertTrue(rest.endswith(b"data: [DONE]\n\n"), rest[-200:])
            connection.close()
            self.assertEqual(server.process.wait(timeout=30), 0)

    def test_while_it_loads_it_says_so(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen([PROGRAM, "serve", "--port", str(port)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        seen = []
        while 200 not in seen:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", "/health")
                answer = connection.getresponse()
                text = answer.read()
                seen.append(answer.status)
                self.assertIn(answer.status, (200, 503))
                if answer.status == 503:
                    self.assertIn(b"being loaded", text)
                    connection.request("GET", "/live")
                    self.assertEqual(connection.getresponse().status, 200)
            except ConnectionRefusedError:
                self.assertEqual(seen, [])
                self.assertIsNone(process.poll())
            finally:
                connection.close()
        self.assertEqual(seen, sorted(seen, reverse=True))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 0)

    def test_a_log_that_nobody_reads_delays_nobody(self):
        """The pipe of the log is full after some 450 answers; this used to be the last of them."""
        process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--threads", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        port = int(re.search(r"http://\S+:(\d+)", process.stdout.readline()).group(1))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(2000):
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            answer.read()
        connection.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertGreater(process.stderr.read().count("/v1/models"), 250)
        process.stderr.close()
        process.stdout.close()

    def test_the_first_lines_say_what_to_do(self):
        with Program("--context", "512", "--parallel", "3") as server:
            shown = server.wait_for_log("  try ")
            self.assertRegex(shown, r"(?m)^  page +http://127\.0\.0\.1:\d+/ ")
            self.assertRegex(shown, r"(?m)^  API +http://127\.0\.0\.1:\d+/v1 for OpenAI's")
            self.assertRegex(shown, r"(?m)^  context +512 tokens a request, 3 requests")
            example = re.search(r"(?m)^  try +(curl .*)$", shown).group(1)
            said = subprocess.run(example, shell=True, capture_output=True, text=True, timeout=60).stdout
            self.assertIn("content", json.loads(said)["choices"][0]["message"])
        with Program("--no-page", "--api-key", "secret") as server:
            shown = server.wait_for_log("  try ")
            self.assertNotIn("  page", shown)
            self.assertIn("Authorization: Bearer KEY", shown)
            self.assertNotIn("secret", shown)

    def test_the_log_says_why_a_request_was_refused(self):
        with Program() as server:
            server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_token": 3})
            log = server.wait_for_log("max_token")
            self.assertRegex(log, r'"status":400,"reason":"max_token ')
            server.ask("POST", "/v1/chat/completions", {})
            self.assertIn('"reason":"messages is required"', server.wait_for_log("is required"))

    def test_a_reply_that_runs_away_is_in_the_log(self):
        with Program("--context", "576") as server:
            loop = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "logit_bias": {"300": 100}}
            _, _, answer = server.ask("POST", "/v1/chat/completions", loop)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
            log = server.wait_for_log("repeats itself")
            self.assertIn("the reply has 512 tokens, repeats itself and has no limit but the context of 576", log)

    def test_a_context_beyond_the_models_is_lowered_and_said(self):
        with Program("--context", "1000000") as server:
            self.assertEqual(server.ask("GET", "/props")[2]["context_tokens"], 4096)
            self.assertEqual(server.stop(), 0)
            self.assertIn("--context 1000000 is more than the model's 4096", "".join(server.lines))

    def test_many_starts_and_stops(self):
        for _ in range(5):
            with Program() as server:
                server.chat(tokens=2)
                self.assertEqual(server.stop(), 0)

    def test_a_full_queue_answers_429(self):
        with Program("--queue", "1", "--parallel", "1") as server:
            streams = [server.open_stream(tokens=1500) for _ in range(6)]
            statuses = sorted(answer.status for _, answer in streams)
            self.assertEqual(statuses[0], 200)
            self.assertIn(429, statuses)
            for connection, answer in streams:
                if answer.status == 429:
                    self.assertEqual(answer.getheader("Retry-After"), "1")
                    self.assertEqual(json.loads(answer.read())["error"]["type"], "rate_limit_error")
                connection.close()
            for _ in range(200):  # those that left free their places
                state = server.cache()["server"]
                if state["requests"]["running"] == 0 and state["stored"]["leases"] == 0:
                    break
                time.sleep(0.02)
            self.assertEqual(state["stored"]["blocks_leased"], 0)
            server.chat()

    def test_settings_flag_over_environment_over_file(self):
        folder, path = config('context = 512\nalias = "file"\n[cache]\nmib = 64\n')
        with folder:
            with Program("--config", path) as server:
                self.assertEqual(server.ask("GET", "/props")[2]["context_tokens"], 512)
                self.assertEqual(server.ask("GET", "/props")[2]["model"], "file")
                self.assertEqual(server.cache()["server"]["budget"][0]["bytes"], 64 << 20)
            environment = {"REPRISE_ALIAS": "environment", "REPRISE_CONTEXT": "256", "REPRISE_CONFIG": path}
            with Program("--alias", "flag", environment=environment) as server:
                self.assertEqual(server.ask("GET", "/props")[2]["model"], "flag")
                self.assertEqual(server.ask("GET", "/props")[2]["context_tokens"], 256)

    def test_several_names_for_the_model(self):
        with Program("--alias", "small", "--alias", "claude-*", "--alias", "gpt-4") as server:
            names = [entry["id"] for entry in server.ask("GET", "/v1/models")[2]["data"]]
            self.assertEqual(names, ["small", "gpt-4"])
            for name in ("small", "gpt-4", "claude-opus-4-1"):
                server.chat(model=name, tokens=1)
                self.assertEqual(server.ask("GET", "/v1/models/" + name)[2]["id"], name)
            self.assertEqual(server.ask("GET", "/v1/models/gpt-5")[0], 404)

    def test_wrong_settings_are_one_sentence(self):
        cases = {"port = [": "reprise.toml:1", "nonsense = 1": "nonsense", "port = 70000": "70000",
                 "[[keys]]\nname = 'x'": "has no key", "[[keys]]\nkey = 'x'\nrole = 'y'": "role",
                 "[[keys]]\nkey = 'x'\nadmin = 'yes'": "admin",
                 "[[keys]]\nkey = 'x'\nname = 'a'\n[[keys]]\nkey = 'y'\nname = 'a'": "the name 'a'",
                 "[[keys]]\nkey = 'x'\nname = 'key2'\n[[keys]]\nkey = 'y'": "the name 'key2'",
                 "[[keys]]\nkey = 'x'\n[[keys]]\nkey = 'x'": "the same API key"}
        for text, said in cases.items():
            folder, path = config(text)
            with folder:
                done = subprocess.run([PROGRAM, "serve", "--config", path], capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(said, done.stderr)

    def test_it_does_not_open_itself_to_others(self):
        done = subprocess.run([PROGRAM, "serve", "--host", "0.0.0.0", "--port", "0"], capture_output=True, text=True,
                              timeout=30)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--api-key", done.stderr)
        with Program("--host", "0.0.0.0", "--api-key", "k") as server:
            self.assertEqual(server.ask("GET", "/v1/models")[0], 401)
            self.assertEqual(server.ask("GET", "/v1/models", key="k")[0], 200)

    def test_ways_to_say_this_machine(self):
        for host, shown in (("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("[::1]", "[::1]")):
            with self.subTest(host=host), Program("--host", host) as server:
                self.assertIn(f"http://{shown}:{server.port}\n", "".join(server.lines))
                address = shown.strip("[]")
                for name in (f"{shown}:{server.port}", "localhost"):
                    connection = http.client.HTTPConnection(address, server.port, timeout=30)
                    connection.request("GET", "/v1/models", headers={"Host": name})
                    self.assertEqual(connection.getresponse().status, 200)
                    connection.close()

    def test_a_port_that_was_just_left(self):
        with Program() as server:
            port = server.port
            connection, answer = server.open_stream(tokens=2000)
            self.assertTrue(answer.readline())
            for _ in range(2):  # the second signal does not wait for answers
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            self.assertEqual(server.process.wait(timeout=30), 0)
            with Program(port=port) as again:
                self.assertEqual(again.ask("GET", "/health")[0], 200)
            connection.close()

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = subprocess.run([PROGRAM, "serve", "--port", str(port)], capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"cannot listen on 127.0.0.1:{port}", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
