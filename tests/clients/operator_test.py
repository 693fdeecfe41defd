"""What an operator switches on: limits of a key, spans for a collector, batches; and what everybody gets: timings, progress,
compressed answers, the OpenAPI document. Against the vendors' own code where there is some.

usage: operator_test.py PROGRAM
"""
import base64
import gzip
import http.client
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import openai
import openapi_spec_validator
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

import harness

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
MESSAGES = [{"role": "user", "content": "Tell me a story."}]


class Collector:
    """Takes what an OpenTelemetry collector takes at /v1/traces."""

    def __init__(self):
        spans = self.spans = []
        requests = self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                requests.append((self.path, dict(self.headers)))
                data = json.loads(body)
                for resource in data["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        spans.extend(scope["spans"])
                json_format.Parse(json.dumps(hex_to_base64(data)), trace_service_pb2.ExportTraceServiceRequest())
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def wait_for(self, trace, count):
        for _ in range(600):
            found = [span for span in list(self.spans) if span["traceId"] == trace]
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no spans of {trace}: {self.spans}")


def hex_to_base64(value):
    """OTLP spells ids in hexadecimal where protobuf's own JSON has Base64; everything else is the same."""
    if isinstance(value, list):
        return [hex_to_base64(one) for one in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ids else hex_to_base64(v) for k, v in value.items()}


def ask(server, path, body=None, headers=None, method=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    data = None if body is None else json.dumps(body)
    connection.request(method or ("GET" if body is None else "POST"), path, data,
                       {"content-type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    return answer, answer.read()


class Operator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.folder = tempfile.TemporaryDirectory()
        cls.folder_path = pathlib.Path(cls.folder.name)
        config = cls.folder_path / "reprise.toml"
        config.write_text('[[keys]]\nkey = "root"\nname = "root"\nadmin = true\n'
                          '[[keys]]\nkey = "few"\nname = "few"\nrequests-per-minute = 2\n'
                          '[[keys]]\nkey = "other"\nname = "other"\n')
        cls.options = ["--alias", "*", "--threads", "1", "--config", str(config), "--otlp-endpoint", cls.collector.url,
                       "--files", str(cls.folder_path / "files")]
        cls.server = harness.Server(PROGRAM, *cls.options, model=harness.TINY, context=None)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.folder.cleanup()

    def client(self, key="root", **options):
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key=key, **options)

    def test_a_key_is_held_to_its_requests_and_clients_know_how_long_to_wait(self):
        client = self.client("few", max_retries=0)
        for _ in range(2):
            client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=2)
        with self.assertRaises(openai.RateLimitError) as raised:
            client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=2)
        self.assertEqual(raised.exception.code, "rate_limit_exceeded")
        self.assertIn("2 requests per minute", str(raised.exception))
        wait = int(raised.exception.response.headers["retry-after"])
        self.assertTrue(1 <= wait <= 30, wait)
        self.client().chat.completions.create(model="any", messages=MESSAGES, max_tokens=2)

    def test_a_reply_is_a_span_of_its_callers_trace_with_its_phases_below(self):
        for stream in (False, True):
            trace = TRACE[:-1] + str(int(stream))
            answer, _ = ask(self.server, "/v1/chat/completions",
                            {"messages": MESSAGES, "max_tokens": 8, "stream": stream},
                            {"authorization": "Bearer root", "traceparent": f"00-{trace}-{PARENT}-01"})
            self.assertEqual(answer.status, 200)
            spans = self.collector.wait_for(trace, 4)
            root = [span for span in spans if span.get("parentSpanId") == PARENT]
            self.assertEqual(len(root), 1, spans)
            below = {span["name"]: span for span in spans if span.get("parentSpanId") == root[0]["spanId"]}
            self.assertEqual(len(below), len(spans) - 1)
            self.assertLessEqual({"queue", "prefill", "decode"}, set(below))
            self.assertLessEqual(set(below), {"queue", "look-up", "load", "prefill", "decode"})
            begin, end = int(root[0]["startTimeUnixNano"]), int(root[0]["endTimeUnixNano"])
            self.assertLess(abs(end / 1e9 - time.time()), 60)
            at = begin
            for name in ("queue", "look-up", "load", "prefill", "decode"):
                if name in below:
                    self.assertEqual(int(below[name]["startTimeUnixNano"]), at)
                    at = int(below[name]["endTimeUnixNano"])
            self.assertLessEqual(at, end + 5_000_000)
            attributes = {a["key"]: next(iter(a["value"].values())) for a in root[0]["attributes"]}
            self.assertEqual(attributes["gen_ai.usage.output_tokens"], "8")
            self.assertEqual(attributes["reprise.tenant"], "root")
            self.assertEqual(root[0]["status"], {"code": 1})
        self.assertEqual(self.collector.requests[0][0], "/v1/traces")

    def test_what_the_caller_does_not_sample_is_not_sent(self):
        trace = "1" * 32
        headers = {"authorization": "Bearer root"}
        ask(self.server, "/v1/completions", {"prompt": "a", "max_tokens": 1},
            {**headers, "traceparent": f"00-{trace}-{PARENT}-00"})
        later = "2" * 32
        ask(self.server, "/v1/completions", {"prompt": "a", "max_tokens": 1},
            {**headers, "traceparent": f"00-{later}-{PARENT}-01"})
        self.collector.wait_for(later, 2)
        self.assertFalse([span for span in self.collector.spans if span["traceId"] == trace])

    def test_answers_say_how_fast_they_were_and_streams_how_far_a_prompt_has_come(self):
        client = self.client()
        reply = client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=4)
        timings = reply.model_extra["timings"]
        self.assertEqual(timings["predicted_n"], 4)
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], reply.usage.prompt_tokens)
        self.assertGreater(timings["predicted_per_second"], 0)
        text = "A small brown dog lived near the river with an old man. " * 40
        stream = client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}], max_tokens=2,
                                                stream=True, extra_body={"return_progress": True})
        progress = [chunk.model_extra["prompt_progress"] for chunk in stream if "prompt_progress" in (chunk.model_extra or {})]
        self.assertTrue(progress)
        done = [one["processed"] for one in progress]
        self.assertEqual(done, sorted(done))
        self.assertEqual(done[-1], progress[-1]["total"])

    def test_large_answers_are_compressed(self):
        headers = {"authorization": "Bearer root", "accept-encoding": "gzip"}
        answer, packed = ask(self.server, "/openapi.json", headers=headers)
        self.assertEqual(answer.headers["content-encoding"], "gzip")
        plain, text = ask(self.server, "/openapi.json", headers={"authorization": "Bearer root"})
        self.assertIsNone(plain.headers["content-encoding"])
        self.assertEqual(gzip.decompress(packed), text)
        # The page: its tag is known in both forms.
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/") as page:
            script = next(part for part in page.read().decode().split('"') if part.startswith("/assets/") or part.startswith("assets/"))
        path = "/" + script.lstrip("/")
        answer, _ = ask(self.server, path, headers=headers)
        again, body = ask(self.server, path, headers={**headers, "if-none-match": answer.headers["etag"]})
        self.assertEqual((again.status, body), (304, b""))

    def test_the_openapi_document_is_valid_and_describes_every_route(self):
        answer, text = ask(self.server, "/openapi.json", headers={"authorization": "Bearer root"})
        document = json.loads(text)
        openapi_spec_validator.validate(document)
        for path in ("/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/batches", "/v1/files/{id}"):
            self.assertIn(path, document["paths"])
        self.assertEqual(ask(self.server, "/openapi.json")[0].status, 401)

    def make_file(self, client, lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return client.files.create(file=("requests.jsonl", text.encode()), purpose="batch")

    def line(self, number, **body):
        return {"custom_id": f"line {number}", "method": "POST", "url": "/v1/chat/completions",
                "body": {"model": "any", "messages": [{"role": "user", "content": f"Story {number}"}], "max_tokens": 3,
                         "temperature": 0, **body}}

    def wait_for_batch(self, client, batch, wanted="completed"):
        for _ in range(600):
            batch = client.batches.retrieve(batch.id)
            if batch.status in ("completed", "failed", "cancelled", "expired"):
                break
            time.sleep(0.1)
        self.assertEqual(batch.status, wanted, batch)
        return batch

    def test_a_batch_says_what_the_same_requests_say_alone(self):
        client = self.client()
        lines = [self.line(i) for i in range(12)] + [self.line(12, temperature=7)]
        file = self.make_file(client, lines)
        self.assertEqual((file.purpose, file.filename, file.object), ("batch", "requests.jsonl", "file"))
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h",
                                      metadata={"for": "a test"})
        batch = self.wait_for_batch(client, batch)
        self.assertEqual((batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed),
                         (13, 12, 1))
        self.assertEqual(batch.metadata, {"for": "a test"})
        answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
        self.assertEqual(sorted(a["custom_id"] for a in answers), sorted(f"line {i}" for i in range(12)))
        for answer in answers:
            alone = client.chat.completions.create(**lines[int(answer["custom_id"].split()[1])]["body"])
            self.assertEqual(answer["response"]["status_code"], 200)
            self.assertEqual(answer["response"]["body"]["choices"][0]["message"]["content"], alone.choices[0].message.content)
        errors = [json.loads(line) for line in client.files.content(batch.error_file_id).text.splitlines()]
        self.assertEqual([(e["custom_id"], e["response"]["status_code"]) for e in errors], [("line 12", 400)])
        self.assertIn("temperature", errors[0]["response"]["body"]["error"]["message"])
        # Nobody else sees any of it.
        other = self.client("other")
        self.assertEqual(list(other.batches.list()), [])
        self.assertEqual(list(other.files.list()), [])
        for call in (lambda: other.files.content(batch.output_file_id), lambda: other.batches.retrieve(batch.id),
                     lambda: other.batches.cancel(batch.id), lambda: other.files.delete(file.id)):
            self.assertRaises(openai.NotFoundError, call)
        self.assertIn(batch.id, [one.id for one in client.batches.list(limit=2)])
        self.assertTrue(client.files.delete(file.id).deleted)
        self.assertRaises(openai.NotFoundError, client.files.retrieve, file.id)

    def test_a_batch_that_cannot_be_run_says_which_line_is_wrong(self):
        client = self.client()
        for lines, line, word in (([self.line(0), self.line(0)], 2, "custom_id"), ([self.line(0, stream=True)], 1, "stream"),
                                  ([self.line(0), {"custom_id": "x"}], 2, "method")):
            file = self.make_file(client, lines)
            batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
            batch = self.wait_for_batch(client, batch, "failed")
            self.assertEqual(batch.errors.data[0].line, line)
            self.assertIn(word, batch.errors.data[0].message)
        for wrong in ({"endpoint": "/v1/models"}, {"input_file_id": "file-../../x"}, {"completion_window": "1h"}):
            arguments = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h", **wrong}
            self.assertRaises(openai.APIStatusError, client.batches.create, **arguments)
        self.assertRaises(openai.BadRequestError, client.files.create, file=b"x", purpose="fine-tune")

    def test_a_batch_ends_when_it_is_cancelled(self):
        client = self.client()
        file = self.make_file(client, [self.line(i, max_tokens=2000, ignore_eos=True) for i in range(50)])
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        client.batches.cancel(batch.id)
        self.wait_for_batch(client, batch, "cancelled")

    def test_a_batch_goes_on_behind_what_a_killed_process_had_answered(self):
        files = ["--alias", "*", "--threads", "1", "--files", str(self.folder_path / "killed")]
        server = harness.Server(PROGRAM, *files, model=harness.TINY, context=None)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
        file = self.make_file(client, [self.line(i, max_tokens=30, ignore_eos=True) for i in range(30)])
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        while (counts := client.batches.retrieve(batch.id).request_counts).completed < 5:
            self.assertEqual(counts.failed, 0)
            time.sleep(0.02)
        server.process.kill()
        server.process.wait()
        partial = self.folder_path / "killed/batches" / (batch.id + ".output")
        before = partial.read_bytes()
        partial.write_bytes(before + before.splitlines(True)[0][:-20])  # a line that was cut off
        server.recorder.close()
        server = harness.Server(PROGRAM, *files, model=harness.TINY, context=None)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
        batch = self.wait_for_batch(client, batch)
        text = client.files.content(batch.output_file_id).text
        self.assertTrue(text.startswith(before.decode()))
        ids = [json.loads(line)["custom_id"] for line in text.splitlines()]
        self.assertEqual(sorted(ids), sorted(f"line {i}" for i in range(30)))
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
